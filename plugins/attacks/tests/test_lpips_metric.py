"""LPIPS with weights in files as torchvision publishes them; the weights here are random, for none are downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.errors import MetricError
from fedplug_attacks import image_metrics
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.lpips_metric import Lpips
from fedplug_kit.static import check_component
from fedplug_std.torchvision_import import torchvision
from numpy.typing import NDArray
from pydantic import ValidationError

Images = NDArray[np.float32]
FILES = {"alex": "alexnet-owt-7be5be79.pth", "vgg": "vgg16-397923af.pth", "squeeze": "squeezenet1_1-b8a52dc0.pth"}
SMALLEST = {"alex": 31, "vgg": 16, "squeeze": 17}


def score(found: Images, truth: Images, folder: Path, net: str) -> float:
    metric = Lpips(Lpips.Options.model_validate({"folder": str(folder), "net": net}))
    numbers = metric.score(AttackReport("finished", images=found), Truth(truth, np.zeros(len(truth), np.int64), 10))
    assert list(numbers) == list(Lpips.measures.better)
    return numbers["lpips"]


def pair(size: int = 40, channels: int = 3, n: int = 3) -> tuple[Images, Images]:
    found, truth = np.random.default_rng(0).random((2, n, channels, size, size), np.float32)
    return found, truth


def features(net: str) -> torch.nn.Sequential:
    """The convolutions of a network of torchvision; a classifier on top would only take memory."""
    models = torchvision().models
    if net == "vgg":
        found: torch.nn.Sequential = models.vgg.make_layers(models.vgg.cfgs["D"])
    elif net == "alex":
        with torch.device("meta"):
            found = models.alexnet(weights=None).features
        found = found.to_empty(device="cpu")
        for layer in found:
            if isinstance(layer, torch.nn.Conv2d):
                layer.reset_parameters()
    else:
        found = models.squeezenet1_1(weights=None).features
    return found.eval()


def saved(folder: Path, net: str) -> torch.nn.Sequential:
    """Random weights in a file as torchvision publishes them."""
    torch.manual_seed(0)
    made = features(net)
    torch.save({f"features.{name}": value for name, value in made.state_dict().items()}, folder / FILES[net])
    return made


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow) if name == "vgg" else name for name in FILES]
)
def net(request: pytest.FixtureRequest) -> str:
    """Tests with one network follow each other, for the metric keeps the last one that it filled."""
    return str(request.param)


@pytest.fixture(scope="module")
def made(net: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Sequential, Path]:
    """A network, and the folder of its file."""
    folder = tmp_path_factory.mktemp(net)
    return saved(folder, net), folder


def test_conforms() -> None:
    check_component("attacks.lpips")
    assert Lpips.measures.default is False


def test_the_network_is_filled_from_the_file_and_the_distance_is_one(
    net: str, made: tuple[torch.nn.Sequential, Path]
) -> None:
    layers, folder = made
    found, truth = pair(n=2)
    distance = score(found, truth, folder, net)
    assert distance > 1e-4
    assert score(truth, truth, folder, net) == 0
    assert score(truth, found, folder, net) == pytest.approx(distance, rel=1e-5)
    assert score((0.9 * truth + 0.1 * found).astype(np.float32), truth, folder, net) < distance

    # Independently: features of the torchvision network itself at the layers LPIPS reads, and the published weights.
    module = image_metrics.torchmetrics_image().lpips
    bundled = Path(module.__file__).parent / "lpips_models" / f"{net}.pth"
    heads = torch.load(bundled, map_location="cpu", weights_only=True)
    last = {
        "alex": (1, 4, 7, 9, 11),
        "vgg": (3, 8, 15, 22, 29),
        "squeeze": (1, 4, 7, 9, 10, 11, 12),
    }[net]
    shift = torch.tensor([-0.030, -0.088, -0.188])[:, None, None]
    scale = torch.tensor([0.458, 0.448, 0.450])[:, None, None]
    sides = [(2 * torch.from_numpy(side) - 1 - shift) / scale for side in (found, truth)]
    total = torch.zeros(2)
    with torch.no_grad():
        for index, layer in enumerate(list(layers)[: last[-1] + 1]):
            sides = [layer(side) for side in sides]
            if index in last:
                units = [side / (1e-8 + (side**2).sum(1, keepdim=True)).sqrt() for side in sides]
                weights = heads[f"lin{last.index(index)}.model.1.weight"]
                total += ((units[0] - units[1]) ** 2 * weights[0]).sum(1).mean((1, 2))
    assert distance == pytest.approx(total.mean().item(), rel=1e-4)


def test_equals_the_public_function_of_torchmetrics_with_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    torch.manual_seed(1)
    torch.save(torchvision().models.squeezenet1_1(weights=None).state_dict(), folder / FILES["squeeze"])
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    found, truth = pair()
    function = image_metrics.torchmetrics_image().learned_perceptual_image_patch_similarity
    theirs = function(torch.from_numpy(found), torch.from_numpy(truth), net_type="squeeze", normalize=True)
    assert score(found, truth, folder, "squeeze") == pytest.approx(theirs.item(), rel=1e-5)


def test_gray_is_repeated_batches_and_random_numbers_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, "squeeze")
    found, truth = pair(channels=1)
    state = torch.random.get_rng_state()
    gray = score(found, truth, tmp_path, "squeeze")
    assert torch.equal(torch.random.get_rng_state(), state)
    assert gray == pytest.approx(score(found.repeat(3, 1), truth.repeat(3, 1), tmp_path, "squeeze"), rel=1e-6)
    monkeypatch.setattr("fedplug_attacks.lpips_metric._VALUES_AT_ONCE", 1)
    assert score(found, truth, tmp_path, "squeeze") == pytest.approx(gray, rel=1e-5)
    with pytest.raises(MetricError, match=r"images of 2 channels must have 3 or 1 \(gray\)"):
        score(found.repeat(2, 1), truth.repeat(2, 1), tmp_path, "squeeze")


def test_images_too_small_are_refused_and_the_smallest_is_not(
    net: str, made: tuple[torch.nn.Sequential, Path], tmp_path: Path
) -> None:
    least = SMALLEST[net]
    with pytest.raises(MetricError, match=rf"images of {least - 1}x{least - 1} pixels are too small.* >= {least} "):
        score(*pair(least - 1), tmp_path, net)
    assert np.isfinite(score(*pair(least, n=1), made[1], net))


def test_missing_and_damaged_weights_make_it_unavailable(tmp_path: Path) -> None:
    def refused(why: str, folder: Path = tmp_path, net: str = "squeeze") -> None:
        with pytest.raises(MetricError, match=f"lpips is unavailable: .*{why}"):
            score(*pair(), folder, net)

    refused(
        r"squeezenet1_1-\*.pth in folder=.*nowhere, which is not a folder; .*leave the metric out", tmp_path / "nowhere"
    )
    refused(r"alexnet-owt-\*.pth in folder=.*, which holds 0 such files", net="alex")
    weights: Any = saved(tmp_path, "squeeze").state_dict()
    (tmp_path / "squeezenet1_1-second.pth").write_bytes(b"")
    refused("holds 2 such files")
    for place, content, why in (
        ("truncated", (tmp_path / FILES["squeeze"]).read_bytes()[:5000], "cannot be used: "),
        ("text", b"<html>not found</html>", "cannot be used: "),
    ):
        folder = tmp_path / place
        folder.mkdir()
        (folder / FILES["squeeze"]).write_bytes(content)
        refused(why, folder)
    other = tmp_path / "other"
    other.mkdir()
    torch.save({"features.0.weight": torch.zeros(3)}, other / FILES["squeeze"])
    refused("must hold torchvision's weights of squeeze .*KeyError: 'features", other)
    weights["0.bias"][0] = float("nan")
    nan = tmp_path / "nan"
    nan.mkdir()
    torch.save({f"features.{name}": value for name, value in weights.items()}, nan / FILES["squeeze"])
    refused("NaN or infinite", nan)


def test_a_file_that_runs_code_is_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Payload:
        def __reduce__(self) -> Any:
            return Path.touch, (marker,)

    torch.save({"features.0.weight": Payload()}, tmp_path / FILES["squeeze"])
    with pytest.raises(MetricError, match="cannot be used: UnpicklingError"):
        score(*pair(), tmp_path, "squeeze")
    assert not marker.exists()


def test_options() -> None:
    with pytest.raises(ValidationError, match="folder"):
        Lpips.Options.model_validate({})
    with pytest.raises(ValidationError, match="alex"):
        Lpips.Options.model_validate({"folder": "x", "net": "resnet"})
    assert Lpips(Lpips.Options(folder="weights")).describe() == "alex, weights from weights"

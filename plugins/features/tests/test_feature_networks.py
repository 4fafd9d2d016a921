"""Features of published networks: what the head gets, how images are prepared, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
import torch
from features_toys import Toy, made, texts
from fedplug.api.errors import DataError, FedplugError, RecipeError
from fedplug_features import _networks
from fedplug_features.pretrained import HuggingFace, Timm, Torchvision
from fedplug_std.torchvision_import import torchvision

SMALL = "shufflenet_v2_x0_5"
IMAGES = np.random.default_rng(0).integers(0, 256, (3, 1, 20, 24), np.uint8)


@pytest.fixture(scope="module", autouse=True)
def _torchvision_first() -> None:
    """timm and transformers import it, and its operators may not fit torch here."""
    torchvision()


@pytest.fixture(scope="module")
def network() -> Any:
    torch.manual_seed(3)
    return torchvision().models.get_model(SMALL, weights=None).eval()


@pytest.fixture(scope="module")
def folder(network: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("weights")
    torch.save(network.state_dict(), place / "small.pth")
    return place


def of_small(of: Any = None, **options: Any) -> Any:
    images = Toy(IMAGES, mean=(0.9,), std=(9.0,)) if of is None else of  # pixels are standardised as the network wants
    return made(Torchvision, images, **{"model": SMALL, "weights": "small.pth", "size": 32, **options})


# -- torchvision -------------------------------------------------------------------------------------------------------


def test_features_are_what_the_head_gets(network: Any, folder: Path) -> None:
    """The head of what is found is what the network gives for images that are prepared by hand."""
    found = of_small().load(str(folder)).train.inputs
    assert found.shape == (3, 1024)
    pixels = torch.from_numpy(IMAGES / np.float32(255)).expand(-1, 3, -1, -1)
    pixels = torch.nn.functional.interpolate(pixels, (32, 32), mode="bilinear", antialias=True).clamp(0, 1)
    mean, std = (torch.tensor(each).reshape(3, 1, 1) for each in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        wanted = network((pixels - mean) / std)
        torch.testing.assert_close(network.fc(torch.from_numpy(found)), wanted, rtol=1e-4, atol=1e-5)
    scaled = of_small(length=2).load(str(folder)).train.inputs
    np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), 2, rtol=1e-5)


def test_an_image_has_its_features_whoever_is_next_to_it_and_nobody_draws_other_numbers(folder: Path) -> None:
    torch.manual_seed(1)
    wanted = torch.rand(1)
    torch.manual_seed(1)
    together = of_small().load(str(folder)).train.inputs
    assert torch.equal(torch.rand(1), wanted)
    alone = of_small(Toy(IMAGES[:1])).load(str(folder)).train.inputs
    np.testing.assert_allclose(alone, together[:1], rtol=1e-4, atol=1e-5)


def test_a_head_of_other_classes_does_not_matter(network: Any, folder: Path) -> None:
    held = {name: each for name, each in network.state_dict().items() if not name.startswith("fc.")}
    torch.save(held | {"fc.weight": torch.zeros(7, 1024)}, folder / "seven.pth")
    found = of_small(weights="seven.pth").load(str(folder)).train.inputs
    np.testing.assert_array_equal(found, of_small().load(str(folder)).train.inputs)


def test_old_names_of_torchvisions_densenet_are_understood() -> None:
    old = "features.denseblock1.denselayer1.norm.1.running_mean"
    assert _networks._DENSE.sub(r"\1\2", old) == "features.denseblock1.denselayer1.norm1.running_mean"
    assert _networks._DENSE.sub(r"\1\2", "features.norm0.weight") == "features.norm0.weight"


def test_a_file_that_is_missing_is_named_with_its_address(tmp_path: Path) -> None:
    wanted = r"there is no .*resnet18-f37072fd.pth, and fedplug downloads nothing; fetch https://.*resnet18-f37072fd.pth"
    with pytest.raises(DataError, match=wanted):
        of_small(model="resnet18", weights=None).load(str(tmp_path))
    (tmp_path / "resnet18-f37072fd.pth").write_bytes(b"half")
    with pytest.raises(DataError, match=r"is damaged: its sha256 is [0-9a-f]+, and its name says f37072fd; fetch"):
        of_small(model="resnet18", weights=None).load(str(tmp_path))


def test_what_does_not_fit_is_said(folder: Path) -> None:
    root = str(folder)
    with pytest.raises(FedplugError, match=r"small.pth does not fit this model: it lacks conv1.weight"):
        of_small(model="resnet18").load(root)
    with pytest.raises(DataError, match=r"torchvision has no network resnet for classes of images; it has resnet101"):
        of_small(model="resnet").load(root)
    with pytest.raises(DataError, match="ends with no fully connected layer"):
        _networks.without_head("squeezenet1_1", folder / "small.pth", (folder / "small.pth").read_bytes())
    with pytest.raises(DataError, match=r"reads images of one or three channels, not inputs of shape \[2, 8, 8\]"):
        of_small(Toy(np.zeros((3, 2, 8, 8), np.uint8))).load(root)
    (folder / "code.pth").write_bytes(b"cos\nsystem\n(S'echo no'\ntR.")
    with pytest.raises(FedplugError, match=r"code.pth cannot be read"):
        of_small(weights="code.pth").load(root)


def test_a_recipe_says_that_its_weights_are_public_on_somebodys_word(folder: Path, tmp_path: Path) -> None:
    recipe = {
        "name": "pretrained", "seed": 1, "rounds": 1, "train": {"use": "std.sgd", "batch_size": 60, "lr": 0.1},
        "data": {
            "use": "features.torchvision", "model": SMALL, "weights": str(folder / "small.pth"), "size": 16,
            "clients": 4, "partition": "std.iid", "of": {"use": "std.digits", "train_size": 60, "test_size": 20},
        },
        "model": "std.logistic", "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": 1}, {"use": "std.gaussian", "noise_multiplier": 1}]},
        "aggregate": "std.mean",
    }  # fmt: skip
    run = fedplug.run(recipe, output=tmp_path / "runs", quiet=True)
    assert run.summary.parameters == 10 * (1024 + 1)  # the head alone travels
    said = {word for line in run.ledger.verdict.lines for word in line.rests_on}
    assert "on the word of the recipe, which calls the weights small.pth public" in said
    with pytest.raises(RecipeError, match=r"weights=w.npz must end in .safetensors"):
        fedplug.check(recipe | {"data": recipe["data"] | {"weights": "w.npz"}})


# -- timm and Hugging Face ---------------------------------------------------------------------------------------------


def test_timms_networks_give_what_their_head_gets(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="pip install 'fedplug-features[timm]'")
    torch.manual_seed(0)
    network = timm.create_model("test_resnet", pretrained=False).eval()
    torch.save(network.state_dict(), tmp_path / "w.pth")
    found = made(Timm, Toy(IMAGES), model="test_resnet", weights="w.pth").load(str(tmp_path)).train.inputs
    about = timm.data.resolve_model_data_config(network)
    pixels = torch.from_numpy(IMAGES / np.float32(255)).expand(-1, 3, -1, -1)
    size = about["input_size"][1:]
    pixels = torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True).clamp(0, 1)
    mean, std = (torch.tensor(about[name]).reshape(3, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        wanted = network((pixels - mean) / std)
        head = network.get_classifier()
        torch.testing.assert_close(head(torch.from_numpy(found)), wanted, rtol=1e-3, atol=1e-4)
    with pytest.raises(DataError, match=r"timm has no network test_resne7; it has"):
        made(Timm, Toy(IMAGES), model="test_resne7", weights="w.pth").load(str(tmp_path))


def test_without_the_library_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    (tmp_path / "w.pth").write_bytes(b"")
    with pytest.raises(FedplugError, match=r"timm is not installed; pip install \"fedplug-features\[timm\]\""):
        made(Timm, Toy(IMAGES), model="resnet18", weights="w.pth").load(str(tmp_path))
    with pytest.raises(DataError, match=r"no .*w.pt, and .*; fetch model.safetensors of .*/timm/any"):
        made(Timm, Toy(IMAGES), model="any", weights="w.pt").load(str(tmp_path))


def test_a_folder_without_a_network_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no .*minilm, and fedplug downloads nothing; fetch the files"):
        made(HuggingFace, texts("a"), folder="minilm", inputs="texts").load(str(tmp_path))
    (tmp_path / "minilm").mkdir()
    (tmp_path / "minilm/config.json").write_text("{}")
    with pytest.raises(DataError, match=r"minilm has no model.safetensors; save the network there"):
        made(HuggingFace, texts("a"), folder="minilm", inputs="texts").load(str(tmp_path))


def test_a_text_is_the_mean_over_its_tokens_without_padding(tmp_path: Path) -> None:
    library = pytest.importorskip("transformers", reason="pip install 'fedplug-features[huggingface]'")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    library.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    network = library.BertModel(library.BertConfig(vocab_size=len(words), **sizes), add_pooling_layer=False).eval()
    network.save_pretrained(tmp_path)
    feature = made(HuggingFace, texts("red green", "red"), folder=str(tmp_path), inputs="texts", tokens=6)
    found = feature.load(None).train.inputs
    with torch.no_grad():
        wanted = [network(torch.tensor([ids])).last_hidden_state[0].mean(0) for ids in ([2, 5, 6, 3], [2, 5, 3])]
    np.testing.assert_allclose(found, torch.stack(wanted).numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(DataError, match=r"reads the bytes of texts, and toy has none"):
        made(HuggingFace, Toy(np.zeros((3, 7), np.float32)), folder=str(tmp_path), inputs="texts").load(None)


def test_an_image_is_the_mean_over_its_places(tmp_path: Path) -> None:
    library = pytest.importorskip("transformers", reason="pip install 'fedplug-features[huggingface]'")
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    network = library.ViTModel(library.ViTConfig(image_size=32, patch_size=16, **sizes), add_pooling_layer=False).eval()
    network.save_pretrained(tmp_path)
    library.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 32, 32), np.uint8)
    found = made(HuggingFace, Toy(images), folder=str(tmp_path), inputs="images").load(None).train.inputs
    pixels = torch.from_numpy(images / np.float32(255)).expand(-1, 3, -1, -1)
    with torch.no_grad():
        wanted = network((pixels - 0.5) / 0.5).last_hidden_state.mean(1)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-3, atol=1e-4)

"""The U-Net: any size, descriptive layer names, no statistics that travel, and one round in a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.errors import DataError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_fedre import foreground
from fedplug_fedre.unet import UNet
from fedplug_kit.static import check_component
from fedplug_runs import execution
from fedplug_runs.folder import read_rows
from fedplug_runs.settings import Settings
from fedplug_std.torch_model import TorchModel


def build(shape: tuple[int, ...] = (1, 32, 32), seed: int = 0, **options: Any) -> TorchModel:
    return UNet(UNet.Options(**options)).build(shape, 2, seed, "cpu")


def test_conforms() -> None:
    check_component("fedre.unet")


@pytest.mark.parametrize("shape", [(1, 64, 64), (3, 33, 50), (1, 7, 5), (1, 1, 1)])
@pytest.mark.parametrize("fold", [1, 2, 4])
@pytest.mark.parametrize("norm", ["none", "instance", "batch"])
def test_two_logits_for_each_pixel_of_any_size(shape: tuple[int, ...], fold: int, norm: str) -> None:
    model = build(shape, fold=fold, norm=norm, width=4)
    logits = model.module.eval()(torch.zeros(2, *shape))
    assert logits.shape == (2, 2, *shape[1:])


def test_padding_does_not_change_what_needs_none() -> None:
    """The logits of the upper left part depend on the pixels there, up to the model's reach, not on the size."""
    model = build(width=4, depth=1, norm="none")
    model.set_vector(np.random.default_rng(0).normal(0, 0.3, model.layout.size).astype(np.float32))
    image = torch.rand(1, 1, 48, 48)
    whole, part = model.module(image), model.module(image[..., :45, :45])
    assert part.shape[-2:] == (45, 45)
    assert torch.allclose(whole[..., :20, :20], part[..., :20, :20], atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"width": 3, "depth": 4, "norm": "batch"}, {"fold": 4, "depth": 1}])
def test_it_knows_its_number_of_parameters(options: dict[str, Any]) -> None:
    made = UNet(UNet.Options(**options))
    assert made.num_parameters((3, 16, 16), 5) == made.build((3, 16, 16), 5, 0, "cpu").layout.size


def test_the_default_is_small_and_its_layers_read_well() -> None:
    model = build()
    assert model.layout.size == 27_680
    assert model.layout.layers == (
        "enc1.conv1", "enc1.conv2", "enc2.conv1", "enc2.conv2", "middle.conv1", "middle.conv2",
        "up2", "dec2.conv1", "dec2.conv2", "up1", "dec1.conv1", "dec1.conv2", "head",
    )  # fmt: skip
    assert model.get_buffers() == {}
    assert set(build(norm="batch").get_buffers()) >= {"enc1.conv1.statistics.running_mean"}
    assert build(depth=3, width=16).layout.size < 500_000


def test_fold_sees_every_pixel_and_depth_widens_the_view() -> None:
    for fold in (1, 2, 4):
        model = build(fold=fold)
        model.set_vector(np.random.default_rng(1).normal(0, 0.2, model.layout.size).astype(np.float32))
        image = torch.rand(1, 1, 32, 32, requires_grad=True)
        logits = model.module(image)
        (gradient,) = torch.autograd.grad(logits.square().sum(), image)
        assert (gradient != 0).all()


def test_weights_follow_from_the_seed() -> None:
    assert np.array_equal(build(seed=3).get_vector(), build(seed=3).get_vector())
    assert not np.array_equal(build(seed=3).get_vector(), build(seed=4).get_vector())


def test_other_than_images_are_refused() -> None:
    with pytest.raises(DataError, match=r"takes images \(C, H, W\), not examples of shape 64"):
        build((64,))


def test_it_learns_to_find_bright_squares() -> None:
    """A sanity check of the gradient's path: 30 steps on one batch find a square by its tone."""
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.random((4, 1, 24, 24)).astype(np.float32) * 0.2)
    masks = torch.zeros(4, 24, 24, dtype=torch.int64)
    for number in range(4):
        y, x = rng.integers(2, 14, 2)
        masks[number, y : y + 9, x : x + 9] = 1
    images[:, 0][masks == 1] += 0.8
    model = build((1, 24, 24))
    optimiser = torch.optim.SGD(model.parameters, lr=0.1, momentum=0.9)
    for _ in range(30):
        loss = torch.nn.functional.cross_entropy(model.module(images), masks)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    found = model.module(images).argmax(1)
    both, either = ((found == 1) & (masks == 1)).sum(), ((found == 1) | (masks == 1)).sum()
    assert float(both) / float(either) > 0.5


def test_a_round_of_a_federation_gives_numbers_of_a_segmentation(tmp_path: Path) -> None:
    recipe = {
        "name": "tiny", "seed": 1, "rounds": 1,
        "data": {
            "use": "fedre.documents", "train_count": 36, "test_count": 8, "size": 48, "clients": 3, "public": 6,
            "partition": {"use": "std.iid"},
        },
        "model": {"use": "fedre.unet", "width": 4, "depth": 1},
        "train": {"use": "std.sgd", "batch_size": 6, "lr": 0.05, "class_weights": [1, 4]},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
        "protect": {"clear": []},
        "aggregate": {"use": "std.mean"},
    }  # fmt: skip
    found = Recipe.from_plain(recipe, Catalog.discover())
    code, folder = execution.start(found, Settings(output=tmp_path, device="cpu", quiet=True))
    assert code == 0
    (row,) = read_rows(folder)
    assert list(row.figures) == ["IoU", "precision", "recall", "F-score"]
    assert all(0 <= value <= 1 for value in row.figures.values())
    assert row.clients.answered == 3


def test_figures_of_a_worked_example() -> None:
    predicted, answers = torch.tensor([[[1, 2, 0], [1, 0, 0]]]), torch.tensor([[[1, 1, 1], [0, 0, 1]]])
    counts = foreground.count(predicted, answers)
    assert counts == {"true_positives": 2, "false_positives": 1, "false_negatives": 2}
    more = {"true_positives": 2, "false_positives": 1, "false_negatives": 0}
    found = foreground.figures({name: counts[name] + more[name] for name in counts})
    assert found == pytest.approx({"IoU": 4 / 8, "precision": 4 / 6, "recall": 4 / 6, "F-score": 4 / 6})


def test_nothing_found_and_nothing_there_is_zero_not_an_error() -> None:
    assert foreground.figures({}) == {"IoU": 0.0, "precision": 0.0, "recall": 0.0, "F-score": 0.0}
    declared = {figure.name: figure.better for figure in UNet(UNet.Options()).judged_by}
    assert declared == dict.fromkeys(foreground.figures({}), "higher")

"""Models: exact sizes, weights that follow the seed alone, grey and colour images, clear refusals."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.errors import DataError
from fedplug_std import models
from pydantic import ValidationError


def build(component: Any, shape: tuple[int, ...], classes: int = 10, seed: int = 0, **options: Any) -> Any:
    return component(component.Options(**options)).build(shape, classes, seed, "cpu")


@pytest.mark.parametrize(
    ("component", "shape", "options", "size"),
    [
        (models.Mlp, (1, 28, 28), {}, 235_146),  # SelectiveShield's
        (models.Mlp, (1, 28, 28), {"hidden": [64]}, 50_890),  # SenseCrypt's, table 4
        (models.Mlp, (1, 8, 8), {"hidden": []}, 650),
        (models.Mlp, (13,), {"hidden": [4]}, 14 * 4 + 50),
        (models.Logistic, (1, 28, 28), {}, 7_850),
        (models.Logistic, (1, 1, 13), {}, 140),
        (models.Logistic, (13,), {}, 140),
        (models.Cnn, (3, 32, 32), {}, 896 + 64 + 18_496 + 128 + 1_048_832 + 2_570),
        (models.Cnn, (1, 28, 28), {"hidden": 8}, 320 + 64 + 18_496 + 128 + 25_096 + 90),
        (models.Cnn, (1, 28, 28), {"hidden": 8, "norm": "group"}, 320 + 64 + 18_496 + 128 + 25_096 + 90),
        (models.LeNet5, (1, 28, 28), {}, 61_706),
        (models.LeNet5, (3, 32, 32), {"activation": "sigmoid"}, 62_006),
        # The published DLG network: 3x12 and twice 12x12 kernels of 5x5, 768 features.
        (models.LeNet5, (3, 32, 32), {"variant": "dlg"}, 912 + 2 * 3_612 + 7_690),
        (models.LeNet5, (1, 8, 8), {"variant": "dlg", "activation": "sigmoid"}, 312 + 2 * 3_612 + 490),
        (models.LeNet5, (1, 9, 30), {"variant": "dlg"}, 312 + 2 * 3_612 + 12 * 3 * 8 * 10 + 10),
        (models.AlexNet, (3, 32, 32), {}, 23_272_266),
        (models.AlexNet, (1, 28, 28), {"channels": [2, 3, 4, 5, 6], "hidden": []}, 20 + 57 + 112 + 185 + 276 + 250),
        # Published sizes with 1,000 classes (torchvision's model cards).
        (models.ResNet18, (3, 96, 96), {"classes": 1000}, 11_689_512),
        pytest.param(models.ResNet50, (3, 96, 96), {"classes": 1000}, 25_557_032, marks=pytest.mark.slow),
        (models.DenseNet121, (3, 96, 96), {"classes": 1000}, 7_978_856),
        (models.EfficientNetB0, (3, 96, 96), {"classes": 1000}, 5_288_548),
        (models.MobileNetV2, (3, 96, 96), {"classes": 1000}, 3_504_872),
        # The CIFAR stem: 3x3x3x64 in place of 7x7x3x64.
        (models.ResNet18, (3, 32, 32), {}, 11_689_512 - (49 - 9) * 3 * 64 - 990 * 513),
        (models.ResNet18, (3, 32, 32), {"small_input": False}, 11_689_512 - 990 * 513),
        (models.ResNet18, (3, 72, 72), {"small_input": True}, 11_689_512 - (49 - 9) * 3 * 64 - 990 * 513),
        # One channel instead of three.
        (models.ResNet18, (1, 28, 28), {}, 11_689_512 - 49 * 3 * 64 + 9 * 64 - 990 * 513),
        (models.DenseNet121, (1, 32, 32), {}, 7_978_856 - 49 * 2 * 64 - 990 * 1025),
        (models.EfficientNetB0, (1, 28, 28), {}, 5_288_548 - 9 * 2 * 32 - 990 * 1281),
        (models.MobileNetV2, (1, 28, 28), {}, 3_504_872 - 9 * 2 * 32 - 990 * 1281),
    ],
)
def test_number_of_parameters(component: Any, shape: tuple[int, ...], options: dict[str, Any], size: int) -> None:
    classes = options.get("classes", 10)
    model = build(component, shape, **options)
    assert model.layout.size == size
    chosen = {name: value for name, value in options.items() if name != "classes"}
    assert component(component.Options(**chosen)).num_parameters(shape, classes) == size
    model.module.eval()
    with torch.no_grad():
        logits = model.module(torch.zeros(2, *shape))
    assert logits.shape == (2, classes)
    assert torch.isfinite(logits).all()


@pytest.mark.parametrize(("vocabulary", "positions", "options"), [(7, 5, {}), (3, 9, {"width": 12, "layers": 3})])
def test_number_of_parameters_of_a_language_model(vocabulary: int, positions: int, options: dict[str, Any]) -> None:
    told = models.Gpt(models.Gpt.Options(**options)).num_parameters((positions,), vocabulary)
    assert told == build(models.Gpt, (positions,), vocabulary, **options).layout.size


def test_logistic_regression_begins_with_all_classes_alike_and_descends_its_own_gradient() -> None:
    """dL/dW = (p - y) x^T (Bishop 2006, eq. 4.109), at W = 0, where p = 1/3 of each class."""
    model = build(models.Logistic, (1, 1, 2), classes=3, seed=5)
    assert not model.get_vector().any()
    example, label = torch.tensor([[[[2.0, -1.0]]]]), torch.tensor([2])
    loss = torch.nn.functional.cross_entropy(model.module(example), label)
    assert loss.item() == pytest.approx(np.log(3))
    loss.backward()
    weight, bias = (parameter.grad.numpy() for parameter in model.module.parameters())
    off = np.array([1 / 3, 1 / 3, -2 / 3])
    np.testing.assert_allclose(weight, np.outer(off, [2, -1]), rtol=1e-6)
    np.testing.assert_allclose(bias, off, rtol=1e-6)


def test_layer_names_of_the_mlp() -> None:
    assert build(models.Mlp, (1, 28, 28)).layout.layers == ("fc1", "fc2", "fc3")
    assert build(models.LeNet5, (1, 28, 28)).layout.layers == ("conv1", "conv2", "fc1", "fc2", "fc3")


def test_the_dlg_variant_has_large_weights_and_the_activation_it_is_given() -> None:
    model = build(models.LeNet5, (1, 28, 28), variant="dlg", activation="sigmoid")
    assert model.layout.layers == ("conv1", "conv2", "conv3", "fc1")
    assert {type(part).__name__ for part in model.module} == {"Conv2d", "Sigmoid", "Flatten", "Linear"}
    largest = {p.name: float(np.abs(model.get_vector()[p.slice]).max()) for p in model.layout.parameters}
    assert max(largest.values()) <= 0.5
    assert all(value > 0.3 for value in largest.values())  # torch's own bound for fc1.weight would be 0.04
    assert build(models.LeNet5, (1, 28, 28)).layout.layers == ("conv1", "conv2", "fc1", "fc2", "fc3")


@pytest.mark.parametrize(
    ("component", "shape"),
    [(models.Mlp, (1, 28, 28)), (models.Cnn, (3, 32, 32)), (models.MobileNetV2, (1, 32, 32))],
)
def test_weights_follow_the_seed_and_leave_the_global_generator(component: Any, shape: tuple[int, ...]) -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    first = build(component, shape, seed=1)
    assert torch.equal(torch.rand(2), expected)
    np.testing.assert_array_equal(first.get_vector(), build(component, shape, seed=1).get_vector())
    assert not np.array_equal(first.get_vector(), build(component, shape, seed=2).get_vector())
    assert first.module.training


def test_mlp_starts_from_the_defaults_of_torch() -> None:
    """Uniform in +-1/sqrt(fan in), for weights and biases."""
    model = build(models.Mlp, (1, 28, 28))
    bound = 1 / 28
    weights = model.module.fc1.weight.detach().numpy()
    assert np.abs(weights).max() <= bound
    assert weights.std() == pytest.approx(bound / np.sqrt(3), rel=0.01)


def test_with_group_norm_no_example_sees_another_and_nothing_but_parameters_travels() -> None:
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    alone_alike = {}
    for norm in ("batch", "group"):
        model = build(models.Cnn, (1, 8, 8), hidden=4, norm=norm)
        with torch.no_grad():
            alone_alike[norm] = torch.allclose(model.module(images)[:1], model.module(images[:1]), atol=1e-5)
        assert bool(model.get_buffers()) == (norm == "batch")
    assert alone_alike == {"batch": False, "group": True}


def test_building_and_its_check_leave_batch_norm_as_it_starts() -> None:
    buffers = build(models.Cnn, (3, 32, 32)).get_buffers()
    assert {name.rpartition(".")[2] for name in buffers} == {"running_mean", "running_var", "num_batches_tracked"}
    assert not buffers["norm1.running_mean"].any()
    assert int(buffers["norm2.num_batches_tracked"]) == 0


@pytest.mark.parametrize(
    ("component", "shape"),
    [
        (models.LeNet5, (1, 11, 11)),
        (models.Cnn, (1, 3, 3)),
        (models.Cnn, (12,)),
        (models.AlexNet, (3, 6, 6)),
        (models.DenseNet121, (3, 28, 28)),
        (models.ResNet18, (12,)),
    ],
)
def test_images_that_do_not_fit_are_refused(component: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="cannot take examples of shape"):
        build(component, shape)


@pytest.mark.parametrize(
    ("component", "options", "sides"),
    [
        (models.Mlp, {}, (1, 2)), (models.Cnn, {"hidden": 4}, (1, 3, 4, 5)),
        (models.LeNet5, {}, (1, 11, 12, 13, 31, 32)), (models.LeNet5, {"variant": "dlg"}, (1, 2)),
        (models.AlexNet, {"channels": [4] * 5, "hidden": [4]}, (1, 6, 7, 8)), (models.ResNet18, {}, (1,)),
        (models.ResNet50, {}, (1,)), (models.DenseNet121, {}, (28, 29)), (models.EfficientNetB0, {}, (1,)),
        (models.MobileNetV2, {}, (1,)),
    ],
)  # fmt: skip
def test_what_is_refused_beforehand_is_what_cannot_be_built(
    component: Any, options: dict[str, Any], sides: tuple[int, ...]
) -> None:
    for height, width in itertools.product(sides, sides):
        refused = component(component.Options(**options)).refuses((1, height, width), 10, "example")
        try:
            build(component, (1, height, width), **options)
        except DataError:
            assert refused, (height, width)
        else:
            assert refused is None, (height, width)


@pytest.mark.parametrize(
    ("component", "side"),
    [(models.LeNet5, 12), (models.Cnn, 4), (models.AlexNet, 7), (models.DenseNet121, 29), (models.EfficientNetB0, 8)],
)
def test_the_smallest_images_that_do(component: Any, side: int) -> None:
    assert build(component, (1, side, side)).layout.size > 0


@pytest.mark.parametrize(
    ("component", "options"),
    [
        (models.Mlp, {"hidden": [0]}),
        (models.Cnn, {"hidden": 0}),
        (models.LeNet5, {"activation": "gelu"}),
        (models.AlexNet, {"channels": [1, 2, 3]}),
        (models.AlexNet, {"dropout": 1.0}),
        (models.DenseNet121, {"width": 3}),
    ],
)
def test_options_out_of_range_are_refused(component: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        component.Options(**options)


def test_contract_and_component_modules_import_neither_torch_nor_torchvision_nor_sklearn() -> None:
    code = (
        "import sys, fedplug.api.data, fedplug.round.world, fedplug_std.models, fedplug_std.datasets, "
        "fedplug_std.partitions, fedplug_std.training, fedplug_std.scorers, fedplug_std.per_sample; "
        "print(sorted({'torch', 'torchvision', 'sklearn', 'PIL'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_torchvision_imports_beside_this_torch() -> None:
    """Also where its compiled operators do not fit, and a second import changes nothing."""
    from fedplug_std.torchvision_import import torchvision

    assert torchvision() is torchvision()
    assert torchvision().datasets.MNIST.__name__ == "MNIST"

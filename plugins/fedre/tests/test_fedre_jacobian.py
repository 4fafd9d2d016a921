"""PSI scores: closed forms and finite differences, and the parts of a model that do not matter."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from fedplug import Examples
from fedplug.api.data import About
from fedplug.api.errors import DataError, SetupError
from fedplug_fedre.jacobian import psi_scores
from fedplug_std.models import Cnn
from fedplug_std.torch_model import TorchModel
from jacobian_toys import PLAIN, doubled, gradients_at, images, linear, plain, segmenter, small_conv, whole
from numpy.typing import NDArray
from torch import nn


def by_differences(
    model: TorchModel, examples: Examples, step: float = 1e-4, where: Any = None
) -> NDArray[np.float64]:
    """Eq. 4 for every example, layer and pixel, (n, L, H, W), by central differences of the gradient.

    Pixels elsewhere than `where`, (H, W), give 0.
    """
    count, channels, height, width = examples.inputs.shape
    norms, module = np.zeros((count, len(model.layout.layers), height, width)), doubled(model)
    for index in range(count):
        inputs = torch.from_numpy(examples.inputs[index : index + 1]).double()
        answer = torch.from_numpy(examples.answers[index : index + 1])
        for channel, y, x in np.ndindex(channels, height, width):
            if where is not None and not where[y, x]:
                continue
            move = torch.zeros_like(inputs)
            move[0, channel, y, x] = step
            sides = [gradients_at(model, module, inputs + sign * move, answer) for sign in (1, -1)]
            for layer, (after, before) in enumerate(zip(*sides, strict=True)):
                norms[index, layer, y, x] += float(((after - before) / (2 * step)).square().sum())
    return np.sqrt(norms)


# -- what the equations say --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "projections"])
def test_hand_case(method: Any) -> None:
    """Weights 0, two classes: g_W = (p - y) x^T with p - y = (-1/2, 1/2), and p does not move with x. A pixel's norm is
    |p - y| = sqrt(1/2), each of two channels adding its square: sqrt(2 * 1/2) = 1."""
    model, examples = linear((2, 2, 2), 2, zero=True), images((3, 2, 2, 2), 2)
    found = psi_scores(model, examples, whole(examples), plain(2), method=method, projections=64)
    assert found.examples == 3
    if method == "exact":
        np.testing.assert_allclose(found.mean, [1.0], rtol=1e-6)
        assert found.standard_error.tolist() == [0.0]
        assert found.exact_passes == 3 * 8
    else:
        assert abs(found.mean[0] - 1.0) < 4 * found.standard_error[0] < 0.3
        assert found.projection_passes == 3 * 64


def softmax_regression(model: TorchModel, x: NDArray[np.float64], label: int) -> NDArray[np.float64]:
    """Norms of the columns of J, (D,): dg_W[k, i] / dx_j = A[k, j] x_i + (p - y)_k [i = j], dg_b[k] / dx_j = A[k, j],
    with A = dp/dx = (diag(p) - p p^T) W."""
    weight, bias = (tensor.detach().double().numpy() for tensor in model.parameters)
    logits = weight @ x + bias
    p = np.exp(logits - logits.max())
    p /= p.sum()
    moved = (np.diag(p) - np.outer(p, p)) @ weight
    residual = p - np.eye(len(p))[label]
    of_weight = moved[:, :, None] * x[None, None, :] + residual[:, None, None] * np.eye(len(x))[None]
    return np.sqrt(np.square(of_weight).sum((0, 2)) + np.square(moved).sum(0))


def test_a_row_of_a_table_is_an_image_one_high() -> None:
    model, examples = linear((1, 1, 12), 5), images((2, 1, 1, 12), 5)
    rows = dataclasses.replace(examples, inputs=examples.inputs.reshape(2, 12))
    for method in ("exact", "projections"):
        expected = psi_scores(model, examples, whole(examples), PLAIN, method=method)
        found = psi_scores(model, rows, np.ones((2, 1, 12), np.bool_), PLAIN, method=method)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6)
    with pytest.raises(DataError, match="int64"):
        psi_scores(model, dataclasses.replace(rows, inputs=np.ones((2, 12), np.int64)), whole(examples), PLAIN)


def test_a_linear_layer_in_closed_form() -> None:
    model, examples = linear((1, 3, 4), 5), images((2, 1, 3, 4), 5)
    expected = np.stack([
        softmax_regression(model, one.reshape(-1).astype(np.float64), int(label)).reshape(3, 4)
        for one, label in zip(examples.inputs, examples.labels, strict=True)
    ])  # fmt: skip
    found = psi_scores(model, examples, whole(examples), PLAIN, method="exact")
    np.testing.assert_allclose(found.mean, [expected.mean()], rtol=1e-5)
    regions = np.zeros((2, 3, 4), np.bool_)
    regions[0, 1:, 2:], regions[1, 0, 0] = True, True
    found = psi_scores(model, examples, regions, PLAIN, method="exact")
    np.testing.assert_allclose(found.mean, [(expected[0, 1:, 2:].mean() + expected[1, 0, 0]) / 2], rtol=1e-5)
    guessed = psi_scores(model, examples, regions, PLAIN, method="projections", projections=200)
    assert abs(guessed.mean[0] - found.mean[0]) < 4 * guessed.standard_error[0] < 0.2 * found.mean[0]


@pytest.mark.parametrize(
    ("model", "examples"),
    [
        (small_conv(), images((2, 2, 4, 4), 3)),
        (segmenter(), images((2, 1, 4, 5), 2, pixelwise=True)),
        (segmenter(3, 4), images((1, 3, 4, 4), 4, pixelwise=True)),
    ],
    ids=["channels", "segmentation", "segmentation with channels"],
)
def test_finite_differences(model: TorchModel, examples: Examples) -> None:
    """The exact score and the projections against the gradient itself, for each layer, even in part of the image."""
    data, norms = plain(examples.inputs.shape[1]), by_differences(model, examples)
    regions = whole(examples)
    for _ in range(2):
        expected = np.mean([one[:, region].mean(1) for one, region in zip(norms, regions, strict=True)], axis=0)
        found = psi_scores(model, examples, regions, data, method="exact")
        np.testing.assert_allclose(found.mean, expected, rtol=1e-4)
        guessed = psi_scores(model, examples, regions, data, method="projections", projections=100)
        assert np.all(np.abs(guessed.mean - expected) < 4 * guessed.standard_error)
        assert np.all(guessed.standard_error < 0.1 * expected)
        regions = np.zeros_like(regions)
        regions[:, 1:3, 0] = True


def test_standardised_inputs_are_what_the_score_is_about() -> None:
    """The same tensor from stored values twice as large scores the same."""
    model, examples = small_conv(1), images((2, 1, 4, 4), 3)
    scaled = Examples(2 * examples.inputs + 1, examples.labels)
    expected = psi_scores(model, examples, whole(examples), PLAIN).mean
    found = psi_scores(model, scaled, whole(examples), About(classes=(), mean=(1.0,), std=(2.0,))).mean
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_pixels_that_a_layer_does_not_depend_on_score_zero() -> None:
    """A layer after dead units has no gradient for any region. A model that does not see pixels has no score."""
    torch.manual_seed(1)
    dead = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    nn.init.constant_(dead[1].bias, -100.0)
    examples = images((2, 1, 2, 2), 2)
    for method in ("exact", "projections"):
        found = psi_scores(TorchModel(dead), examples, whole(examples), PLAIN, method=method)  # type: ignore[arg-type]
        assert found.mean.tolist() == [0.0, 0.0]
        assert found.standard_error.tolist() == [0.0, 0.0]
    stride = TorchModel(nn.Sequential(nn.Conv2d(1, 2, 1, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(8, 2)))
    examples = images((1, 1, 4, 4), 2)
    unseen, seen = np.zeros((1, 4, 4), np.bool_), np.zeros((1, 4, 4), np.bool_)
    unseen[0, 1::2], seen[0, ::2, ::2] = True, True
    for method in ("exact", "projections"):
        assert not psi_scores(stride, examples, unseen, PLAIN, method=method).mean.any()  # type: ignore[arg-type]
        assert (psi_scores(stride, examples, seen, PLAIN, method=method).mean > 0).all()  # type: ignore[arg-type]


def test_examples_without_a_region_are_left_out() -> None:
    model, examples = small_conv(1), images((3, 1, 4, 4), 3)
    regions = whole(examples)
    regions[1] = False
    alone = [psi_scores(model, examples.take(np.array([i])), regions[[i]], PLAIN).mean for i in (0, 2)]
    found = psi_scores(model, examples, regions, PLAIN)
    assert found.examples == 2
    np.testing.assert_allclose(found.mean, np.mean(alone, axis=0), rtol=1e-6)


# -- the model ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["exact", "projections"])
def test_examples_do_not_mix_and_the_model_stays_as_it_is(method: Any) -> None:
    """Batch norm, pooling and dropout, in training mode when called."""
    torch.manual_seed(2)
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(36, 3),
    )  # fmt: skip
    module[1].running_mean.add_(0.3)
    module[4].eval()
    model, examples = TorchModel(module), images((2, 1, 8, 8), 3)
    vector, buffers = model.get_vector(), model.get_buffers()
    modes = [part.training for part in module.modules()]
    both = psi_scores(model, examples, whole(examples), PLAIN, method=method, projections=300)
    alone = [
        psi_scores(model, examples.take(np.array([i])), whole(examples)[:1], PLAIN, method="exact").mean
        for i in range(2)
    ]
    error = np.maximum(4 * both.standard_error, 1e-5)
    assert np.all(np.abs(both.mean - np.mean(alone, axis=0)) < error)
    assert [part.training for part in module.modules()] == modes
    assert True in modes
    assert False in modes
    np.testing.assert_array_equal(model.get_vector(), vector)
    assert all(np.array_equal(model.get_buffers()[name], value) for name, value in buffers.items())
    assert all(tensor.grad is None for tensor in model.parameters)


def test_batch_norm_can_take_the_statistics_of_the_examples() -> None:
    """As if the model had seen them once, without momentum. The model's own statistics then do not matter."""
    torch.manual_seed(2)
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3))
    model, examples = TorchModel(module), images((4, 1, 4, 4), 3)
    found = psi_scores(model, examples, whole(examples), PLAIN, batch_norm="examples")
    own = psi_scores(model, examples, whole(examples), PLAIN).mean
    assert not np.allclose(found.mean, own, rtol=0.05)
    hidden = module[0](torch.from_numpy(examples.inputs)).detach().transpose(0, 1).reshape(3, -1)
    model.set_buffers({"1.running_mean": hidden.mean(1).numpy(), "1.running_var": hidden.var(1).numpy()})
    np.testing.assert_allclose(found.mean, psi_scores(model, examples, whole(examples), PLAIN).mean, rtol=1e-4)
    again = psi_scores(model, examples, whole(examples), PLAIN, batch_norm="examples")
    np.testing.assert_array_equal(found.mean, again.mean)
    assert model.get_buffers()["1.num_batches_tracked"] == 0
    assert module[1].momentum == 0.1


def test_a_larger_network_with_pooling_and_batch_norm() -> None:
    """Six layers: exact against differences, and twelve estimates against exact."""
    model = Cnn(Cnn.Options(hidden=16)).build((1, 8, 8), 10, 1, "cpu")
    examples = images((1, 1, 8, 8), 10)
    regions = np.zeros((1, 8, 8), np.bool_)
    regions[0, 2:6, 2:6] = True
    exact = psi_scores(model, examples, regions, PLAIN, method="exact").mean
    assert len(exact) == len(model.layout.layers) == 6
    differences = by_differences(model, examples, 1e-5, regions[0])[0][:, regions[0]]
    np.testing.assert_allclose(exact, differences.mean(1), rtol=1e-4)
    runs = [
        psi_scores(model, examples, regions, PLAIN, method="projections", projections=16, seed=seed)
        for seed in range(12)
    ]
    z = np.array([(one.mean - exact) / one.standard_error for one in runs])
    assert 0.4 < np.square(z).mean() < 2
    assert np.all(np.abs(z.mean(0)) < 4 / math.sqrt(12))


@pytest.mark.parametrize(
    "norm",
    [nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.LayerNorm([4, 6, 6])],
    ids=["group", "instance", "layer"],
)
def test_other_normalisations(norm: nn.Module) -> None:
    """Their derivatives of derivatives are where vectorised backward passes go wrong, in torch itself."""
    torch.manual_seed(4)
    model = TorchModel(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), norm, nn.Tanh(), nn.Conv2d(4, 2, 1)))
    examples = images((1, 1, 6, 6), 2, pixelwise=True)
    exact = psi_scores(model, examples, whole(examples), PLAIN, method="exact").mean
    np.testing.assert_allclose(exact, by_differences(model, examples, 1e-5).mean((0, 2, 3)), rtol=1e-4)
    found = psi_scores(model, examples, whole(examples), PLAIN, method="projections", projections=200)
    assert np.all(np.abs(found.mean - exact) < 4 * found.standard_error)


def test_another_point_than_the_model_s() -> None:
    model, examples = small_conv(1), images((2, 1, 4, 4), 3)
    here = psi_scores(model, examples, whole(examples), PLAIN)
    vector = model.get_vector() * np.float32(0.5)
    there = psi_scores(model, examples, whole(examples), PLAIN, vector=vector)
    assert not np.allclose(there.mean, here.mean, rtol=0.05)
    model.set_vector(vector)
    np.testing.assert_array_equal(psi_scores(model, examples, whole(examples), PLAIN).mean, there.mean)
    with pytest.raises(ValueError, match="must be float32"):
        psi_scores(model, examples, whole(examples), PLAIN, vector=vector[1:])


# -- errors ------------------------------------------------------------------------------------------------------------


def test_errors() -> None:
    model, examples = small_conv(1), images((2, 1, 4, 4), 3)
    with pytest.raises(DataError, match=r"regions of shape \(2, 4, 3\) must have shape \(2, 4, 4\)"):
        psi_scores(model, examples, whole(examples)[:, :, :3], PLAIN)
    with pytest.raises(DataError, match="none of the 2 examples has a privacy-sensitive pixel"):
        psi_scores(model, examples, ~whole(examples), PLAIN)
    with pytest.raises(ValueError, match="projections=1 must be >= 2"):
        psi_scores(model, examples, whole(examples), PLAIN, projections=1)
    with pytest.raises(SetupError, match="need a torch model, not Sequential"):
        psi_scores(model.module, examples, whole(examples), PLAIN)
    mixing = TorchModel(nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten(), nn.Linear(16, 3)))
    with pytest.raises(SetupError, match="batch norm 0 keeps no running statistics"):
        psi_scores(mixing, examples, whole(examples), PLAIN)
    single = TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)))
    one = examples.take(np.array([0]))
    with pytest.raises(DataError, match="1 examples give batch norm no statistics"):
        psi_scores(single, one, whole(one), PLAIN, batch_norm="examples")
    assert [part.training for part in single.module] == [True] * 4

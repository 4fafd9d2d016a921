"""Per-sample gradients: equal to a plain loop over single examples, in evaluation mode, in bounded memory."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from fedplug.api.data import ClientData, Examples
from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog
from fedplug_std import per_sample, torch_model
from fedplug_std.per_sample import mean_gradient, mean_squared_gradients, per_sample_gradients
from fedplug_std.torch_model import TorchModel, as_tensor, to_tensor
from torch import nn
from torch.nn.functional import cross_entropy


def examples(count: int, seed: int = 0, side: int = 8, channels: int = 1) -> Examples:
    rng = np.random.default_rng(seed)
    return Examples(rng.integers(0, 256, (count, channels, side, side), np.uint8), rng.integers(0, 3, count))


def data_of(part: Examples) -> ClientData:
    channels = part.inputs.shape[1]
    return ClientData(part, part, part, classes=("a", "b", "c"), mean=(0.4,) * channels, std=(0.3,) * channels)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 5, bias=False), nn.Linear(5, 3))


def in_place() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(inplace=True), nn.Linear(12, 3))


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5),
        nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Linear(6, 3),
    )  # fmt: skip


def frozen() -> nn.Module:
    module: Any = mlp()
    module[1].weight.requires_grad_(False)
    return module  # type: ignore[no-any-return]


class Reused(nn.Module):
    """The same layer twice, a layer on many vectors an example, and a weight that is used outside its layer."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.enter, self.inner, self.leave = nn.Linear(64, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.how == "rows":
            hidden = self.inner(inputs.reshape(len(inputs), 8, 8)).mean(1)
        else:
            hidden = torch.relu(self.inner(torch.relu(self.enter(inputs.flatten(1)))))
        if self.how == "twice":
            hidden = self.inner(hidden)
        if self.how == "outside":
            hidden = torch.tanh(nn.functional.linear(hidden, self.inner.weight))
        return self.leave(hidden)  # type: ignore[no-any-return]


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    module[4].weight = module[2].weight
    return module


class Lines(nn.Module):
    """A sequence of lines; torch.func has no rule for GRU, and a slow one for LSTM."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell: Any = nn.MultiheadAttention(8, 2, batch_first=True) if kind == "Attention" else None
        self.cell = self.cell or getattr(nn, kind)(8, 8, batch_first=True)
        self.leave = nn.Linear(8, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        lines = inputs.squeeze(1)
        given = (lines,) * 3 if isinstance(self.cell, nn.MultiheadAttention) else (lines,)
        return self.leave(self.cell(*given)[0].mean(1))  # type: ignore[no-any-return]


MODELS: dict[str, Any] = {
    "gru": lambda: Lines("GRU"), "lstm": lambda: Lines("LSTM"), "attention": lambda: Lines("Attention"),
    "mlp": mlp, "in_place": in_place, "convolutional": convolutional, "frozen": frozen, "tied": tied,
    "twice": lambda: Reused("twice"), "rows": lambda: Reused("rows"), "outside": lambda: Reused("outside"),
    "root": lambda: nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(64, 3))),
}  # fmt: skip


def built(name: str) -> TorchModel:
    torch.manual_seed(5)
    model = TorchModel(MODELS[name]())
    for part in model.module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean = torch.linspace(-0.3, 0.2, part.num_features)
            part.running_var = torch.linspace(0.5, 2.0, part.num_features)
    return model


def loop(model: TorchModel, part: Examples, data: ClientData) -> np.ndarray:
    """One backward pass an example: float64 (n, P)."""
    model.module.eval()
    rows = []
    for index in range(len(part)):
        one = part.take(np.array([index]))
        loss = cross_entropy(model.module(to_tensor(one.inputs, data.mean, data.std)), as_tensor(one.labels))
        gradients = torch.autograd.grad(loss, model.parameters, materialize_grads=True)
        rows.append(torch.cat([gradient.reshape(-1) for gradient in gradients]).double().numpy())
    model.module.train()
    return np.stack(rows)


@pytest.mark.parametrize("name", MODELS)
def test_equals_a_loop_over_single_examples(name: str) -> None:
    model, part = built(name), examples(23)
    data = data_of(part)
    expected = loop(model, part, data)
    close = {"rtol": 2e-4, "atol": 1e-6 * np.abs(expected).max()}
    rows = torch.cat(list(per_sample_gradients(model, part, data))).numpy()
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, expected, **close)
    squares = mean_squared_gradients(model, part, data)
    assert squares.dtype == np.float32
    np.testing.assert_allclose(squares, np.square(expected).mean(0), rtol=2e-4, atol=1e-6 * np.square(expected).max())
    np.testing.assert_allclose(mean_gradient(model, part, data), expected.mean(0), **close)


@pytest.mark.parametrize(
    ("name", "fast"),
    [("mlp", 5), ("in_place", 4), ("convolutional", 4), ("frozen", 3), ("tied", 4), ("twice", 4), ("rows", 2),
     ("outside", 4), ("root", 2)],
)  # fmt: skip
def test_the_fast_path_takes_layers_that_it_is_exact_for_and_no_other(name: str, fast: int) -> None:
    """How many parameter tensors it takes: not those that are shared, used twice, elsewhere, or on many vectors."""
    model, part = built(name), examples(23)
    found = per_sample._squares_of_linear_layers(model, part, data_of(part), per_sample.parameters_at(model, None))
    assert len(found) == fast


@pytest.mark.parametrize("name", ["mlp", "convolutional"])
def test_chunks_change_nothing_and_hold_as_many_examples_as_asked(name: str) -> None:
    model, part = built(name), examples(23)
    data = data_of(part)
    assert [len(chunk) for chunk in per_sample_gradients(model, part, data, chunk=10)] == [10, 10, 3]
    whole = mean_squared_gradients(model, part, data)
    np.testing.assert_allclose(mean_squared_gradients(model, part, data, chunk=1), whole, rtol=1e-5, atol=1e-12)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk holds as many gradients as the budget allows, and one at the least."""
    model, part = built("convolutional"), examples(23)
    size = model.layout.size
    for budget, expected in ((4 * size * 7 + 3, [7, 7, 7, 2]), (5, [1] * 23)):
        monkeypatch.setattr(per_sample, "_GRADIENT_BYTES", budget)
        assert [len(chunk) for chunk in per_sample_gradients(model, part, data_of(part))] == expected
    monkeypatch.setattr(torch_model, "_EVALUATION_VALUES", 3 * 64)
    assert [len(labels) for _, labels in per_sample._batches(model, part, data_of(part))] == [3] * 7 + [2]


@pytest.mark.parametrize("name", ["mlp", "convolutional"])
def test_the_order_of_examples_does_not_matter_and_no_value_is_negative(name: str) -> None:
    """Spec 10."""
    model, part = built(name), examples(40)
    data, order = data_of(part), np.random.default_rng(1).permutation(40)
    squares = mean_squared_gradients(model, part, data)
    assert (squares >= 0).all()
    assert (squares > 0).mean() > 0.5
    shuffled = mean_squared_gradients(model, part.take(order), data)
    np.testing.assert_allclose(shuffled, squares, rtol=1e-4, atol=1e-9 * float(squares.max()))


def test_another_point_is_evaluated_without_touching_the_model() -> None:
    """Parameters, buffers, modes of all parts and hooks are as they were; the values are those of the other point."""
    model, other, part = built("convolutional"), built("convolutional"), examples(23)
    data, module = data_of(part), model.module
    point = model.get_vector() + np.random.default_rng(2).normal(0, 0.1, model.layout.size).astype(np.float32)
    point.setflags(write=False)
    other.set_vector(point)
    modes = [number % 2 == 0 for number, _ in enumerate(module.modules())]
    for part_of, mode in zip(module.modules(), modes, strict=True):
        part_of.training = mode
    before, buffers = model.get_vector(), model.get_buffers()
    for function in (mean_squared_gradients, mean_gradient):
        np.testing.assert_array_equal(function(model, part, data, vector=point), function(other, part, data))
    rows = next(per_sample_gradients(model, part, data, vector=point))
    assert torch.equal(rows, next(per_sample_gradients(other, part, data)))
    np.testing.assert_array_equal(model.get_vector(), before)
    assert all(np.array_equal(buffers[name], values) for name, values in model.get_buffers().items())
    assert [part_of.training for part_of in module.modules()] == modes
    assert not any(part_of._forward_hooks for part_of in module.modules())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_bad_input_gets_a_clear_error() -> None:
    model, part = built("mlp"), examples(4)
    data = data_of(part)
    none = part.take(slice(0, 0))
    with pytest.raises(SetupError, match="need a torch model, not object"):
        mean_squared_gradients(object(), part, data)
    wrong: tuple[Any, ...] = (np.zeros(3, np.float32), np.zeros(model.layout.size))
    for vector in wrong:
        with pytest.raises(ValueError, match=r"must be float32\["):
            next(per_sample_gradients(model, part, data, vector=vector))
    for function in (mean_squared_gradients, mean_gradient):
        with pytest.raises(ValueError, match="at least one example"):
            function(model, none, data)
    assert list(per_sample_gradients(model, none, data)) == []
    mixing = TorchModel(nn.Sequential(nn.BatchNorm2d(1, track_running_stats=False), nn.Flatten(), nn.Linear(64, 3)))
    with pytest.raises(SetupError, match="batch norm 0 keeps no running statistics, so it mixes"):
        mean_gradient(mixing, part, data)


def test_a_diverged_model_gives_nan_and_no_error() -> None:
    model, part = built("convolutional"), examples(6)
    vector = np.full(model.layout.size, np.nan, np.float32)
    assert np.isnan(mean_squared_gradients(model, part, data_of(part), vector=vector)).any()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("std.cnn", {}),
        ("std.cnn", {"norm": "group"}),
        ("std.lenet5", {}),
        pytest.param("std.resnet18", {}, marks=pytest.mark.slow),
        ("std.alexnet", {"channels": [8] * 5, "hidden": [9]}),
    ],
)
def test_the_models_of_the_papers_can_be_differentiated(name: str, options: dict[str, Any]) -> None:
    found: Any = Catalog.discover().named(name)[0].load()
    model = found(found.Options(**options)).build((3, 16, 16), 3, 1, "cpu")
    part = examples(2, side=16, channels=3)
    data = data_of(part)
    expected = loop(model, part, data)
    squares = mean_squared_gradients(model, part, data)
    np.testing.assert_allclose(squares, np.square(expected).mean(0), rtol=5e-3, atol=1e-5 * np.square(expected).max())


def test_hooks_are_removed_after_an_error() -> None:
    model, part = built("mlp"), examples(4)
    wrong = Examples(part.inputs[..., :4], part.labels)
    with pytest.raises(RuntimeError):
        mean_squared_gradients(model, wrong, data_of(part))
    assert not any(itertools.chain.from_iterable(layer._forward_hooks for layer in model.module.modules()))
    assert model.module.training

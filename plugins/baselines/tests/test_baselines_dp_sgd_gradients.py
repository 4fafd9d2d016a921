"""Gradients of single examples for DP-SGD: each is exactly one example's, whatever layers a model has."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from fedplug.api.errors import SetupError
from fedplug_baselines.dp_sgd_gradients import alone, chosen_way, gradients_apart, hooked, vectorised
from fedplug_std.torch_model import TorchModel
from torch import nn
from torch.nn.functional import cross_entropy, linear

SHAPE, CLASSES = (1, 8, 8), 3


class Recurrent(nn.Module):
    """An image as a sequence of its lines, with the batch first or second."""

    def __init__(self, kind: str = "GRU", first: bool = True, **options: Any) -> None:
        super().__init__()
        self.first = first
        self.cell = getattr(nn, kind)(8, 5, batch_first=first, **options)
        self.out = nn.Linear(10 if options.get("bidirectional") else 5, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        lines = inputs.squeeze(1) if self.first else inputs.squeeze(1).transpose(0, 1)
        seen, _ = self.cell(lines)
        return self.out(seen[:, -1] if self.first else seen[-1])  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        lines = inputs.squeeze(1)
        return self.out(self.mix(lines, lines, lines, need_weights=False)[0].mean(1))  # type: ignore[no-any-return]


class Words(nn.Module):
    """Pixels as tokens."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table, self.out = table, nn.Linear(4, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = self.table(((inputs + 2) * 5).clamp(0, 31).long().flatten(1))
        return self.out(found if found.ndim == 2 else found.sum(1))  # type: ignore[no-any-return]


class Uses(nn.Module):
    """A layer used twice, a weight used outside its layer, positions folded into the batch, or an unused layer."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.inner, self.unused = how, nn.Linear(8, 8), nn.Linear(2, 2)
        self.out, self.gain = nn.Linear(64, CLASSES), nn.Parameter(torch.tensor(1.5))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.how == "folded":
            return self.out(torch.tanh(self.inner(inputs.reshape(-1, 8))).reshape(len(inputs), -1))  # type: ignore[no-any-return]
        hidden = torch.tanh(self.inner(inputs.squeeze(1)))
        hidden = self.inner(hidden) if self.how == "twice" else linear(hidden, self.inner.weight.T) * self.gain
        return self.out(hidden.flatten(1))  # type: ignore[no-any-return]


class Branching(nn.Module):
    """What it computes follows from the example."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(64, CLASSES), nn.Linear(64, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        rows = [self.one(row) if row.sum() > 0 else self.other(row) for row in inputs.flatten(1)]
        return torch.stack(rows)


def images(*layers: nn.Module, channels: int = 4, side: int = 6) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.Flatten(), nn.Linear(channels * side * side, CLASSES))


def dense(wrap: Any) -> nn.Module:
    return nn.Sequential(nn.Flatten(), wrap(nn.Linear(64, CLASSES)))


def half_frozen() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.Linear(5, CLASSES))
    module[1].weight.requires_grad_(False)
    return module


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, CLASSES))
    module[3].weight = module[1].weight
    return module


ZOO: dict[str, tuple[Any, Any]] = {
    "plain": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.ReLU(), nn.Linear(5, CLASSES)), hooked),
    "grouped and dilated": (lambda: images(nn.Conv2d(4, 8, 3, groups=4, dilation=2), channels=8, side=2), hooked),
    "transposed": (lambda: images(nn.ConvTranspose2d(4, 4, 3), side=8), hooked),
    "half frozen": (half_frozen, hooked),
    "tied": (tied, hooked),
    "log-probabilities": (lambda: nn.Sequential(dense(lambda layer: layer), nn.LogSoftmax(1)), hooked),
    "circular": (lambda: images(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")), vectorised),
    "group norm, written over": (lambda: images(nn.GroupNorm(2, 4), nn.ReLU(inplace=True)), vectorised),
    "layer norm": (lambda: images(nn.LayerNorm([4, 6, 6])), hooked),
    "instance norm": (lambda: images(nn.InstanceNorm2d(4, affine=True)), hooked),
    "attention": (Attention, vectorised),
    "transformer": (
        lambda: nn.Sequential(
            nn.Flatten(1, 2), nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), nn.Flatten(),
            nn.Linear(64, CLASSES),
        ), vectorised,
    ),
    "lstm": (lambda: Recurrent("LSTM"), vectorised),
    "lstm, batch second": (lambda: Recurrent("LSTM", first=False), vectorised),
    "gru": (Recurrent, alone),
    "rnn, two-way": (lambda: Recurrent("RNN", num_layers=2, bidirectional=True), alone),
    "embedding, padded": (lambda: Words(nn.Embedding(32, 4, padding_idx=3)), vectorised),
    "embedding, sparse": (lambda: Words(nn.Embedding(32, 4, padding_idx=3, sparse=True)), alone),
    "bag": (lambda: Words(nn.EmbeddingBag(32, 4)), vectorised),
    "weight norm": (lambda: dense(nn.utils.parametrizations.weight_norm), hooked),
    "weight norm, old": (lambda: dense(nn.utils.weight_norm), vectorised),
    "spectral norm": (lambda: dense(nn.utils.parametrizations.spectral_norm), vectorised),
    "twice": (lambda: Uses("twice"), vectorised),
    "outside": (lambda: Uses("outside"), vectorised),
    "folded": (lambda: Uses("folded"), vectorised),
    "branching": (Branching, alone),
}  # fmt: skip
"""Modules without coins, and the fastest way that is right for each."""


def losses(outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs, answers, reduction="none")


def built(make: Any) -> TorchModel:
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of the old weight norm
        return TorchModel(make())


def batch(count: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, *SHAPE, generator=generator), torch.arange(count) % CLASSES


def by_loop(module: nn.Module, inputs: torch.Tensor, answers: torch.Tensor) -> list[torch.Tensor]:
    """Each example in a fresh copy of the module, alone."""
    rows = []
    for k in range(len(inputs)):
        copied = copy.deepcopy(module).train()
        moved = [parameter for parameter in copied.parameters() if parameter.requires_grad]
        loss = cross_entropy(copied(inputs[k : k + 1]), answers[k : k + 1])
        found = torch.autograd.grad(loss, moved, materialize_grads=True)
        rows.append(torch.cat([each.to_dense().reshape(-1) for each in found]))
    return rows


@pytest.mark.parametrize("name", ZOO)
def test_each_gradient_is_that_of_its_example_alone(name: str) -> None:
    make, way = ZOO[name]
    model, (inputs, answers) = built(make), batch()
    with torch.no_grad():
        model.module(inputs)  # leaves a trace of the old weight norm that can be copied
    expected = by_loop(model.module, inputs, answers)
    assert chosen_way(model, SHAPE)[0] is way
    with gradients_apart(model, losses, SHAPE) as apart, apart.step() as of:
        found, each = of(inputs, answers)
        rows = torch.cat(found, 1)
    for row, wanted in zip(rows, expected, strict=True):
        assert (row - wanted).norm() <= 1e-5 * wanted.norm()
    assert torch.cat(expected).norm() > 0.1
    assert each.shape == (len(inputs),)
    assert not any(part._forward_hooks or part._backward_hooks for part in model.module.modules())


@pytest.mark.parametrize("way", [hooked, vectorised, alone])
def test_ways_agree(way: Any) -> None:
    model, (inputs, answers) = built(ZOO["transposed"][0]), batch()
    with way(model.module.train(), losses) as of:
        found, each = of(inputs, answers)
    assert torch.allclose(torch.cat(found, 1), torch.stack(by_loop(model.module, inputs, answers)), atol=1e-5)
    assert torch.allclose(each, losses(model.module(inputs), answers), atol=1e-6)


def test_where_opacus_is_wrong_it_says_nothing() -> None:
    """Positions that lie in the batch: sums over all examples' positions are right, and no example's own is."""
    model, (inputs, answers) = built(ZOO["embedding, padded"][0]), batch()
    with hooked(model.module.train(), losses) as of:
        rows = torch.cat(of(inputs, answers)[0], 1)
    assert not torch.allclose(rows, torch.stack(by_loop(model.module, inputs, answers)), atol=1e-3)
    assert "table.weight" in chosen_way(model, SHAPE)[1]


@pytest.mark.parametrize("make", [
    lambda: images(nn.Dropout(0.5)), lambda: Recurrent("LSTM", num_layers=2, dropout=0.5),
    lambda: Recurrent("GRU", num_layers=2, dropout=0.5),
])  # fmt: skip
def test_coins_are_drawn_for_each_example(make: Any) -> None:
    """Equal examples get different coins, and so different gradients; without dropout they would be equal."""
    model = built(make)
    inputs = batch(1)[0].expand(4, *SHAPE).clone()
    with gradients_apart(model, losses, SHAPE) as apart, apart.step() as of:
        rows = torch.cat(of(inputs, torch.zeros(4, dtype=torch.int64))[0], 1)
    assert (rows - rows[0]).norm(dim=1)[1:].min() > 1e-3 * rows.norm()


@pytest.mark.parametrize("counts", [[], [1], [3, 2]])
def test_buffers_move_once_in_a_step_and_do_not_tell_how_many_examples_it_had(counts: list[int]) -> None:
    model, (inputs, answers) = built(ZOO["twice"][0]), batch()
    with gradients_apart(model, losses, SHAPE) as apart:
        before = int(model.module.calls)
        for _ in range(2):
            with apart.step() as of:
                for count in counts:
                    of(inputs[:count], answers[:count])
        assert int(model.module.calls) == before + 2


class Statistics(nn.Module):
    """Keeps a sum of its inputs that no answer follows from."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Linear(64, CLASSES)
        self.register_buffer("seen", torch.zeros(64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.seen += inputs.flatten(1).detach().sum(0)
        return self.whole(inputs.flatten(1))  # type: ignore[no-any-return]


class Shrinks(nn.Module):
    """Divides by the size of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Linear(64, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.whole(inputs.flatten(1)) / len(inputs)  # type: ignore[no-any-return]


class Trims(nn.Module):
    """Cuts a batch to its longest example; shorter ones are filled up with zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Linear(8, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        lines = inputs.squeeze(1)
        longest = int((lines != 0).any(2).sum(1).max())
        return self.whole(lines[:, :longest].mean(1))  # type: ignore[no-any-return]


class Remembers(nn.Module):
    """Divides by a mean of the gradients that it has seen, which is in no buffer and in no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.whole, self.mean = nn.Linear(64, CLASSES), 1.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.whole(inputs.flatten(1))
        if outputs.requires_grad:
            outputs.register_hook(self._divided)
        return outputs

    def _divided(self, gradient: torch.Tensor) -> torch.Tensor:
        self.mean = (self.mean + float(gradient.norm())) / 2
        return gradient / self.mean


@pytest.mark.parametrize(("make", "said"), [
    (Trims, "the answer of Trims to one changes with others in its batch"),
    (Remembers, "Remembers gives none that follows from one example alone"),
    (lambda: images(nn.BatchNorm2d(4)), r"BatchNorm2d \(1\) mixes the examples of a batch; use torch.nn.GroupNorm"),
    (lambda: images(nn.BatchNorm2d(4, affine=False)), r"BatchNorm2d \(1\) mixes"),
    (lambda: images(nn.BatchNorm2d(4, track_running_stats=False)), r"BatchNorm2d \(1\) mixes"),
    (lambda: images(nn.InstanceNorm2d(4, track_running_stats=True)), r"InstanceNorm2d \(1\) keeps .*=False"),
    (Statistics, r"keeps something of its examples in the buffer seen \(Statistics\)"),
    (Shrinks, "the answer of Shrinks to one changes with others in its batch"),
    (lambda: nn.Sequential(nn.Flatten(1, 2), nn.TransformerEncoderLayer(8, 2, 8), nn.Flatten(), nn.Linear(64, 3)),
     "the answer of Sequential to one changes with others in its batch"),
    (lambda: nn.Sequential(nn.Flatten(), nn.Linear(60, 3)), "Sequential fails at batches of noise in training mode"),
])  # fmt: skip
def test_what_lets_examples_meet_is_refused_by_name(make: Any, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        chosen_way(built(make), SHAPE)


def test_padding_of_a_large_vocabulary_is_tried() -> None:
    """Noise holds a certain one of 5,000 tokens hardly ever, and Opacus gives a gradient to the one for padding."""
    model = built(lambda: nn.Sequential(nn.Embedding(5000, 4, padding_idx=7), nn.Flatten(), nn.Linear(64, CLASSES)))
    way, why = chosen_way(model, (16,), 5000)
    assert way is not hooked
    assert "0.weight" in why

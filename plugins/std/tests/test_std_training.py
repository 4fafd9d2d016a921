"""Training: equal to torch's own optimiser step by step, repeatable, and honest about divergence."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from fedplug.api.blocks import Layout
from fedplug.api.data import ClientData, Examples
from fedplug.api.errors import SetupError
from fedplug.api.facts import Facts
from fedplug.api.parties import Client
from fedplug_std import _networks, models, training
from fedplug_std._perceptron import Perceptron
from fedplug_std.datasets import Digits
from fedplug_std.torch_model import TorchModel
from fedplug_std.training import Sgd, batch_slices
from forked import ran
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import nn


def data_of(count: int, seed: int = 0) -> ClientData:
    rng = np.random.default_rng(seed)
    part = Examples(rng.integers(0, 256, (count, 1, 8, 8), np.uint8), rng.integers(0, 10, count))
    return ClientData(part, part, part, classes=tuple("0123456789"), mean=(0.3,), std=(0.4,))


def client_with(model: Any, data: ClientData, round: int = 0, seed: int = 1) -> Client:
    party = Client(client_id=4, data=data, model=model)
    party.facts = Facts(
        round=round, rounds=9, layout=getattr(model, "layout", Layout(())), zones=("clear",), num_clients=5,
        min_clients=1, seed=seed, digest="d",
    )  # fmt: skip
    return party


def sgd(**options: Any) -> Sgd:
    made = Sgd(Sgd.Options(**options))
    made.name = "train"
    return made


def mlp(seed: int = 0) -> TorchModel:
    return models.Mlp(models.Mlp.Options(hidden=(16,))).build((1, 8, 8), 10, seed, "cpu")


def train(trainer: Sgd, party: Client) -> dict[str, float]:
    return trainer.train(party, party.facts)


@pytest.mark.parametrize(
    "extra", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.01}]
)
def test_steps_are_those_of_torch_optim_sgd(extra: dict[str, Any]) -> None:
    data, model, reference = data_of(50), mlp(), mlp()
    party = client_with(model, data, round=2)
    trainer = sgd(epochs=3, batch_size=16, lr=0.1, lr_decay=0.5, **extra)
    result = train(trainer, party)

    rng = party.rng(trainer)
    rng.integers(2**63)
    optimiser = torch.optim.SGD(reference.module.parameters(), lr=0.1 * 0.5**2, **extra)
    for _ in range(3):
        losses = []
        order = rng.permutation(50)
        for start in range(0, 50, 16):
            batch = data.train.take(order[start : start + 16])
            inputs = torch.tensor((batch.inputs / 255 - 0.3) / 0.4, dtype=torch.float32)
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(reference.module(inputs), torch.tensor(batch.labels))
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            losses.append(loss.item() * len(batch))
    np.testing.assert_allclose(model.get_vector(), reference.get_vector(), atol=2e-6)
    assert result == {"loss": pytest.approx(sum(losses) / 50, rel=1e-5)}


def test_training_repeats_bit_for_bit_and_ignores_global_generators() -> None:
    """With dropout; a second run starts from other global states, and from inputs that are cached."""
    module = models.AlexNet(models.AlexNet.Options(channels=(2, 2, 2, 2, 2), hidden=(8,), dropout=0.5))

    def run(seed: int, party: Client | None = None) -> tuple[Client, np.ndarray[Any, Any]]:
        model = module.build((1, 8, 8), 10, 0, "cpu")
        if party is None:
            party = client_with(model, data_of(40), seed=seed)
        party.model = model
        train(sgd(batch_size=8, lr=0.1), party)
        return party, model.get_vector()

    party, first = run(1)
    torch.manual_seed(99)
    np.random.seed(3)
    state = torch.get_rng_state()
    _, again = run(1, party)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first, again)
    _, fresh = run(1)
    np.testing.assert_array_equal(first, fresh)
    assert not np.array_equal(first, run(2)[1])


def test_a_client_too_large_for_the_cache_trains_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = (client_with(mlp(), data_of(70)) for _ in range(2))
    expected = train(sgd(epochs=2), small)
    monkeypatch.setattr(training, "_CACHE_BYTES", 1000)
    assert train(sgd(epochs=2), large) == expected
    np.testing.assert_array_equal(small.model.get_vector(), large.model.get_vector())
    assert "train" in small.cache
    assert not large.cache


@pytest.mark.parametrize("at_once", [0, 1 << 18])
def test_pixels_that_are_standardised_in_passing_train_the_same(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = models.AlexNet(models.AlexNet.Options(channels=(2, 2, 2, 2, 2), hidden=(8,), dropout=0.5))
    data = data_of(70)
    stored, held = (client_with(module.build((1, 8, 8), 10, 0, "cpu"), data) for _ in range(2))
    monkeypatch.setattr(training, "_EPOCH_BYTES", at_once)
    found = train(sgd(epochs=2), stored)
    assert not stored.cache, "a quarter of the memory"
    monkeypatch.setattr(Sgd, "_keeps", lambda *_: True)
    assert train(sgd(epochs=2), held) == found
    np.testing.assert_array_equal(stored.model.get_vector(), held.model.get_vector())
    assert "train" in held.cache
    numbers = Examples(data.train.inputs.astype(np.float32) / np.float32(255), data.train.labels)
    other = client_with(module.build((1, 8, 8), 10, 0, "cpu"), dataclasses.replace(data, train=numbers))
    monkeypatch.undo()
    train(sgd(epochs=2), other)
    assert "train" in other.cache, "it takes no less as it is"


def test_learning_is_real() -> None:
    """Digits, linear model: 0.9 is far above what 5 epochs of anything broken reach."""
    component: Any = Digits
    dataset = component(component.Options()).load(None)
    data = ClientData(dataset.train, dataset.test, dataset.test, **dataset.about)
    model = models.Mlp(models.Mlp.Options(hidden=())).build(dataset.shape, 10, 0, "cpu")
    party = client_with(model, data)
    before = model.evaluate(dataset.test, data)
    result = train(sgd(epochs=5, lr=0.1), party)
    after = model.evaluate(dataset.test, data)
    assert before.correct / before.count < 0.3
    assert after.correct / after.count > 0.9
    assert result["loss"] < 0.3


def test_a_diverging_run_reports_nan_and_goes_on() -> None:
    party = client_with(mlp(), data_of(64))
    result = train(sgd(epochs=5, lr=1e20), party)
    assert not np.isfinite(result["loss"])
    assert not np.isfinite(party.model.get_vector()).all()


@given(count=st.integers(1, 300), size=st.integers(1, 64), merge=st.booleans())
def test_batches_tile_the_epoch(count: int, size: int, merge: bool) -> None:
    slices = batch_slices(count, size, merge)
    np.testing.assert_array_equal(np.concatenate([np.arange(count)[part] for part in slices]), np.arange(count))
    sizes = [part.stop - part.start for part in slices]
    assert all(n == size for n in sizes[:-1])
    if merge and count > 1 and size > 1:
        assert sizes[-1] > 1
        assert sizes[-1] <= size + 1
    else:
        assert sizes[-1] <= size


class Recorder(nn.Module):
    """Batch norm without spatial extent, which needs two examples in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.out = nn.Linear(64, 10)
        self.sizes: list[int] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.sizes.append(len(inputs))
        return self.out(self.norm(inputs.flatten(1)))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("count", "size", "sizes", "tracked"),
    [(33, 16, [16, 17], 2), (34, 16, [16, 16, 2], 3), (1, 16, [1], 0), (3, 1, [1, 1, 1], 0)],
)
def test_batch_norm_never_sees_one_example_in_training_mode(
    count: int, size: int, sizes: list[int], tracked: int
) -> None:
    module: Any = Recorder()
    party = client_with(TorchModel(module), data_of(count))
    before = party.model.get_vector()
    result = train(sgd(batch_size=size), party)
    assert np.isfinite(result["loss"])
    assert not np.array_equal(party.model.get_vector(), before)
    assert module.sizes == sizes
    assert int(module.norm.num_batches_tracked) == tracked
    train(sgd(batch_size=2), client_with(party.model, data_of(4)))
    assert int(module.norm.num_batches_tracked) == tracked + 2, "training mode comes back"


def test_frozen_parameters_stay() -> None:
    module: Any = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Linear(16, 10))
    for tensor in module[1].parameters():
        tensor.requires_grad_(False)
    frozen = module[1].weight.detach().clone()
    party = client_with(TorchModel(module), data_of(20))
    before = party.model.get_vector()
    train(sgd(), party)
    assert torch.equal(module[1].weight, frozen)
    assert (party.model.get_vector() != before).any()


def test_another_kind_of_model_is_refused() -> None:
    with pytest.raises(SetupError, match="trains torch models, not int"):
        train(sgd(), client_with(3, data_of(2)))


@pytest.mark.parametrize(
    "bad",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"lr": 0},
        {"lr": float("inf")},
        {"momentum": 1},
        {"weight_decay": -1},
        {"lr_decay": 0},
        {"lr_decay": 1.1},
        {"learning_rate": 0.1},
    ],
)
def test_options_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Sgd.Options(**bad)


def test_training_does_not_load_the_compiler_of_torch() -> None:
    """It costs each worker process about a second; building torch.optim.SGD would load it."""
    code = (
        "import sys, numpy as np\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "from types import SimpleNamespace as N\n"
        "from fedplug.api.data import ClientData, Examples\n"
        "from fedplug_std.models import Mlp\n"
        "from fedplug_std.training import Sgd\n"
        "part = Examples(np.zeros((4, 1, 2, 2), np.uint8), np.zeros(4, np.int64))\n"
        "data = ClientData(part, part, part, classes=('a', 'b'), mean=(0.5,), std=(0.5,))\n"
        "model = Mlp(Mlp.Options()).build((1, 2, 2), 2, 0, 'cpu')\n"
        "client = N(data=data, model=model, cache={}, num_examples=4, facts=N(num_clients=1))\n"
        "client.rng = lambda *_: np.random.default_rng(0)\n"
        "sgd = Sgd(Sgd.Options()); sgd.name = 'sgd'\n"
        "sgd.train(client, N(round=0)); model.evaluate(part, data)\n"
        "print('torch._dynamo' in sys.modules)\n"
    )
    done = ran(code)
    assert (done.stdout, done.stderr) == ("False\n", "")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_training_on_cuda_agrees_with_the_cpu() -> None:
    on_cpu = client_with(mlp(), data_of(64))
    build = models.Mlp(models.Mlp.Options(hidden=(16,))).build
    on_cuda = client_with(build((1, 8, 8), 10, 0, "cuda"), data_of(64))
    assert train(sgd(lr=0.1), on_cuda)["loss"] == pytest.approx(train(sgd(lr=0.1), on_cpu)["loss"], rel=1e-3)
    np.testing.assert_allclose(on_cuda.model.get_vector(), on_cpu.model.get_vector(), atol=1e-3)


def test_the_step_written_out_is_that_of_autograd() -> None:
    """Rumelhart et al. 1986: the same gradients, whatever the depth; a last batch may be smaller."""
    rng = np.random.default_rng(0)
    for hidden in ((), (7,), (9, 5)):
        module = _networks.mlp((1, 4, 4), 3, hidden)
        parameters = list(module.parameters())
        found = Perceptron.of(module)
        assert found is not None
        for count in (6, 1):
            inputs = torch.from_numpy(rng.normal(size=(count, 1, 4, 4)).astype(np.float32))
            labels = torch.from_numpy(rng.integers(0, 3, count))
            loss = torch.nn.functional.cross_entropy(module(inputs), labels)
            gradients = torch.autograd.grad(loss, parameters)
            wanted = [p.detach() - 0.1 * g for p, g in zip(parameters, gradients, strict=True)]
            with torch.no_grad():
                mean = float(-found.steps([(inputs, labels)], 0.1).mean())
            assert mean == pytest.approx(float(loss.detach()), rel=1e-5)
            for ours, theirs in zip(parameters, wanted, strict=True):
                torch.testing.assert_close(ours.detach(), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hidden", [(40,), (48, 7), (40, 9, 5)])
def test_few_examples_take_a_wide_perceptron_where_steps_would(hidden: tuple[int, ...]) -> None:
    """Two epochs, a last batch that is smaller: the update in one, the steps, and the weights as they were."""
    rng = np.random.default_rng(0)
    module = _networks.mlp((1, 7, 7), 3, hidden)
    found = Perceptron.of(module)
    assert found is not None
    assert [found.takes_few(count) for count in (20, 25)] == [True, False]
    lengths = [4, 4, 2, 4, 4, 2]
    inputs = torch.from_numpy(rng.normal(size=(20, 1, 7, 7)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 3, 20))
    start = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
    with torch.no_grad():
        update, said = found.update(inputs, labels, lengths, 0.5)
        assert torch.equal(torch.cat([parameter.reshape(-1) for parameter in module.parameters()]), start)
        batches = zip(torch.split(inputs, lengths), torch.split(labels, lengths), strict=True)
        steps = found.steps(batches, 0.5)
        moved = torch.cat([parameter.reshape(-1) for parameter in module.parameters()]) - start
    assert moved.abs().max() > 0.1
    torch.testing.assert_close(update, moved, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(said, steps, rtol=1e-4, atol=1e-6)


def test_a_client_with_few_examples_ends_where_steps_would_have_taken_it(monkeypatch: pytest.MonkeyPatch) -> None:
    build = models.Mlp(models.Mlp.Options(hidden=(64,))).build
    ends = []
    for few in (True, False):
        monkeypatch.setattr(Perceptron, "takes_few", lambda *_, few=few: few)
        client = client_with(build((1, 8, 8), 10, 0, "cpu"), data_of(24))
        start = client.model.get_vector()
        losses = [train(sgd(lr=0.1, epochs=1), client)["loss"] for _ in range(2)]  # the second goes on from the first
        ends.append((client.model.get_vector(), losses))
        assert not np.array_equal(ends[-1][0], start)
    np.testing.assert_allclose(ends[0][0], ends[1][0], rtol=1e-4, atol=1e-6)
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-4)


def test_only_a_plain_perceptron_is_stepped_by_hand() -> None:
    """Anything else takes autograd: other layers, hooks, frozen, missing or shared parameters."""

    def perceptron() -> torch.nn.Sequential:
        module = _networks.mlp((1, 4, 4), 3, (5,))
        assert isinstance(module, torch.nn.Sequential)
        return module

    assert Perceptron.of(perceptron()) is not None
    hooked, frozen, bare = perceptron(), perceptron(), perceptron()
    hooked[1].register_forward_hook(lambda *_: None)
    frozen[1].bias.requires_grad_(False)
    bare[1] = torch.nn.Linear(16, 5, bias=False)
    first, again, last = (torch.nn.Linear(*sizes) for sizes in ((16, 5), (5, 5), (5, 3)))
    parts = [torch.nn.Flatten(), first, torch.nn.ReLU(), again, torch.nn.ReLU(), torch.nn.Linear(5, 5)]
    twice = torch.nn.Sequential(*parts[:5], again, torch.nn.ReLU(), last)
    tied = torch.nn.Sequential(*parts, torch.nn.ReLU(), last)
    assert Perceptron.of(tied) is not None
    tied[5].weight = again.weight
    ended = torch.nn.Sequential(*perceptron(), torch.nn.ReLU())
    others = [hooked, frozen, bare, twice, tied, ended, _networks.cnn((1, 8, 8), 3, 4)]
    assert [Perceptron.of(module) for module in others] == [None] * len(others)


def _forward_patched(module: Any, part: int | None = None) -> None:
    patched = module if part is None else module[part]
    old = patched.forward
    patched.forward = lambda inputs: old(inputs) / 10


def _compiled(module: Any) -> None:
    with mock.patch("torch.compile", lambda forward, *_, **__: forward):  # torch's own takes seconds to import
        module[1].compile()


@pytest.mark.parametrize(
    "change",
    [
        lambda module: module[1].weight.register_hook(lambda gradient: gradient * 0),
        lambda module: module[3].bias.register_post_accumulate_grad_hook(lambda parameter: None),
        lambda module: _forward_patched(module),
        lambda module: _forward_patched(module, 3),
        lambda module: _compiled(module),
        lambda module: torch.nn.modules.module.register_module_forward_hook(lambda part, given, found: found / 2),
        lambda module: torch.nn.modules.module.register_module_forward_pre_hook(lambda part, given: None),
        lambda module: torch.nn.modules.module.register_module_full_backward_hook(lambda part, gave, given: None),
        lambda module: setattr(module[0], "start_dim", 2),
    ],
    ids=["of a parameter", "after a gradient", "forward", "forward of a part", "compiled", "of all modules",
         "before all modules", "backward of all modules", "another flatten"],
)  # fmt: skip
def test_a_perceptron_that_somebody_changed_is_not_stepped_by_hand(change: Any) -> None:
    module = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(8, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3)
    )  # fmt: skip
    assert Perceptron.of(module) is not None
    handle = change(module)
    try:
        assert Perceptron.of(module) is None
    finally:
        if handle is not None:
            handle.remove()

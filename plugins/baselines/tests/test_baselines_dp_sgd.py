"""DP-SGD: its accounting against Opacus' figures, its steps by hand, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import fedplug
import fedplug_baselines.dp_sgd as module
import numpy as np
import pytest
import torch
from examples import examples
from fedplug import ClientData, Examples
from fedplug.api.errors import MessageError, ProtectionError, SetupError, TooFewClients
from fedplug.round.uploads import read_hello
from fedplug_baselines.dp_sgd import DpSgd
from fedplug_baselines.dp_sgd_accounting import (
    SampledSteps,
    noise_multiplier_for,
    record_epsilons,
    sampling_rate,
    steps_of_a_round,
)
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_ledger.spent import level_epsilons
from fedplug_runs import execution
from fedplug_runs.folder import read_rows
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings
from fedplug_std.models import Cnn, LeNet5, Mlp
from fedplug_std.per_sample import per_sample_gradients
from fedplug_std.tasks import Classification
from fedplug_std.torch_model import TorchModel
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_components import TOYS, recipe_of
from toy_protocol import build, run_protocol

RECIPE = Path(__file__).parents[3] / "recipes/baselines/dp-sgd.yaml"


def trainer(**options: Any) -> DpSgd:
    given = {"noise_multiplier": 0.0, "source": "reproducible"} | options
    found = DpSgd(DpSgd.Options(**given))
    found.name = "baselines.dp_sgd"
    return found


def client_of(make_client: Any, model: Any, count: int = 12, side: int = 12) -> Any:
    rng = np.random.default_rng(3)
    examples = Examples(rng.random((count, 1, side, side), np.float32), np.arange(count) % 4)
    data = ClientData(examples, examples, examples, classes=tuple("abcd"), mean=(0.5,), std=(0.5,))
    return make_client(model.layout, model=model, data=data, vector=model.get_vector())


def mlp(hidden: tuple[int, ...] = (8,)) -> Any:
    return Mlp(Mlp.Options(hidden=hidden)).build((1, 12, 12), 4, 5, "cpu")


def lenet() -> Any:
    return LeNet5(LeNet5.Options()).build((1, 12, 12), 4, 5, "cpu")


def gradients(client: Any) -> Any:
    """By `torch.func` instead of Opacus."""
    chunks = per_sample_gradients(client.model, client.data.train, client.data, vector=client.vector)
    return np.concatenate([chunk.numpy() for chunk in chunks]).astype(np.float64)


def clipped_sum(client: Any, norm: float) -> Any:
    """With a loop over the examples."""
    return np.sum([g / max(1.0, np.linalg.norm(g) / norm) for g in gradients(client)], axis=0)


# -- accounting --------------------------------------------------------------------------------------------------------


def test_noise_for_epsilon_1_of_3000_examples() -> None:
    """Ten rounds of five epochs of batches of 32: sigma = 3.07 by Renyi DP, less by loss distributions."""
    steps, rate = 10 * steps_of_a_round(3000, 32, 5), sampling_rate(3000, 32)
    assert (steps, rate) == (4700, 32 / 3000)
    sigma = noise_multiplier_for(1.0, 1e-5, rate, steps, "rdp")
    assert sigma == pytest.approx(3.07, abs=0.005)
    spent = record_epsilons([(sigma, rate, steps)], 1e-5)
    assert 0.998 < spent["epsilon_rdp"] <= 1.0
    assert spent["epsilon_pld"] < 0.95


def test_epsilon_of_a_known_setting() -> None:
    """sigma 1.1, q 0.1, 100 steps: 6.614 by RDP, 5.923 by PRV, 5.9125 on a grid of losses a hundred times finer."""
    spent = record_epsilons([(1.1, 0.1, 100)], 1e-5)
    assert spent["epsilon_rdp"] == pytest.approx(6.614, abs=2e-3)
    assert 5.9125 <= spent["epsilon_pld"] <= 5.9125 * 1.001


def test_without_sampling_the_exact_curve_holds() -> None:
    sigma = noise_multiplier_for(2.0, 1e-5, 1.0, 50, "rdp")
    assert gaussian_epsilon(sigma / math.sqrt(50), 1e-5) == pytest.approx(2.0)
    spent = record_epsilons([(sigma, 1.0, 50)], 1e-5)
    assert 2.0 - 1e-9 <= spent["epsilon_pld"] <= 2.002 <= spent["epsilon_rdp"]


def test_rounds_compose_in_any_order_and_any_cut() -> None:
    parts = [(2.0, 0.2, 10), (3.0, 0.1, 5), (2.0, 0.2, 7)]
    together = record_epsilons([(3.0, 0.1, 5), (2.0, 0.2, 17)], 1e-5)
    assert record_epsilons(parts, 1e-5) == record_epsilons(parts[::-1], 1e-5) == together
    assert record_epsilons(parts[:2], 1e-5)["epsilon_pld"] < together["epsilon_pld"]


def test_nothing_released_costs_nothing_and_no_noise_everything() -> None:
    assert set(record_epsilons([], 1e-5).values()) == {0.0}
    assert set(record_epsilons([(2.0, 0.1, 0)], 1e-5).values()) == {0.0}
    assert set(record_epsilons([(2.0, 0.1, 5), (0.0, 0.1, 1)], 1e-5).values()) == {math.inf}


def test_each_client_finds_the_noise_for_its_own_size(make_client: Any) -> None:
    # Opacus looks for the larger noise of a small epsilon in a fraction of the time.
    component = trainer(noise_multiplier=None, epsilon=1.0, delta=1e-5, batch_size=4, epochs=2)
    small, large = client_of(make_client, mlp(()), 16), client_of(make_client, mlp(()), 64)
    few, many = (component.round_release(client, client.facts) for client in (small, large))
    assert (few[1:], many[1:]) == ((0.25, 8), (1 / 16, 32))
    assert few[0] > many[0]
    for release in (few, many):  # bare clients are in a run of 9 rounds
        assert 0.98 < record_epsilons([release] * 9, 1e-5)["epsilon_rdp"] <= 1.0


def test_reproducible_noise_is_no_protection() -> None:
    assert trainer().epsilon_of([(2.0, 0.1, 5)], 1e-5)["epsilon_pld"] == math.inf
    assert trainer(source="secure").epsilon_of([(2.0, 0.1, 5)], 1e-5) == record_epsilons([(2.0, 0.1, 5)], 1e-5)


# -- steps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [mlp, lenet])
def test_one_step_is_that_of_algorithm_1(make_client: Any, build: Any) -> None:
    """All examples in the batch, no noise: w - lr / n sum_i g_i / max(1, |g_i| / C). Some gradients are clipped."""
    client = client_of(make_client, build())
    norm = float(np.median(np.linalg.norm(gradients(client), axis=1)))
    expected = client.vector - 0.5 / 12 * clipped_sum(client, norm)
    assert not np.allclose(expected, client.vector - 0.5 / 12 * clipped_sum(client, 1e9), atol=1e-5)
    numbers = trainer(batch_size=20, lr=0.5, clipping_norm=norm).train(client, client.facts)
    assert np.allclose(client.model.get_vector(), expected, atol=1e-6)
    assert numbers["loss"] == pytest.approx(math.log(4), abs=0.3)


def test_batches_in_parts_are_the_same(make_client: Any, monkeypatch: Any) -> None:
    whole, parts = client_of(make_client, mlp()), client_of(make_client, mlp())
    component = trainer(batch_size=6, lr=0.5, epochs=3)
    component.train(whole, whole.facts)
    monkeypatch.setattr(module, "_GRADIENT_BYTES", 4 * whole.facts.layout.size * 2)  # two examples
    component.train(parts, parts.facts)
    assert np.allclose(whole.model.get_vector(), parts.model.get_vector(), atol=1e-6)
    assert not np.allclose(whole.model.get_vector(), whole.vector, atol=1e-3)


def test_batches_are_poisson_samples(make_client: Any, monkeypatch: Any) -> None:
    """Sizes vary like a binomial of n and q. With a batch as large as the data, every example is always in it."""
    client, sizes = client_of(make_client, mlp(()), 40), []
    component = trainer(batch_size=10, epochs=100, source="secure")
    zero = np.zeros(client.facts.layout.size, np.float32)
    monkeypatch.setattr(component, "_clipped_sum", lambda *args: (sizes.append(len(args[2])) or zero, 0.0))
    component.train(client, client.facts)
    assert len(sizes) == 400
    assert np.mean(sizes) == pytest.approx(10, abs=6 * math.sqrt(40 * 0.25 * 0.75 / 400))
    assert np.var(sizes) == pytest.approx(7.5, rel=0.5)


def test_the_noise_has_the_stated_size(make_client: Any, monkeypatch: Any) -> None:
    """sigma C on the sum, for any batch, and lr / (q n) of that in the model. The noise differs each time."""
    moves = []
    for _ in range(2):
        client = client_of(make_client, mlp((32,)), 40)
        component = trainer(batch_size=10, epochs=1, lr=0.5, noise_multiplier=3.0, clipping_norm=0.2, source="secure")
        zero = np.zeros(client.facts.layout.size, np.float32)
        monkeypatch.setattr(component, "_clipped_sum", lambda *args, zero=zero: (zero, 0.0))
        component.train(client, client.facts)
        moves.append((client.model.get_vector() - client.vector) * 10 / 0.5)
    size = len(moves[0])  # 4 steps; chi-square bounds at 6 standard deviations
    expected = 4 * (3.0 * 0.2) ** 2
    assert np.mean(np.square(moves[0])) == pytest.approx(expected, rel=6 * math.sqrt(2 / size))
    assert abs(np.corrcoef(moves[0], moves[1])[0, 1]) < 6 / math.sqrt(size)


def test_opacus_leaves_the_model_as_it_was(make_client: Any) -> None:
    client = client_of(make_client, mlp())
    trainer().train(client, client.facts)
    module_ = client.model.module
    assert not any(part._forward_hooks or part._backward_hooks for part in module_.modules())
    assert not any(hasattr(parameter, "grad_sample") for parameter in module_.parameters())
    next(per_sample_gradients(client.model, client.data.train, client.data))  # which hooks would break


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_batch_norm_is_refused_with_a_remedy(make_client: Any) -> None:
    model = Cnn(Cnn.Options()).build((1, 12, 12), 4, 5, "cpu")
    client = client_of(make_client, model)
    with pytest.raises(SetupError, match=r"BatchNorm2d \(norm1, norm2\) mixes .* use torch.nn.GroupNorm .*std.lenet5"):
        trainer().train(client, client.facts)


class Mixes(torch.nn.Module):
    """Subtracts a quantity of the batch: its mean, detached from the gradient, or an earlier state."""

    def __init__(self, keeps: str) -> None:
        super().__init__()
        self.keeps, self.last, self.whole = keeps, torch.zeros(144), torch.nn.Linear(144, 4)
        self.register_buffer("mean", torch.zeros(144))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        flat = inputs.flatten(1)
        before = {"batch": flat.mean(0), "buffer": self.mean, "attribute": self.last, "nothing": 0.5}[self.keeps]
        if self.training and self.keeps != "nothing":
            self.mean, self.last = flat.mean(0).detach(), flat[-1].detach()
        found: torch.Tensor = self.whole(torch.nn.functional.dropout(flat - before, training=self.training))
        return found


@pytest.mark.parametrize("keeps", ["batch", "buffer", "attribute", "nothing"])
def test_a_module_that_lets_examples_meet_is_refused(make_client: Any, keeps: str) -> None:
    """The effect of one example on the answers to others is neither clipped nor covered by the noise."""
    client = client_of(make_client, TorchModel(Mixes(keeps)))
    if keeps == "nothing":
        trainer().train(client, client.facts)
        return
    where = "its batch" if keeps == "batch" else "later batches"
    with pytest.raises(SetupError, match=f"the answer of Mixes to one changes with others in {where}"):
        trainer().train(client, client.facts)


def test_a_model_that_diverged_is_reported(make_client: Any) -> None:
    client = client_of(make_client, mlp())
    client.model.set_vector(np.full(client.facts.layout.size, np.nan, np.float32))
    with pytest.raises(ProtectionError, match=r"client 0: values of the clipped gradients: \d+ of .* lower lr"):
        trainer().train(client, client.facts)
    assert not any(part._forward_hooks for part in client.model.module.modules())


def test_other_models_are_refused(make_client: Any) -> None:
    client = client_of(make_client, mlp())
    client.model = object()
    with pytest.raises(SetupError, match="trains torch models, not object"):
        trainer().train(client, client.facts)


@pytest.mark.parametrize(("options", "problem"), [
    ({}, "neither of epsilon and noise_multiplier"),
    ({"epsilon": 1.0, "delta": 1e-5, "noise_multiplier": 1.0}, "both of epsilon and noise_multiplier"),
    ({"epsilon": 1.0}, "epsilon and delta belong together"),
    ({"noise_multiplier": 1.0, "delta": 1e-5}, "epsilon and delta belong together"),
    ({"noise_multiplier": 1.0, "calibration": "prv"}, "calibration: prv has no effect"),
    ({"noise_multiplier": 1.0, "clipping_norm": 0}, "greater than 0"),
    ({"epsilon": 0, "delta": 1e-5}, "greater than 0"),
])  # fmt: skip
def test_options_that_make_no_sense(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        DpSgd.Options(**options)


# -- runs --------------------------------------------------------------------------------------------------------------


def test_both_engines_agree_and_tell_the_same() -> None:
    train = {"use": "baselines.dp_sgd", "batch_size": 64, "noise_multiplier": 1.0, "source": "reproducible"}
    plain = recipe_of(train=train)
    local, processes = run_protocol(plain), run_protocol(plain, "processes")
    assert np.array_equal(local.vector, processes.vector)
    assert local.protocol.ledger.log == processes.protocol.ledger.log


def test_the_ledger_states_records_and_says_that_clients_are_not_protected(tmp_path: Path) -> None:
    less = ["rounds=2", "data.clients=3", "train.epochs=1", "train.epsilon=1", "model.hidden=[]"]
    recipe = load_recipe(RECIPE, less)
    code, folder = execution.start(recipe, Settings(output=tmp_path, device="cpu", quiet=True))
    assert code == 0
    rows = read_rows(folder)
    assert 0 < rows[0].level_epsilons["record"] < rows[1].level_epsilons["record"] <= 1
    ledger = json.loads((folder / "ledger.json").read_text())
    assert ledger["levels"]["record"]["unit"].startswith("record: one training example")
    assert ledger["verdict"]["status"] == "protected_from_all"
    for line in ledger["verdict"]["lines"]:
        if line["state"] != "absent":
            assert (line["unit"], line.get("epsilons")) == ("record", None)
            assert line["rests_on"][0] == "on the word of baselines.dp_sgd"
            assert "of a whole client: " in line["detail"]
            assert "without noise" in line["detail"]


ALIKE = {"use": "std.digits", "clients": 2, "train_size": 80, "partition": "std.iid"}
"""Two clients with one account."""


class Decaying(DpSgd):
    """Less noise in every round."""

    def round_release(self, client: Any, facts: Any) -> tuple[float, float, int]:
        sigma, rate, steps = super().round_release(client, facts)
        return sigma * 0.1**facts.round, rate, steps

    release_problem = fedplug.AccountKeeper.release_problem


class Forgetful(DpSgd):
    """Less noise than it said before it had a memory."""

    def round_release(self, client: Any, facts: Any) -> tuple[float, float, int]:
        sigma, rate, steps = super().round_release(client, facts)
        return sigma - len(client.memory(self)), rate, steps

    release_problem = fedplug.AccountKeeper.release_problem

    def train(self, client: Any, facts: Any) -> dict[str, float]:
        client.memory(self)[str(facts.round)] = 1
        return super().train(client, facts)


def test_every_round_is_charged_what_the_trainer_says_of_that_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("trainer", {}), "toy.decaying", Decaying)
    train = {"use": "toy.decaying", "noise_multiplier": 2.0}
    protocol = run_protocol(recipe_of(train=train, data=ALIKE, min_clients=2)).protocol
    told = protocol.server.remembered.accounts[0]["record"]
    assert [multiplier for multiplier, _, _ in told] == pytest.approx([2.0, 0.2])
    assert protocol.ledger.accounts["record"][0] == Counter(tuple(release) for release in told)
    assert level_epsilons(protocol.ledger)["record"] >= min(record_epsilons([tuple(told[1])], 1e-5).values())


def test_a_trainer_that_does_other_than_it_said_before_round_1_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOYS.setdefault("trainer", {}), "toy.forgetful", Forgetful)
    said = r"component toy\.forgetful, round_release: round 2 is \(1, [^)]*\), and was \(2, [^)]*\) when the ledger"
    with pytest.raises(TooFewClients, match=said):
        run_protocol(recipe_of(train={"use": "toy.forgetful", "noise_multiplier": 2.0}, data=ALIKE, min_clients=2))


@pytest.mark.parametrize("release", [(0.02, 1.0, 1), (0.01, 1.0, 1), (0.02, 0.2, 1), (0.02, 1.0, 1000)])
def test_the_protection_of_little_noise_is_never_overstated(release: tuple[float, float, int]) -> None:
    """Even where e^epsilon overflows (from 709 on). One step with the whole batch is the Gaussian itself."""
    multiplier, rate, _ = release
    # delta(epsilon) of a sampled step is at least rate * delta_G(epsilon + log(1 / rate)) of the plain Gaussian.
    found = record_epsilons([release], 1e-5)
    assert min(found.values()) >= gaussian_epsilon(multiplier, 1e-5 / rate) - math.log(1 / rate)


@pytest.mark.parametrize(
    ("release", "rule"),
    [
        ((2.0, 5.0, 10.0), "10 steps at sampling_rate=5 must be those of 2 epochs of batches of 32"),
        ((2.0, 0.0, 10.0), "sampling_rate=0 must"), ((2.0, 1e-300, 5.0), "sampling_rate=1e-300 must"),
        ((2.0, 32 / 100, 9.0), "9 steps"), ((2.0, 32 / 100, 8.5), "8.5 steps"), ((2.0, 1.0, 1e300), "1e.300 steps"),
        ((2.0, 32 / 100.5, 8.0), "0.318408 must"), ((2.0, 32 / 2**33, 2.0**29), "some number of examples, 4294967296"),
        ((0.0, 32 / 100, 8.0), "noise_multiplier=0 must be 2"), ((1e200, 32 / 100, 8.0), r"1e\+200 must be 2"),
    ],
)  # fmt: skip
def test_a_client_that_states_what_no_round_can_release_does_not_join(
    release: tuple[float, float, float], rule: str
) -> None:
    keeper = trainer(noise_multiplier=2.0, epochs=2, batch_size=32)
    with pytest.raises(MessageError, match=rf"its account of level record cannot be: .*{rule}"):
        read_hello({"accounts": {"record": [list(release)]}}, False, False, {"record": keeper}, 1)


@settings(max_examples=examples(100))
@given(st.integers(1, 2**32), st.integers(1, 4096), st.integers(1, 50))
def test_what_some_number_of_examples_gives_is_believed(count: int, batch_size: int, epochs: int) -> None:
    keeper = trainer(noise_multiplier=2.0, epochs=epochs, batch_size=batch_size)
    steps = steps_of_a_round(count, batch_size, epochs)
    assert keeper.release_problem(SampledSteps(2.0, sampling_rate(count, batch_size), float(steps))) == ""


BETWEEN = {
    (10**4, 1e-100), (10**4, 1e-3), (2**32, 1e-100), (2**32, 1e-3), (2**32, 0.3), (2**32, 1.0), (2**32, 1e10),
    (2**32, 1e100),
}  # fmt: skip
"""Sizes between others; to add up the losses of each takes seconds."""


@pytest.mark.parametrize(("count", "multiplier"), [
    pytest.param(count, multiplier, marks=pytest.mark.slow if (count, multiplier) in BETWEEN else ())
    for count in (1, 10**4, 2**32) for multiplier in (1e-300, 1e-100, 1e-3, 0.3, 1.0, 100.0, 1e10, 1e100, 1e300)
])  # fmt: skip
def test_whatever_is_believed_has_an_epsilon(multiplier: float, count: int) -> None:
    releases = [(multiplier, sampling_rate(count, 32), float(steps_of_a_round(count, 32, 5)))] * 2
    pld, rdp = record_epsilons(releases, 1e-5).values()
    assert 0 <= pld <= rdp


def test_zeroing_by_gradients_of_records_is_no_post_processing() -> None:
    train = {"use": "baselines.dp_sgd", "epsilon": 8, "delta": 1e-5}
    protocol, engine, _ = build(recipe_of(chain=[{"use": "baselines.lus", "sparsity": 0.5}], train=train))
    engine.close()
    (shown,) = protocol.composition.components["baselines.lus"].reveals(protocol.server.facts)
    assert shown.covered_by is None
    assert "by: magnitude" in shown.note


# -- what it says of itself --------------------------------------------------------------------------------------------


def test_the_noise_of_an_update_is_unknown_and_drawn_once_where_it_is_secret(make_client: Any) -> None:
    facts = client_of(make_client, mlp()).facts
    secret = trainer(noise_multiplier=1.0, source="secure").learns(facts)
    assert (secret.noise, secret.repeats) == (None, False)
    known = trainer(lr=0.3, batch_size=7, epochs=2, momentum=0.5).learns(facts)
    assert (known.noise, known.repeats) == (0.0, True)
    assert (known.lr, known.batch_size, known.epochs, known.momentum) == (0.3, 7, 2, 0.5)
    calibrated = trainer(noise_multiplier=None, epsilon=4.0, delta=1e-5).learns(facts)
    assert calibrated.noise is None


def test_one_batch_has_the_noise_of_a_step_of_the_round(make_client: Any) -> None:
    """Not the noise that would be calibrated for a single step on a few examples."""
    client = client_of(make_client, mlp(), 16)
    component = trainer(noise_multiplier=None, epsilon=1.0, delta=1e-5, batch_size=4, epochs=2, momentum=0.9)
    sigma = component.round_release(client, client.facts)[0]
    probe = component.one_batch(client, client.facts, 4)
    client.data = dataclasses.replace(client.data, train=client.data.train.take(slice(0, 4)))
    assert probe.round_release(client, client.facts) == (sigma, 1.0, 1)
    assert component.round_release(client, client.facts)[0] != sigma
    assert (probe.options.momentum, component.options.momentum) == (0.0, 0.9)


class Mixed(Classification):
    """Losses that depend on an example of the batch, and losses that depend on its size."""

    how = "value"

    def losses(self, outputs: Any, answers: Any) -> Any:
        each = super().losses(outputs, answers)
        return each * (1.0 if int(answers[-1]) == 0 else -1.0) if self.how == "value" else each / len(outputs)


@pytest.mark.parametrize("how", ["value", "number"])
def test_the_loss_of_an_example_does_not_follow_from_others(make_client: Any, how: str) -> None:
    """A value of the batch is refused. Its size is one, since the loss gets one example."""
    client = client_of(make_client, mlp())
    task = Mixed(Classification.Options())
    object.__setattr__(task, "name", "mix.mixed")
    object.__setattr__(task, "how", how)
    client.data = dataclasses.replace(client.data, task=task)
    component = trainer(batch_size=12, clipping_norm=0.5)
    if how == "value":
        with pytest.raises(SetupError, match=r"mix\.mixed does not give it"):
            component.train(client, client.facts)
        return
    mixed = clipped_of(component, client)
    client.data = dataclasses.replace(client.data, task=None)
    plain = clipped_of(component, client)
    np.testing.assert_allclose(mixed, plain, atol=1e-6)


def clipped_of(component: DpSgd, client: Any) -> Any:
    """The clipped sum of all its examples."""
    with component._apart(client.model, client.data) as apart, apart.step() as gradients_of:
        return component._clipped_sum(client, gradients_of, client.data.train)[0]

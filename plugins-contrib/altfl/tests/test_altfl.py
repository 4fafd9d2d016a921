"""The turns of rounds, what they cost, and what training in synthetic rounds follows from."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import fedplug
import fedplug_altfl.alternating
import numpy as np
import pytest
import torch
from fedplug import Examples, FedplugError, gaussian_epsilon, gaussian_noise_multiplier
from fedplug_altfl.alternating import Alternating, share
from fedplug_kit import conformance
from hypothesis import given
from hypothesis import strategies as st

ZONES = ("noised", "encrypted", "synthetic")
SMALL = {
    "rounds": 6, "data.clients": 4, "data.train_size": 400, "data.partition": "std.iid", "model.hidden": [],
    "data.public": 90, "train.epochs": 1, "aggregate.weighting": "uniform",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def component(**options: object) -> Alternating:
    return Alternating(Alternating.Options.model_validate(options))


def run(sets: dict[str, Any], recipe: str = "altfl-si-dp", **keys: Any) -> fedplug.Run:
    return fedplug.run(recipe, SMALL | sets, quiet=True, **keys)


def vector(made: fedplug.Run) -> np.ndarray[Any, Any]:
    return torch.nn.utils.parameters_to_vector(made.model.parameters()).detach().numpy()


@pytest.mark.parametrize(
    ("cycle", "recipe"),
    [(["noised", "synthetic"], {"public": {"use": "kit.images", "draw": 5}}), (["noised", "encrypted"], {})],
)
def test_conforms(cycle: list[str], recipe: dict[str, Any]) -> None:
    conformance("altfl.alternating", {"cycle": cycle}, recipe=recipe)


def test_uses_the_public_api_only() -> None:
    nodes = list(ast.walk(ast.parse(Path(fedplug_altfl.alternating.__file__).read_text(encoding="utf-8"))))
    taken = {node.module: {alias.name for alias in node.names} for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name for name in taken if str(name).startswith("fedplug")} == {"fedplug", "fedplug_std.training"}
    assert taken["fedplug"] <= set(fedplug.__all__)


# -- turns -------------------------------------------------------------------------------------------------------------


def test_rounds_take_turns() -> None:
    """Round t of an interleaving ratio of 1/2 is synthetic where t mod 2 = 1, as in the authors' code."""
    assert [component().zone(t) for t in range(6)] == ["noised", "synthetic"] * 3
    late = component(cycle=["noised", "encrypted", "synthetic"], init_syn_rounds=2)
    assert [late.zone(t) for t in range(6)] == ["synthetic"] * 3 + ["noised", "encrypted", "synthetic"]


@given(st.lists(st.sampled_from(ZONES), min_size=1), st.integers(0, 9), st.integers(0, 99))
def test_plans_are_in_the_zones_that_are_declared(cycle: list[str], first: int, round: int) -> None:
    made = component(cycle=cycle, init_syn_rounds=first)
    zones = {made.zone(t) for t in range(first + len(cycle))}
    assert made.zone(round) in zones
    assert made.plans.fixed == (len(zones) == 1)
    assert made.plans.zones >= zones


# -- cost --------------------------------------------------------------------------------------------------------------


def test_a_synthetic_round_costs_nothing() -> None:
    """Six rounds in turn, of multiplier 3, cost as three: epsilon of sqrt(3) less."""
    made = run({"protect.noised.1": {"use": "std.gaussian", "noise_multiplier": 3.0}})
    spent = [row.epsilon for row in made.metrics]
    assert spent[0::2] == spent[1::2]
    assert spent[-1] == pytest.approx(gaussian_epsilon(3 / 3**0.5, 1e-5))
    assert made.ledger.verdict.status == "protected_from_all"


def test_noise_is_calibrated_for_the_rounds_that_add_it() -> None:
    """An epsilon of 8 over three of six rounds: sqrt(3) times the multiplier of one release, not sqrt(6)."""
    made = run({})
    assert made.metrics[-1].epsilon == pytest.approx(8, rel=1e-6)
    (noise,) = made.ledger.zones["noised"].noise_multiplier
    assert noise == pytest.approx(3**0.5 * gaussian_noise_multiplier(8, 1e-5))


def test_rounds_under_noise_and_under_encryption_train_on_own_examples() -> None:
    made = run({"rounds": 2}, "altfl-pi")
    assert [row.zones.get("encrypted", 0.0) for row in made.metrics] == [0.0, 1.0]
    assert made.ledger.verdict.status == "no_protection"  # encrypted rounds give sums without noise, as published


# -- synthetic examples ------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 12))
def test_clients_share_the_synthetic_examples_out(count: int, clients: int) -> None:
    examples = Examples(np.zeros((count, 1, 1, 1), np.uint8), np.arange(count))
    shares = [share(examples, client, clients).labels.tolist() for client in range(clients)]
    assert all(shares)
    assert {label for each in shares for label in each} == {*range(count)}
    if count >= clients:
        assert sum(map(len, shares)) == count


def test_synthetic_rounds_follow_from_nobodys_examples() -> None:
    """The model is the same for any split of the examples, and it learns."""
    only = {"train.epochs": 5, "train.lr": 0.1, "train.cycle": ["synthetic"]}
    even, skewed = (
        run(only | {"data.partition": partition}, protect={"synthetic": []})
        for partition in ("std.iid", {"use": "std.dirichlet", "alpha": 0.3})
    )
    assert np.array_equal(vector(even), vector(skewed))
    assert (even.metrics[-1].accuracy or 0) > 0.6
    losses = [row.train_loss for row in even.metrics]
    assert losses[-1] < losses[0] < 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.public": 0}, "synthetic rounds need public examples"),
        ({"train.cycle": []}, "cycle"),
        ({"train.use": "std.sgd", "negotiate_mask": {"use": "altfl.alternating"}}, "what clients train on, too"),
    ],
)
def test_wrong_recipes_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(FedplugError, match=message):
        run(changes)

"""Robust aggregation in rounds: what it refuses, what noise is worth behind it, and the same on every engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import Block, Facts, Layout
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_kit.conform import conformance
from fedplug_robust.aggregators import Krum, Median
from toy_components import recipe_of
from toy_protocol import run_protocol

CASES: dict[str, list[dict[str, Any]]] = {
    "median": [{}, {"bucket": 2}], "trimmed_mean": [{"f": 1}], "krum": [{"f": 0}, {"f": 0, "m": 2}],
    "bulyan": [{"f": 0}], "geometric_median": [{}], "centred_clipping": [{"tau": 0.1, "iterations": 3}],
    "norm_bound": [{}], "fltrust": [{}],
}  # fmt: skip
DATA = {"use": "kit.images", "clients": 3, "partition": "std.iid", "public": 4}
NOISED: list[Any] = [
    {"use": "std.clip", "norm": 0.5}, {"use": "std.gaussian", "noise_multiplier": 4.0},
]  # fmt: skip


def of(name: str, options: dict[str, Any]) -> dict[str, Any]:
    public = {"data": recipe_of()["data"] | {"public": 20}} if name == "fltrust" else {}
    return {"aggregate": {"use": f"robust.{name}", **options}, "min_clients": 4, **public}


def test_every_component_has_a_case() -> None:
    entries = Catalog.discover().groups["aggregate"]
    assert {f"robust.{name}" for name in CASES} == {name for name in entries if name.startswith("robust.")}


@pytest.mark.parametrize(("name", "options"), [(name, each) for name, cases in CASES.items() for each in cases])
def test_it_conforms_and_noise_of_clients_keeps_its_price_without_credit(name: str, options: dict[str, Any]) -> None:
    conformance(f"robust.{name}", options, recipe={"min_clients": 3, "data": DATA})
    ledger = run_protocol(recipe_of("noised", NOISED, **of(name, options))).protocol.ledger
    mean = {"use": "std.mean", "weighting": "uniform"}
    plain = run_protocol(recipe_of("noised", NOISED, **of(name, options) | {"aggregate": mean})).protocol.ledger
    assert ledger.epsilon() == plain.epsilon()
    assert ledger.verdict().toward("released_model").epsilon == ledger.epsilon()
    assert plain.verdict().toward("released_model").epsilon < ledger.epsilon()


def test_without_noise_of_the_clients_nothing_earns_a_guarantee() -> None:
    assert run_protocol(recipe_of(**of("median", {}))).protocol.ledger.epsilon() in (None, math.inf)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (of("krum", {"f": 1}), "robust.krum: it needs 5 clients; write min_clients: 5, or a smaller f"),
        (of("bulyan", {"f": 1}), "it needs 7 clients"),
        (of("trimmed_mean", {"f": 1, "bucket": 2}), "it needs 5 clients, in buckets of 2"),
        (of("median", {}) | {"zone": "encrypted"}, "sealed values open as sums; take the seal out"),
    ],
)
def test_what_cannot_run_is_refused(changes: dict[str, Any], says: str) -> None:
    zone = changes.pop("zone", "clear")
    recipe = recipe_of(zone, [{"use": "std.bfv"}] if zone == "encrypted" else [], **changes)
    with pytest.raises(RecipeError, match=says):
        Recipe.from_plain(recipe)


def combined(component: Any, values: Any, positions: Any = None, round: int = 0) -> Any:
    """The values that the component makes of those of some clients."""
    component.name = "robust"
    places = positions or [None] * len(values)
    given = {
        client: Block("clear", 3, values=np.asarray(each, np.float32), positions=place)
        for client, (each, place) in enumerate(zip(values, places, strict=True))
    }
    facts = Facts(
        round=round, rounds=9, layout=Layout.of([("w", (3,))]), zones=("clear",), num_clients=len(given), min_clients=1,
        seed=7, digest="",
    )  # fmt: skip
    return component.combined(given, facts, {}).values


def test_buckets_are_drawn_anew_in_each_round() -> None:
    values, bucketed = np.random.default_rng(1).normal(0, 1, (8, 3)), Median(Median.Options(bucket=3))
    one = combined(bucketed, values)
    assert np.array_equal(one, combined(bucketed, values))
    assert not np.array_equal(one, combined(bucketed, values, round=1))
    assert np.array_equal(combined(Median(Median.Options(bucket=8)), values), values.mean(0).astype(np.float32))


def test_values_that_cannot_be_compared_stop_the_round_with_a_sentence() -> None:
    places = [np.array([0, 1], np.uint32), np.array([0, 2], np.uint32)]
    with pytest.raises(ProtectionError, match="these have different positions of clear"):
        combined(Median(Median.Options()), np.ones((2, 2)), places)
    with pytest.raises(ProtectionError, match="needs 5 updates, and this round has 4"):
        combined(Krum(Krum.Options(f=1)), np.ones((4, 3)))


def test_engines_agree() -> None:
    chain = [NOISED[0], NOISED[1] | {"source": "reproducible"}]
    recipe = recipe_of("noised", chain, **of("geometric_median", {"bucket": 3}))
    assert np.array_equal(run_protocol(recipe).vector, run_protocol(recipe, "processes", workers=1).vector)


def test_positions_of_each_client_its_own_are_refused() -> None:
    recipe = recipe_of(
        "clear", negotiate_mask={"use": "baselines.feddpa", "tau": 0.2}, protect={"noised": []}, postprocess={},
        train={"use": "baselines.feddpa", "epochs": 1, "batch_size": 32, "lr": 0.05}, **of("median", {}),
    )  # fmt: skip
    with pytest.raises(RecipeError, match="each client sends positions of its own in zone noised; use a negotiation"):
        Recipe.from_plain(recipe)

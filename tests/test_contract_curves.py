"""Noise priced by its own curve: one name has one cost, and the core's noise keeps its price."""

from __future__ import annotations

import dataclasses
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Facts, Known, Noise, Operations
from fedplug.api.errors import FedplugError
from fedplug_ledger.accounting import composed_epsilon
from mix_toys import clipped, install, noise, refused
from toy_components import recipe_of
from toy_protocol import build, run_protocol


@dataclasses.dataclass(frozen=True)
class Steep:
    """A Gaussian's cost, times a factor."""

    factor: float

    def rdp(self, orders: Any, multiplier: float) -> Any:
        return self.factor * orders / (2 * multiplier**2)


class Unequal:
    """The same, but never equal to another of its kind."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def rdp(self, orders: Any, multiplier: float) -> Any:
        return self.factor * orders / (2 * multiplier**2)


class Odd(fedplug.Protector):
    """Noise whose cost only its own curve states."""

    class Options(fedplug.Options):
        """The name of the mechanism, and the curve."""

        mechanism: str = ""
        factor: float = 1.0
        from_round: int = 99
        equal: bool = True
        stated: bool = True

    def protect(self, known: Known, facts: Facts) -> Operations:
        options = self.options
        factor = options.factor * (100.0 if facts.round >= options.from_round else 1.0)
        curve = (Steep(factor) if options.equal else Unequal(factor)) if options.stated else None
        known.need_norm("put std.clip before it")
        name = options.mechanism or self.name
        return (Noise.own(name, drawn, multiplier=1.0, source="secure", order=2, curve=curve),)


def drawn(values: Any, public: Any, stream: Any) -> Any:
    return values + np.random.default_rng().standard_normal(len(values))


class Halved(fedplug.PublicPlan):
    """One half of the scalars in one zone, the rest in the other."""

    plans = fedplug.Plans(zones=frozenset({"noised", "clear"}))

    def plan(self, facts: Facts) -> fedplug.Plan:
        return fedplug.Plan.of(facts, "noised", clear=np.arange(facts.layout.size) < facts.layout.size // 2)


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, {"protect": {"row.odd": Odd}, "negotiate_mask": {"row.halved": Halved}})


def odd(**options: Any) -> dict[str, Any]:
    return {"use": "row.odd", **options}


def two_zones(one: dict[str, Any], other: dict[str, Any], **general: Any) -> dict[str, Any]:
    """A recipe with noise of two kinds after two clips."""
    clear = [{"use": "std.clip", "norm": 1.0, "name": "clip-2"}, other | {"name": "noise-2"}]
    protect = {"noised": clipped(one), "clear": clear}
    return recipe_of("noised", negotiate_mask={"use": "row.halved"}, **{"rounds": 1, "protect": protect, **general})


def test_a_curve_prices_its_own_mechanism_and_nothing_else() -> None:
    released = run_protocol(two_zones(odd(), odd(factor=100.0))).protocol.ledger
    assert set(released.curves) == {"row.odd", "noise-2"}
    both = composed_epsilon(0.0, [("a", 1.0, 1), ("b", 1.0, 1)], 1e-5, {"a": Steep(1.0), "b": Steep(100.0)})
    assert released.epsilon() == pytest.approx(both)
    # Equal curves may share a name.
    same = run_protocol(two_zones(odd(mechanism="odd"), odd(mechanism="odd"))).protocol.ledger
    assert same.epsilon() == pytest.approx(composed_epsilon(0.0, [("a", 1.0, 2)], 1e-5, {"a": Steep(1.0)}))


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({}, {"factor": 100.0}, "noise-2 in zone clear gives another curve for the mechanism odd"),
        ({}, {"stated": False}, "noise-2 in zone clear gives no curve for the mechanism odd"),
        ({"stated": False}, {}, "row.odd in zone noised gives no curve for the mechanism odd"),
    ],
)
def test_two_costs_under_one_name_are_refused(one: dict[str, Any], other: dict[str, Any], said: str) -> None:
    found = refused(two_zones(odd(mechanism="odd", **one), odd(mechanism="odd", **other)))
    assert said in found
    assert "name the mechanisms apart (mechanism=self.name)" in found


@pytest.mark.parametrize("name", ["gaussian", "discrete_gaussian", "laplace", "pure"])
def test_a_curve_may_not_reprice_noise_that_the_core_prices(name: str) -> None:
    said = refused(two_zones(noise(1.0), odd(mechanism=name, factor=0.01)))
    assert "recipe.protect.clear.1" in said
    assert f"noise-2 in zone clear gives a curve for {name} noise, whose cost is known here" in said


def test_a_curve_that_changes_with_the_round_is_refused() -> None:
    said = refused(recipe_of("noised", clipped(odd(from_round=1)), rounds=2))
    assert "row.odd in zone noised gives another curve" in said
    assert "let the multiplier change from round to round and not the curve" in said
    for rounds in (1, 2):
        unequal = recipe_of("noised", clipped(odd(equal=False)), rounds=rounds)
        assert "make the curve a frozen dataclass" in refused(unequal)


def test_a_curve_that_changes_in_the_middle_stops_the_run_before_anybody_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The check sees the first round and the last."""
    protocol, engine, _ = build(recipe_of("noised", clipped(odd()), rounds=3))
    try:
        protocol.setup()
        protocol.round(0)
        given = Odd.protect
        monkeypatch.setattr(Odd, "protect", lambda self, known, facts: tuple(
            dataclasses.replace(noise, curve=Steep(100.0)) for noise in given(self, known, facts)
        ))  # fmt: skip
        with pytest.raises(FedplugError, match=r"round 2: row\.odd in zone noised gives another curve"):
            protocol.round(1)
    finally:
        engine.close()
    assert len(protocol.ledger.log) == 1
    assert protocol.books.charging.owed is None


def test_a_ledger_is_set_up_for_one_cost_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Curves that follow from the size of the model are equal in the check, which knows none."""
    given = Odd.protect
    monkeypatch.setattr(Odd, "protect", lambda self, known, facts: tuple(
        dataclasses.replace(noise, curve=Steep(1.0 + known.size * (known.zone == "clear")))
        for noise in given(self, known, facts)
    ))  # fmt: skip
    with pytest.raises(FedplugError, match=r"noise-2 in zone clear gives another curve for the mechanism odd"):
        build(two_zones(odd(mechanism="odd"), odd(mechanism="odd")))

"""Which zones were released with noise and which without."""

from __future__ import annotations

import dataclasses

import pytest
from fedplug.api.releases import Release
from fedplug.privacy.ledger_views import views
from fedplug.privacy.ledger_zones import bare_zones, is_reproducible, listed, noised_zones, summed
from ledger_toys import LOCAL, enter, ledger_of
from toy_components import recipe_of
from toy_protocol import build


def test_zones_without_noise_are_known_to_components() -> None:
    noise = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1}]
    protocol, engine, _ = build(recipe_of("noised", noise))
    engine.close()
    assert protocol.server.ctx.bare_zones == ()
    protocol, engine, _ = build(recipe_of())
    engine.close()
    assert protocol.server.ctx.bare_zones == ("clear",)


def test_zones_are_told_apart_by_what_was_released_of_them() -> None:
    ledger = enter(ledger_of(), {"noised": 500, "clear": 500}, {"noised": [LOCAL]}, rounds=2)
    assert list(noised_zones(ledger)) == ["noised"]
    assert bare_zones(ledger) == ["clear"]
    assert not is_reproducible(ledger)
    enter(ledger, {"noised": 1000}, {}, rounds=1)
    assert bare_zones(ledger) == ["noised", "clear"], "one round without noise is enough"
    assert listed(["a", "b", "c"]) == "a and b and c"


def test_a_zone_that_never_had_noise_is_noised_by_name_only() -> None:
    never = enter(ledger_of(), {"noised": 1000}, {}, rounds=1)
    assert views(never)["aggregator"].reason == "sees the so-called noised zone of every upload, without noise"
    assert views(never)["released_model"].reason == "sees sums of the so-called noised zone without noise"
    once = enter(enter(ledger_of(), {"noised": 1000}, {}, rounds=1), {"noised": 1000}, {"noised": [LOCAL]}, rounds=1)
    assert "so-called" not in views(once)["aggregator"].reason


def test_costs_of_several_zones_add_up_by_the_price_that_is_asked() -> None:
    releases = {"noised": [Release("gaussian", 2.0, 1.0)], "head": [Release("gaussian", 4.0, 1.0)]}
    ledger = enter(ledger_of(), {"noised": 500, "head": 500}, releases, rounds=3, charged=[0, 1])
    spent = summed(ledger, ledger.costs.values(), lambda cost: cost.own)
    assert spent.gaussian.tolist() == [3 * (1 / 4 + 1 / 16)] * 2 + [0.0] * 18
    assert summed(ledger, ledger.costs.values(), lambda cost: cost.total).gaussian[0] < spent.gaussian[0]


def test_releases_beyond_the_planned_rounds_take_more_of_delta() -> None:
    """A mechanism states its slack for the recipe's 10 rounds."""
    exact = dataclasses.replace(LOCAL, mechanism="discrete_gaussian", slack=1e-9, source="exact")
    ledger, found = ledger_of(), []
    for rounds in (1, 9, 1, 9, 1):
        enter(ledger, {"noised": 1000}, {"noised": [exact]}, rounds=rounds)
        found.append(summed(ledger, ledger.costs.values(), lambda cost: cost.own).slack)
    assert found == pytest.approx([1e-9, 1e-9, 2e-9, 2e-9, 3e-9])

"""The ledger: charges, survival of a restart, and no claim that is too cheap."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from examples import examples
from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug_ledger.accounting import effective_multiplier, gaussian_epsilon
from fedplug_ledger.entries import RoundEntry
from fedplug_ledger.wording import listed
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_toys import DELTA, LOCAL, SIGMA, enter, ledger_of, reason
from toy_components import recipe_of
from toy_protocol import build

# -- worked cases ------------------------------------------------------------------------------------------------------


def test_zones_of_one_client_compose() -> None:
    releases = {"noised": [LOCAL], "head": [Release("gaussian", 3.0, 1.0)]}
    ledger = enter(ledger_of(), {"noised": 900, "head": 100}, releases)
    joint = effective_multiplier([SIGMA] * 10 + [3.0] * 10)
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(joint, DELTA))
    zones = ledger.report().zones
    assert zones["noised"].epsilon == pytest.approx(1.0)


def test_a_round_without_noise_spoils_the_run() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [LOCAL]}, rounds=9)
    for _ in range(2):  # the same round, once more after an interruption
        enter(ledger, {"noised": 1000}, {}, rounds=1)
    assert "without noise" in reason(ledger, "released_model")
    assert ledger.verdict().status == "no_protection"


def test_a_repeated_round_is_paid_for_twice() -> None:
    ledger = enter(enter(ledger_of(), {"noised": 1000}, {"noised": [LOCAL]}), {"noised": 1000}, {"noised": [LOCAL]}, 1)
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(SIGMA / math.sqrt(11), DELTA))
    assert any("were repeated" in warning for warning in ledger.report().warnings)


# -- properties --------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=6), st.data())
def test_epsilon_follows_from_the_logged_multipliers_and_survives_a_restart(
    multipliers: list[float], data: st.DataObject
) -> None:
    """Item 40."""
    ledger = ledger_of(num_clients=4, key_holders={"encrypted": "clients"})
    paid: dict[int, list[float]] = {client_id: [] for client_id in range(4)}
    for round, multiplier in enumerate(multipliers):
        charged = sorted(data.draw(st.sets(st.integers(0, 3), min_size=1)))
        ledger.record(
            round,
            charged=charged,
            zone_sizes={"encrypted": 10, "noised": 90},
            total=100,
            releases={"noised": [Release("gaussian", multiplier, 1.0)]},
            contributors={"encrypted": len(charged), "noised": len(charged)},
            weights=dict.fromkeys(charged, 1.0),
        )
        if round == len(multipliers) // 2:
            restarted = ledger_of(num_clients=4, key_holders={"encrypted": "clients"})
            log = [RoundEntry.from_json(entry.to_json()) for entry in ledger.log]
            restarted.restore(json.loads(json.dumps(ledger.state())), log)
            assert restarted.report() == ledger.report()
            ledger = restarted
    for entry in ledger.report().log:
        for client_id in range(4) if entry.charged == "all" else entry.charged:
            paid[client_id].append(entry.zones["noised"].local)
    recomputed = max(gaussian_epsilon(effective_multiplier(paid[client_id]), DELTA) for client_id in paid)
    assert ledger.epsilon() == pytest.approx(recomputed, rel=1e-9)
    json.dumps(ledger.report().to_plain(for_json=True), allow_nan=False)


@settings(max_examples=examples(100), deadline=None)
@given(st.floats(0.1, 50), st.floats(0.1, 50), st.integers(1, 20))
def test_epsilon_falls_with_noise_and_grows_with_rounds(one: float, other: float, rounds: int) -> None:
    """Item 21, through the ledger."""

    def epsilon(multiplier: float, rounds: int) -> float:
        found = enter(ledger_of(), {"noised": 1}, {"noised": [Release("gaussian", multiplier, 1.0)]}, rounds).epsilon()
        assert found is not None
        return found

    assert epsilon(max(one, other), rounds) <= epsilon(min(one, other), rounds)
    assert epsilon(one, rounds) <= epsilon(one, rounds + 1)


def test_what_was_shown_before_stays_listed_where_a_run_goes_on_with_another_version_of_a_plugin() -> None:
    shown = Reveals("counts", ("server", "released_model"), voids=True, asked=("counts",), note="bare")
    before = enter(ledger_of(reveals=[shown]), {"noised": 10.0}, {"noised": [LOCAL]}, rounds=1)
    after = ledger_of(reveals=[])
    after.restore(before.state(), before.log)
    assert after.reveals == [shown]
    assert after.verdict() == before.verdict()
    after.restore(after.state(), after.log)
    assert after.reveals == [shown]


# -- zones with noise and without --------------------------------------------------------------------------------------


def test_zones_without_noise_are_known_to_components() -> None:
    noise = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1}]
    protocol, engine, _ = build(recipe_of("noised", noise))
    engine.close()
    assert protocol.server.facts.bare_zones == ()
    protocol, engine, _ = build(recipe_of())
    engine.close()
    assert protocol.server.facts.bare_zones == ("clear",)


def test_zones_are_told_apart_by_what_was_released_of_them() -> None:
    ledger = enter(ledger_of(), {"noised": 500, "clear": 500}, {"noised": [LOCAL]}, rounds=2)
    assert list(ledger.noised) == ["noised"]
    assert ledger.bare == ["clear"]
    assert not ledger.so_far.reproducible
    enter(ledger, {"noised": 1000}, {}, rounds=1)
    assert ledger.bare == ["noised", "clear"], "one round without noise is enough"
    assert listed(["a", "b", "c"]) == "a and b and c"


def test_a_zone_that_never_had_noise_is_noised_by_name_only() -> None:
    never = enter(ledger_of(), {"noised": 1000}, {}, rounds=1)
    assert never.report().views["server"].detail == "sees the so-called noised zone of every upload, without noise"
    assert never.report().views["released_model"].detail == "sees sums of the so-called noised zone without noise"
    once = enter(enter(ledger_of(), {"noised": 1000}, {}, rounds=1), {"noised": 1000}, {"noised": [LOCAL]}, rounds=1)
    assert "so-called" not in once.report().views["server"].detail


def test_costs_of_several_zones_add_up_by_the_price_that_is_asked() -> None:
    releases = {"noised": [Release("gaussian", 2.0, 1.0)], "head": [Release("gaussian", 4.0, 1.0)]}
    ledger = enter(ledger_of(), {"noised": 500, "head": 500}, releases, rounds=3, charged=[0, 1])
    spent = ledger.priced(ledger.costs, lambda _, cost: cost.own)
    assert spent.gaussian.tolist() == [3 * (1 / 4 + 1 / 16)] * 2 + [0.0] * 18
    assert ledger.priced(ledger.costs, lambda _, cost: cost.total).gaussian[0] < spent.gaussian[0]


def test_releases_beyond_the_planned_rounds_take_more_of_delta() -> None:
    """A mechanism states its slack for the recipe's 10 rounds."""
    exact = dataclasses.replace(LOCAL, mechanism="discrete_gaussian", slack=1e-9, source="exact")
    ledger, found = ledger_of(), []
    for rounds in (1, 9, 1, 9, 1):
        enter(ledger, {"noised": 1000}, {"noised": [exact]}, rounds=rounds)
        found.append(ledger.priced(ledger.costs, lambda _, cost: cost.own).slack)
    assert found == pytest.approx([1e-9, 1e-9, 2e-9, 2e-9, 3e-9])

"""Releases that are not Gaussian: how they compose, and what the ledger says of them and of single records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import fedplug
import pytest
from fedplug import Account
from fedplug.api.effects import Bound, Noise, Reveals
from fedplug.api.known import Known
from fedplug.api.releases import Release
from fedplug.privacy.accounting import gaussian_epsilon
from fedplug.privacy.ledger import Ledger
from fedplug.privacy.renyi import composed_epsilon, gaussian_rdp_epsilon, laplace_rdp, pure_rdp
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from test_ledger import DELTA, enter, ledger_of
from toy_components import build, recipe_of

MULTIPLIERS = st.floats(0.2, 50)


# -- Renyi DP ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "multiplier"), [(1.5, 0.7), (2.0, 1.0), (8.0, 3.0), (64.0, 20.0)])
def test_renyi_dp_of_laplace_is_the_integral(order: float, multiplier: float) -> None:
    def integrand(x: float) -> float:
        here, there = -abs(x) / multiplier, -abs(x - 1) / multiplier
        return math.exp(order * here + (1 - order) * there) / (2 * multiplier)

    ends = [-60 * multiplier, 0, 1, 60 * multiplier]
    whole = sum(integrate.quad(integrand, low, high)[0] for low, high in itertools.pairwise(ends))
    assert laplace_rdp(order, multiplier) == pytest.approx(math.log(whole) / (order - 1), rel=1e-6)


@given(MULTIPLIERS, st.floats(1.01, 500))
def test_laplace_costs_no_more_than_any_pure_mechanism_of_its_epsilon(multiplier: float, order: float) -> None:
    assert laplace_rdp(order, multiplier) <= pure_rdp(order, 1 / multiplier) + 1e-12
    assert pure_rdp(order, 1 / multiplier) <= 1 / multiplier + 1e-12


def test_one_pure_release_costs_its_epsilon_at_most() -> None:
    assert composed_epsilon(0.0, [("pure", 2.0, 1)], 1e-9) == pytest.approx(0.5)
    assert composed_epsilon(0.0, [("laplace", 0.25, 1)], 1e-9) == pytest.approx(4.0, abs=0.01)


def test_many_small_releases_cost_less_than_their_sum() -> None:
    assert composed_epsilon(0.0, [("laplace", 50.0, 400)], DELTA) < 0.5 * 8


@given(MULTIPLIERS, st.integers(1, 50), st.floats(0, 4))
def test_composition_grows_with_everything_that_is_added(multiplier: float, count: int, gaussian: float) -> None:
    alone = composed_epsilon(gaussian, [("laplace", multiplier, count)], DELTA)
    assert composed_epsilon(gaussian, [("laplace", multiplier, count + 1)], DELTA) >= alone
    assert composed_epsilon(gaussian + 1, [("laplace", multiplier, count)], DELTA) >= alone
    assert alone >= gaussian_epsilon(math.inf if gaussian == 0 else gaussian**-0.5, DELTA) - 1e-9


def test_gaussian_alone_is_close_to_its_own_bound() -> None:
    assert composed_epsilon(0.25, [], DELTA) == pytest.approx(
        min(gaussian_rdp_epsilon(2, DELTA), gaussian_epsilon(2, DELTA)), rel=1e-6
    )


def test_no_noise_and_unknown_mechanisms() -> None:
    assert math.isinf(composed_epsilon(math.inf, [("pure", 1.0, 1)], DELTA))
    assert math.isinf(composed_epsilon(0.0, [("laplace", 0.0, 1)], DELTA))
    with pytest.raises(ValueError, match="must be laplace or pure"):
        composed_epsilon(0.0, [("staircase", 1.0, 1)], DELTA)


# -- the ledger --------------------------------------------------------------------------------------------------------


def laplace(multiplier: float = 20.0, **facts: object) -> Release:
    return Release("laplace", multiplier, 1.0, **facts)  # type: ignore[arg-type]


def test_laplace_is_accounted_under_both_adjacencies() -> None:
    stated = enter(ledger_of(), {"noised": 1000}, {"noised": [laplace()]}).to_json()
    assert stated["epsilon"]["zero_out"]["epsilon_rdp"] == pytest.approx(
        composed_epsilon(0, [("laplace", 20, 10)], DELTA)
    )
    assert stated["epsilon"]["replace_one"]["epsilon_rdp"] == pytest.approx(
        composed_epsilon(0, [("laplace", 10, 10)], DELTA)
    )
    assert stated["views"]["aggregator"]["zero_out"] == stated["epsilon"]["zero_out"]
    assert stated["zones"]["noised"]["std"] == [pytest.approx(20 * math.sqrt(2))]
    assert stated["verdict"].startswith("DP: ")
    assert not any("no accountant" in warning for warning in stated["warnings"])


def test_only_those_who_were_asked_pay() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [laplace()]}, rounds=2)
    enter(ledger, {"noised": 1000}, {"noised": [laplace()]}, rounds=3, charged=[4])
    assert ledger.epsilon() == pytest.approx(composed_epsilon(0, [("laplace", 20, 5)], DELTA))
    assert ledger.costs["noised"].others["laplace", 20.0].tolist() == [2] * 4 + [5] + [2] * 15


def test_gaussian_in_one_zone_and_laplace_in_another_compose() -> None:
    zones = {"noised": 500.0, "rest": 500.0}
    releases = {"noised": [Release("gaussian", 5.0, 1.0)], "rest": [laplace()]}
    ledger = enter(ledger_of(), zones, releases)
    assert ledger.epsilon() == pytest.approx(composed_epsilon(10 / 25, [("laplace", 20, 10)], DELTA))
    assert ledger.epsilon() > composed_epsilon(0, [("laplace", 20, 10)], DELTA)


def test_gaussian_noise_in_the_same_chain_counts_alone() -> None:
    both = enter(ledger_of(), {"noised": 9.0}, {"noised": [Release("gaussian", 5.0, 1.0), laplace()]})
    alone = enter(ledger_of(), {"noised": 9.0}, {"noised": [Release("gaussian", 5.0, 1.0)]})
    assert both.epsilon() == alone.epsilon()


def test_a_zone_without_noise_beside_it_is_said() -> None:
    ledger = enter(ledger_of(), {"noised": 500.0, "clear": 500.0}, {"noised": [laplace()]})
    assert ledger.verdict().startswith("NO end-to-end DP: 50.0%")


def test_a_restored_ledger_is_equal() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [laplace(), laplace(3.0)]})
    again = ledger_of()
    again.restore(ledger.state())
    assert again.to_json() == ledger.to_json()


class Composer:
    """An accountant that composes; it tells what it was asked."""

    def epsilon(self, releases: list[tuple[float, float]], delta: float, adjacency: str) -> dict[str, float]:
        raise AssertionError("nothing is sampled here")

    def compose(
        self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str
    ) -> dict[str, float]:
        self.asked = getattr(self, "asked", releases)
        return {"pld": 0.25}


def test_an_accountant_that_composes_gives_the_headline() -> None:
    accountant = Composer()
    zones = {"noised": 500.0, "rest": 500.0}
    releases = {"noised": [Release("gaussian", 5.0, 1.0)], "rest": [laplace()]}
    ledger = enter(ledger_of(accountant=accountant), zones, releases, rounds=4)
    assert ledger.epsilon() == 0.25
    assert accountant.asked == [("laplace", 20.0, 1.0, 4), ("gaussian", pytest.approx(2.5), 1.0, 1)]


def test_epsilons_in_the_hundreds_are_left_to_renyi() -> None:
    accountant = Composer()
    ledger = enter(ledger_of(accountant=accountant), {"noised": 500.0}, {"noised": [laplace(0.05)]})
    assert ledger.epsilon() == pytest.approx(composed_epsilon(0, [("laplace", 0.05, 10)], DELTA))
    assert ledger.epsilon() > 150
    assert not hasattr(accountant, "asked")


def test_clients_with_large_and_small_epsilons_are_compared_by_the_same_method() -> None:
    ledger = enter(ledger_of(accountant=Composer()), {"noised": 500.0}, {"noised": [laplace()]}, rounds=1)
    enter(ledger, {"noised": 500.0}, {"noised": [laplace(0.05)]}, charged=[3])
    assert ledger.epsilon() > 150


def test_secret_shares_are_held_by_nobody() -> None:
    sealed = {"key_holders": {"encrypted": "shares"}, "published": ["encrypted"]}
    stated = enter(ledger_of(**sealed), {"encrypted": 1000}, {"encrypted": [Release("gaussian", 5.0, 1.0)]}).to_json()
    assert stated["views"]["key_holder"]["epsilon"] == "none"
    assert "shares" in stated["views"]["client_and_aggregator"]["reason"]
    mixed = ledger_of(key_holders={"encrypted": "shares", "clear": "clients"})
    enter(mixed, {"encrypted": 500, "clear": 500}, {"encrypted": [Release("gaussian", 5.0, 1.0)]})
    assert "nobody holds a key" not in mixed.to_json()["views"]["key_holder"]["reason"]
    assert stated["views"]["aggregator"]["zero_out"]["epsilon_exact"] < stated["epsilon"]["zero_out"]["epsilon_exact"]


# -- single records ----------------------------------------------------------------------------------------------------


class Steps(NamedTuple):
    multiplier: float
    rate: float
    steps: float


class Records(fedplug.AccountKeeper):
    """Epsilon is the number of steps over the multiplier."""

    account = Account(
        level="record", release=Steps, unit="one example", terms="single records, local", trust="local", covers="all"
    )

    def round_release(self, client: Any, ctx: Any) -> Steps:
        raise NotImplementedError

    def epsilon_of(self, releases: Sequence[Steps], delta: float) -> dict[str, float]:
        return {"epsilon_toy": float(sum(one.steps * one.rate / one.multiplier for one in releases))}


def keepers(kind: type[Records] = Records) -> dict[str, Records]:
    return {"record": kind(None)}


def records_of(told: list[dict[int, tuple[float, float, float]]], **facts: Any) -> Ledger:
    ledger = ledger_of(keepers=keepers(), **facts)
    for round, records in enumerate(told):
        ledger.record(
            round, charged=[0, 1, 2], zone_sizes={"clear": 1000}, total=1000, releases={}, contributors={"clear": 3},
            weights=dict.fromkeys(records, 1.0), accounts={"record": records},
        )  # fmt: skip
    return ledger


def test_records_are_stated_apart_and_for_the_worst_client() -> None:
    ledger = records_of([{0: (2.0, 0.1, 10), 1: (2.0, 0.1, 20), 2: (2.0, 0.1, 10)}] * 2)
    assert ledger.level_epsilons() == {"record": pytest.approx(2.0)}
    assert ledger.epsilon() is None
    stated = ledger.to_json()
    assert stated["levels"]["record"]["epsilon_toy"] == pytest.approx(2.0)
    assert stated["verdict"].startswith("RECORD-LEVEL DP: ε=2.00")
    assert "NO DP for clients: 100.0%" in stated["verdict"]
    again = ledger_of(keepers=keepers())
    again.restore(ledger.state())
    assert again.level_epsilons() == ledger.level_epsilons()


def test_no_verdict_opens_with_dp_of_records_beside_what_gives_them_away() -> None:
    vectors = Reveals("vectors", ("aggregator",), voids=True, note="without noise")
    told = [dict.fromkeys(range(3), (2.0, 0.1, 10.0))]
    ledger = records_of(told, reveals=[vectors])
    opening = "NO end-to-end DP: the aggregator sees vectors: without noise; record-level ε=0.50"
    assert ledger.verdict().startswith(opening)
    assert "NO DP for clients: 100.0%" in ledger.verdict()
    assert "the aggregator sees vectors" in ledger.to_json()["levels"]["record"]["covers"]
    asked = records_of(told)
    asked.message_uncovered("odd.vote", "asks clients for raw, and says nowhere what the answers show")
    assert asked.verdict().startswith("NO end-to-end DP: odd.vote asks clients for raw")


def test_a_client_that_told_nothing_has_no_guarantee() -> None:
    ledger = records_of([{0: (2.0, 0.1, 10), 1: (2.0, 0.1, 20)}])
    assert ledger.accounts["record"][2] == {None: 1}
    assert ledger.level_epsilons() == {"record": math.inf}


def test_noise_that_protects_no_record_is_no_dp() -> None:
    class Known(Records):
        def epsilon_of(self, releases: Sequence[Steps], delta: float) -> dict[str, float]:
            return {"epsilon_toy": math.inf}

    ledger = ledger_of(keepers=keepers(Known))
    ledger.record(
        0, charged=[0], zone_sizes={"clear": 1000}, total=1000, releases={}, contributors={}, weights={},
        accounts={"record": {0: (1.0, 0.1, 5)}},
    )  # fmt: skip
    assert ledger.verdict().startswith("NO DP: the noise does not protect single records")


def test_without_such_a_trainer_nothing_is_said_of_records() -> None:
    stated = enter(ledger_of(), {"noised": 1000}, {"noised": [laplace()]}).to_json()
    assert stated["levels"] == {}


# -- noise that scores scale -------------------------------------------------------------------------------------------


def test_noise_scaled_by_scores_earns_no_credit_and_none_after_un_noised_sums() -> None:
    # As the fold makes it of noise whose scale nobody can say in one number.
    bounded = Known(zone="noised", link="odd.noise", layers=(1000,), bounds=(Bound(1.0),))
    noise = Noise(mechanism="gaussian", scale=None, multiplier=5.0, scored=True)
    (scaled,) = bounded.after((noise,)).releases
    alone = enter(ledger_of(), {"noised": 1000}, {"noised": [scaled]}).to_json()
    assert alone["views"]["released_model"]["zero_out"] == alone["epsilon"]["zero_out"]
    assert any("sizes of its own" in warning for warning in alone["warnings"])
    zones = {"encrypted": 500, "noised": 500}
    with_sums = enter(ledger_of(key_holders={"encrypted": "clients"}), zones, {"noised": [scaled]}).to_json()
    assert with_sums["views"]["aggregator"]["epsilon"] == "none"
    assert "scaled by scores" in with_sums["views"]["aggregator"]["reason"]


def test_zones_without_noise_are_known_to_components() -> None:
    noise = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1}]
    protocol, engine, _ = build(recipe_of("noised", noise))
    engine.close()
    assert protocol.server.ctx.bare_zones == ()
    protocol, engine, _ = build(recipe_of())
    engine.close()
    assert protocol.server.ctx.bare_zones == ("clear",)


def test_a_log_of_secret_cohorts_does_not_name_them_by_their_records() -> None:
    from test_ledger import CENTRAL, FakeAccountant

    sampling = {"scheme": "poisson", "rate": 0.9}
    ledger = ledger_of(
        num_clients=200, sampling=sampling, accountant=FakeAccountant(), keepers=keepers()
    )
    ledger.record(
        0, charged=[3, 5], zone_sizes={"noised": 1000}, total=1000, releases={"noised": [CENTRAL]},
        contributors={"noised": 2}, weights={3: 1.0, 5: 1.0}, secret_cohort=True,
        accounts={"record": dict.fromkeys((3, 5), (2.0, 0.1, 5))},
    )  # fmt: skip
    (entry,) = ledger.to_json()["log"]
    assert entry["charged"] == "secret"
    assert "accounts" not in entry

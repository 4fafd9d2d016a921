"""The spending of clients on releases that are not Gaussian: composition, and who pays."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import PluginError
from fedplug.api.known import Known, Release
from fedplug.api.norms import Bound
from fedplug.api.operations import Noise
from fedplug_ledger.accounting import composed_epsilon, effective_multiplier, gaussian_rdp_epsilon
from fedplug_ledger.costs import SoFar, Spent, composed_by, inverse_square
from fedplug_ledger.entries import RoundEntry, ZoneEntry
from ledger_toys import DELTA, enter, laplace, ledger_of

# -- the ledger --------------------------------------------------------------------------------------------------------


def test_laplace_is_accounted_under_both_adjacencies() -> None:
    stated = enter(ledger_of(), {"noised": 1000}, {"noised": [laplace()]}).report()
    assert stated.epsilons is not None
    assert stated.epsilons.zero_out["epsilon_rdp"] == pytest.approx(
        composed_epsilon(0, [("laplace", 20, 10)], DELTA)
    )
    assert stated.epsilons.replace_one["epsilon_rdp"] == pytest.approx(
        composed_epsilon(0, [("laplace", 10, 10)], DELTA)
    )
    assert stated.views["server"].epsilon == stated.epsilon
    assert stated.zones["noised"].std == [pytest.approx(20 * math.sqrt(2))]
    assert stated.verdict.status == "protected_from_all"
    assert not any("no accountant" in warning for warning in stated.warnings)


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


def test_an_additional_zone_without_noise_is_reported() -> None:
    ledger = enter(ledger_of(), {"noised": 500.0, "clear": 500.0}, {"noised": [laplace()]})
    assert ledger.verdict().status == "no_protection"
    assert ledger.verdict().toward("server").reason == "reads the clear zone of every upload, without noise"


def test_a_restored_ledger_is_equal() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [laplace(), laplace(3.0)]})
    again = ledger_of()
    again.restore(ledger.state(), ledger.log)
    assert again.report() == ledger.report()


@pytest.mark.parametrize("stated", [{"pld": math.nan}, {"pld": -1.0}, {"pld": None}, {"pld": True}, {}, 0.5])
def test_an_accountant_that_states_no_epsilon_is_an_error_that_names_it(stated: Any) -> None:
    book = SimpleNamespace(name="toy.book", compose=lambda *asked: stated)
    with pytest.raises(PluginError, match=r"component toy\.book, compose: .* must be"):
        composed_by(book, [("laplace", 2.0, 1.0, 3)], DELTA, "zero_out")


def test_an_accountant_that_fails_is_named() -> None:
    def compose(*asked: Any) -> dict[str, float]:
        raise ZeroDivisionError("division by zero")

    with pytest.raises(PluginError, match=r"component toy\.book, compose: .*division by zero"):
        composed_by(SimpleNamespace(name="toy.book", compose=compose), [], DELTA, "zero_out")


class Composer:
    """An accountant that composes, and records its questions."""

    name = "toy.book"

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


# -- noise that scores scale -------------------------------------------------------------------------------------------


def test_noise_scaled_by_scores_earns_no_credit_and_none_after_un_noised_sums() -> None:
    # As the fold makes it from noise whose scale is not one number.
    bounded = Known(zone="noised", link="odd.noise", layers=(1000,), bounds=(Bound(1.0),))
    (scaled,) = bounded.after(Noise.by(lambda scores, present: 1.0, reads="scores", at_least=5.0)).releases
    alone = enter(ledger_of(), {"noised": 1000}, {"noised": [scaled]}).report()
    released = alone.views["released_model"].epsilons
    assert released is not None
    assert alone.epsilons is not None
    assert released.zero_out == alone.epsilons.zero_out
    assert any("different sizes" in warning for warning in alone.warnings)
    zones = {"encrypted": 500, "noised": 500}
    with_sums = enter(ledger_of(key_holders={"encrypted": "clients"}), zones, {"noised": [scaled]}).report()
    assert with_sums.views["server"].epsilon is None
    assert "scaled by scores" in with_sums.views["server"].detail


def test_the_same_was_spent_where_all_of_it_is_alike() -> None:
    one = Spent(np.array([1.0, 2.0]), {("laplace", 2.0): np.array([1, 0])})
    assert one.same(Spent(np.array([1.0, 2.0]), {("laplace", 2.0): np.array([1, 0])}))
    assert not one.same(Spent(np.array([1.0, 2.0])))
    assert not one.same(Spent(np.array([1.0, 3.0]), {("laplace", 2.0): np.array([1, 0])}))
    assert not one.same(Spent(np.array([1.0, 2.0]), {("laplace", 2.0): np.array([1, 1])}))
    assert not one.same(Spent(np.array([1.0, 2.0]), {("laplace", 2.0): np.array([1, 0])}, slack=0.1))


def entry(secret_cohort: bool = False, **zones: dict[str, Any]) -> RoundEntry:
    return RoundEntry(1, "all", 100, {zone: ZoneEntry(10.0, **facts) for zone, facts in zones.items()}, secret_cohort)


def release(**changes: Any) -> Release:
    return Release("gaussian", 1.0, 1.0, **{"trust": "distributed", **changes})


def entered(*entries: RoundEntry) -> SoFar:
    so_far = SoFar()
    for each in entries:
        so_far.enter(each)
    return so_far


def test_zones_of_one_round_under_central_noise_are_one_release() -> None:
    """1/m^2 adds up: 1/9 + 1/16 = 1/2.4^2."""
    both = entry(True, a={"central": 3.0}, b={"central": 4.0})
    so_far = entered(both, both)
    assert [effective_multiplier(parts) for parts in so_far.drawn] == [pytest.approx(2.4)] * 2
    assert not so_far.exposed


def test_one_round_that_shows_who_took_part_exposes_the_run() -> None:
    secret = entry(True)
    assert not entered(secret).exposed
    assert entered(secret, entry(False), secret).exposed
    assert entered(RoundEntry(1, "all", 100, {})).exposed, "nothing said is nothing promised"


@pytest.mark.parametrize("noise", [{"local": 1.0}, {"central": 1.0}, {"other": ("laplace", 2.0)}])
def test_a_link_that_voids_noise_counts_where_no_noise_is_known(noise: dict[str, Any]) -> None:
    bare = entry(clear={"freed": ["odd.b", "odd.a"]})
    assert [*entered(bare, bare).freed] == ["odd.b in zone clear", "odd.a in zone clear"]
    assert not entered(entry(clear={"freed": ["odd.a"], **noise})).freed


def test_what_one_release_says_holds_for_the_run() -> None:
    quiet = entered(entry(a={"local": 1.0, "releases": [release()]}))
    assert (quiet.reproducible, quiet.single, quiet.scored) == (False, set(), set())
    loud = [release(source="reproducible"), release(trust="local"), release(scored=True)]
    so_far = entered(entry(a={"local": 1.0, "releases": loud}, b={"local": 1.0, "releases": [release()]}))
    assert (so_far.reproducible, so_far.single, so_far.scored) == (True, {"a"}, {"a"})


def test_noise_beyond_all_numbers_costs_nothing() -> None:
    assert inverse_square(1e300) == 0
    assert gaussian_rdp_epsilon(2.0, 1e-320) > gaussian_rdp_epsilon(2.0, 1e-300) > 0

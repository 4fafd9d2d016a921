"""Epsilons of a run: of zones with noise, and of levels for which components keep account."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import fedplug
import pytest
from account_toys import Records, Steps
from fedplug.api.errors import PluginError
from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug_ledger.accounting import effective_multiplier, gaussian_epsilon
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import EncryptionReport
from fedplug_ledger.spent import level_epsilons, view_epsilons
from fedplug_ledger.views import units
from ledger_toys import CENTRAL, DELTA, LOCAL, SIGMA, FakeAccountant, enter, exact, laplace, ledger_of


def test_secret_shares_are_held_by_nobody() -> None:
    sealed = {"key_holders": {"encrypted": "shares"}, "published": ["encrypted"]}
    stated = enter(ledger_of(**sealed), {"encrypted": 1000}, {"encrypted": [Release("gaussian", 5.0, 1.0)]}).report()
    assert stated.views["key_holder"].epsilon is None
    assert "shares" in stated.views["client_and_server"].detail
    mixed = ledger_of(key_holders={"encrypted": "shares", "clear": "clients"})
    enter(mixed, {"encrypted": 500, "clear": 500}, {"encrypted": [Release("gaussian", 5.0, 1.0)]})
    assert mixed.report().views["key_holder"].reason == "every client holds the key"
    least, most = stated.views["server"].epsilon, stated.epsilon
    assert least is not None
    assert most is not None
    assert least < most


@pytest.mark.parametrize("shares", [1, 2])
def test_a_view_of_as_many_clients_as_open_an_upload_opens_it(shares: int) -> None:
    """If one share opens, every client has the key. Two are more than the one client of these views has."""
    closed = {"encrypted": EncryptionReport("shares", True, opens_with=shares)}
    noise = {"encrypted": [dataclasses.replace(LOCAL, trust="distributed")]}
    together = enter(ledger_of(encryption=closed), {"encrypted": 1000}, noise).report().views["client_and_server"]
    keyed = enter(ledger_of(key_holders={"encrypted": "clients"}), {"encrypted": 1000}, noise)
    opened = keyed.report().views["client_and_server"]
    assert together.epsilon is not None
    assert opened.epsilon is not None
    assert (together.epsilon == opened.epsilon) == (shares == 1)
    assert together.epsilon <= opened.epsilon
    assert ("those of 2 clients do" in together.detail) == (shares == 2)


@pytest.mark.parametrize(("shares", "least", "fewest"), [(6, 7, 6), (6, 6, 5), (6, 3, 5), (2, 3, 2), (2, 2, 2)])
def test_who_take_their_own_updates_out_of_the_smallest_sum_see_one(shares: int, least: int, fewest: int) -> None:
    """A sum that six open holds six or more updates. Five of them see the sixth's, even without its share."""
    closed = {"encrypted": EncryptionReport("shares", True, opens_with=shares)}
    ledger = dataclasses.replace(ledger_of(encryption=closed), min_clients=least)
    enter(ledger, {"encrypted": 1000}, {})
    said = f"nobody holds the key: {fewest} clients together could open an upload"
    assert ledger.report().views["key_holder"].reason == said


def keepers(kind: type[Records] = Records) -> dict[str, Records]:
    return {"record": kind(None)}


def records_of(
    told: list[dict[int, tuple[float, float, float]]], kind: type[Records] = Records, **facts: Any
) -> Ledger:
    ledger = ledger_of(keepers=keepers(kind), **facts)
    for round, records in enumerate(told):
        ledger.record(
            round, charged=[0, 1, 2], zone_sizes={"clear": 1000}, total=1000, releases={}, contributors={"clear": 3},
            weights=dict.fromkeys(records, 1.0), accounts={"record": records},
        )  # fmt: skip
    return ledger


def test_records_are_stated_apart_and_for_the_worst_client() -> None:
    ledger = records_of([{0: (2.0, 0.1, 10), 1: (2.0, 0.1, 20), 2: (2.0, 0.1, 10)}] * 2)
    assert level_epsilons(ledger) == {"record": pytest.approx(2.0)}
    assert ledger.epsilon() is None
    stated = ledger.report()
    assert stated.levels["record"].epsilons["epsilon_toy"] == pytest.approx(2.0)
    assert stated.verdict.status == "protected_from_all"
    line = stated.views["server"]
    assert (line.unit, line.guarantee) == ("record", "epsilon 2.00 for each record")
    assert line.rests_on == [f"on the word of {Records(None).name}"]
    assert line.not_covered[0] == "a client as a whole"
    assert "of a whole client: reads the clear zone of every upload, without noise" in line.detail
    assert stated.verdict.headline.startswith("Each record's data are protected from the server")
    weak = records_of([{0: (2.0, 0.1, 500), 1: (2.0, 0.1, 20), 2: (2.0, 0.1, 10)}])
    assert weak.verdict().status == "no_meaningful_guarantee"
    said = "epsilon 25.00 for each record promises too little: it is above 20"
    assert {line.reason for line in weak.verdict().lines if line.state != "absent"} == {said}
    again = ledger_of(keepers=keepers())
    again.restore(ledger.state(), ledger.log)
    assert level_epsilons(again) == level_epsilons(ledger)


def test_a_delta_is_compared_with_the_number_of_what_it_is_per() -> None:
    """Three clients of 8 records each: a delta of 0.3 is below 1 / 3, and lets 7 of 24 records out."""
    told = [dict.fromkeys(range(3), (2.0, 1 / 8, 4.0))] * 2
    for delta, reason in ((0.3, "delta 0.3 is not below 1 / 24 records"), (1 / 25, "")):
        stated = records_of(told, delta=delta, num_clients=3).report()
        lines = [line for line in stated.verdict.lines if line.state != "absent"]
        assert {line.reason for line in lines} == {reason}
        assert {line.guarantee for line in lines} == {"no guarantee" if reason else "epsilon 0.50 for each record"}
        assert stated.verdict.status == ("no_meaningful_guarantee" if reason else "protected_from_all")
        assert any(warning.startswith(f"{reason};") for warning in stated.warnings) == bool(reason)


def test_units_are_those_of_the_clients_that_took_part() -> None:
    """Of rounds that say different numbers the largest counts, and of a client that says none, none is known."""
    told = [{0: (2.0, 0.5, 1.0), 1: (2.0, 0.25, 1.0), 2: (2.0, 0.25, 1.0)}]
    assert units(records_of(told), "record") == 2 + 4 + 4
    assert units(records_of([*told, {**told[0], 0: (2.0, 0.1, 1.0)}]), "record") == 10 + 4 + 4
    assert units(records_of([{0: (2.0, 0.5, 1.0)}]), "record") == math.inf


def test_no_number_of_units_is_no_guarantee() -> None:
    class Silent(Records):
        units = fedplug.AccountKeeper.units

    class Wrong(Records):
        def units(self, release: Steps) -> float:
            return math.nan

    told = [dict.fromkeys(range(3), (2.0, 0.1, 10.0))]
    silent = records_of(told, kind=Silent)
    said = "delta 1e-05 is per record, and nobody says how many there are"
    assert {line.reason for line in silent.verdict().lines if line.state != "absent"} == {said}
    assert silent.verdict().status == "no_meaningful_guarantee"
    with pytest.raises(PluginError, match=r"component toy\.records, units: nan must be the number of a client"):
        records_of(told, kind=Wrong).verdict()


def test_a_delta_for_clients_is_compared_with_their_number() -> None:
    releases = {"noised": [CENTRAL]}
    for delta, reason in ((DELTA, ""), (0.3, "delta 0.3 is not below 1 / 10 clients")):
        ledger = enter(ledger_of(num_clients=10, delta=delta), {"noised": 1000}, releases, charged=list(range(10)))
        assert ledger.verdict().toward("released_model").reason == reason


def test_no_party_that_is_shown_what_gives_records_away_has_a_guarantee_of_them() -> None:
    vectors = Reveals("vectors", ("server",), voids=True, note="without noise")
    told = [dict.fromkeys(range(3), (2.0, 0.1, 10.0))]
    ledger = records_of(told, reveals=[vectors])
    verdict = ledger.verdict()
    assert verdict.status == "protected_from_some"
    assert {line.party for line in verdict.lines if line.state == "none"} == {"server", "client_and_server"}
    assert verdict.toward("server").reason == "sees vectors, which no noise covers"
    assert verdict.toward("released_model").guarantee == "epsilon 0.50 for each record"
    assert "the server: sees vectors" in ledger.report().levels["record"].covers
    vague = records_of([dict.fromkeys(range(3), (2.0, 0.1, 500.0))], reveals=[vectors]).verdict()
    assert vague.status == "no_meaningful_guarantee"
    asked = records_of(told)
    asked.message_uncovered("odd.vote", "asks clients for raw, and says nowhere what the answers show")
    assert asked.verdict().status == "no_protection"


def test_a_client_that_told_nothing_has_no_guarantee() -> None:
    ledger = records_of([{0: (2.0, 0.1, 10), 1: (2.0, 0.1, 20)}])
    assert ledger.accounts["record"][2] == {None: 1}
    assert level_epsilons(ledger) == {"record": math.inf}


def test_noise_that_protects_no_record_is_no_dp() -> None:
    class Known(Records):
        def epsilon_of(self, releases: Sequence[Steps], delta: float) -> dict[str, float]:
            return {"epsilon_toy": math.inf}

    ledger = ledger_of(keepers=keepers(Known))
    ledger.record(
        0, charged=[0], zone_sizes={"clear": 1000}, total=1000, releases={}, contributors={}, weights={},
        accounts={"record": {0: (1.0, 0.1, 5)}},
    )  # fmt: skip
    assert ledger.verdict().status == "no_protection"


def test_without_such_a_trainer_nothing_is_said_of_records() -> None:
    stated = enter(ledger_of(), {"noised": 1000}, {"noised": [laplace()]}).report()
    assert stated.levels == {}


def test_a_log_of_secret_cohorts_does_not_name_them_by_their_records() -> None:
    sampling = {"scheme": "poisson", "rate": 0.9}
    ledger = ledger_of(
        num_clients=200, sampling=sampling, accountant=FakeAccountant(), keepers=keepers()
    )
    ledger.record(
        0, charged=[3, 5], zone_sizes={"noised": 1000}, total=1000, releases={"noised": [CENTRAL]},
        contributors={"noised": 2}, weights={3: 1.0, 5: 1.0}, secret_cohort=True,
        accounts={"record": dict.fromkeys((3, 5), (2.0, 0.1, 5))},
    )  # fmt: skip
    (entry,) = ledger.report().log
    assert entry.charged == "secret"
    assert not entry.accounts


def test_local_noise_earns_no_credit_for_sampling() -> None:
    accountant = FakeAccountant()
    ledger = ledger_of(sampling={"scheme": "poisson", "rate": 0.1}, accountant=accountant)
    enter(ledger, {"noised": 1000}, {"noised": [LOCAL]}, charged=[0, 3])
    enter(ledger, {"noised": 1000}, {"noised": [LOCAL]}, rounds=5, charged=[3])
    assert ledger.epsilon() == pytest.approx(gaussian_epsilon(SIGMA / math.sqrt(15), DELTA)), (
        "client 3 took part 15 times"
    )
    assert accountant.asked == []
    assert "knows that its client took part" in ledger.report().sampling.why


def test_poisson_sampling_amplifies_central_noise_for_the_released_model_only() -> None:
    accountant = FakeAccountant()
    ledger = ledger_of(num_clients=500, sampling={"scheme": "poisson", "rate": 0.1}, accountant=accountant)
    two = {"noised": [CENTRAL], "head": [Release("gaussian", 3.0, 1.0, trust="central")]}
    enter(ledger, {"noised": 900, "head": 100}, two, charged=[0])
    assert ledger.epsilon() == 0.5
    assert view_epsilons(ledger, 0.5) == {"released_model": 0.5}  # the others follow from who was drawn
    # One coin a client and round: the zones of a round are one release, then sampled.
    releases, delta, adjacency = accountant.asked[0]
    assert (delta, adjacency) == (DELTA, "zero_out")
    assert releases == [("gaussian", pytest.approx(effective_multiplier([SIGMA, 3.0])), 0.1, 10)]
    epsilons = ledger.report().views["released_model"].epsilons
    assert epsilons is not None
    released = epsilons.zero_out
    assert (released["epsilon_pld"], released["epsilon_rdp"]) == (0.5, 0.6)
    unsampled = gaussian_epsilon(effective_multiplier([SIGMA, 3.0]) / math.sqrt(10), DELTA)
    assert released["epsilon_without_sampling"] == exact(ledger, "client") == pytest.approx(unsampled)


def test_nothing_in_a_published_ledger_follows_from_secret_coins() -> None:
    """Client 0 against one that knows all other coins: each of the others is drawn in one round of the four."""
    published = []
    for coins in ((), (0,), (0, 1, 2, 3)):
        keepers = {"record": Records(None)}
        ledger = ledger_of(
            num_clients=500, sampling={"scheme": "poisson", "rate": 0.1}, accountant=FakeAccountant(), keepers=keepers
        )
        for round in range(4):
            cohort = [client for client in range(1, 500) if client % 4 == round] + [0] * (round in coins)
            ledger.record(
                round, charged=cohort, zone_sizes={"noised": 10}, total=10, releases={"noised": [CENTRAL]},
                contributors={"noised": len(cohort)}, weights=dict.fromkeys(cohort, 1.0), secret_cohort=True,
                accounts={"record": dict.fromkeys(range(500), (2.0, 0.1, 5.0))},
            )  # fmt: skip
        published.append(ledger.report())
    assert published[0].sampling.amplified
    assert published[0].levels["record"].epsilons["epsilon_toy"] == pytest.approx(4 * 0.25)
    assert published[0] == published[1] == published[2]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"sampling": {"scheme": "fixed", "rate": 0.1}, "accountant": FakeAccountant()}, "fixed size"),
        ({"sampling": {"scheme": "poisson", "rate": 0.1}}, "names no accountant"),
        (
            {"sampling": {"scheme": "poisson", "rate": 0.1, "source": "reproducible"}, "accountant": FakeAccountant()},
            "recipe's seed",
        ),
    ],
)
def test_sampling_without_a_proof_earns_no_credit(facts: dict[str, Any], why: str) -> None:
    ledger = enter(ledger_of(**facts), {"noised": 1000}, {"noised": [CENTRAL]}, charged=[0, 1])
    assert ledger.epsilon() == pytest.approx(1.0)
    assert why in ledger.report().sampling.why
    assert any(why in warning for warning in ledger.report().warnings)


@pytest.mark.parametrize(
    ("clients", "zones", "secret_cohort", "why"),
    [
        (500, {"noised": 1000}, True, None),
        (500, {"noised": 900, "clear": 100}, True, "sums of the clear zone have no noise, and show who took part"),
        (500, {"noised": 1000}, False, "besides the noised sums shows who took part"),
        # 0.9^20 + 20 * 0.1 * 0.9^19
        (20, {"noised": 1000}, True, "fewer than min_clients=2 clients is skipped.*probability 4e-01"),
    ],
)
def test_sampling_earns_credit_only_for_a_cohort_that_nothing_shows(
    clients: int, zones: dict[str, float], secret_cohort: bool, why: str | None
) -> None:
    sampling = {"scheme": "poisson", "rate": 0.1}
    ledger = ledger_of(num_clients=clients, sampling=sampling, accountant=FakeAccountant())
    enter(ledger, zones, {"noised": [CENTRAL]}, charged=[0, 3], secret_cohort=secret_cohort)
    found = ledger.report()
    assert found.sampling.amplified == (why is None)
    assert ledger.epsilon() == pytest.approx(1.0 if why else 0.5)
    # What is published shows neither who took part nor how many did; the checkpoint remembers.
    assert {str(entry.charged) for entry in found.log} == {"[0, 3]" if why else "secret"}
    assert why is not None or found.log[0].zones["noised"].sum_factor is None
    assert ledger.log[0].charged == [0, 3]
    assert why is None or re.search(why, found.sampling.why)


def test_sampling_earns_no_credit_with_an_unstated_answer() -> None:
    sampling = {"scheme": "poisson", "rate": 0.9}
    ledger = ledger_of(num_clients=200, sampling=sampling, accountant=FakeAccountant())
    enter(ledger, {"noised": 1000}, {"noised": [CENTRAL]})
    assert ledger.report().sampling.amplified
    ledger.message_uncovered("odd.groups", "asks clients for label, and says nowhere what the answers show")
    assert "odd.groups asks clients for label" in ledger.report().sampling.why


@pytest.mark.parametrize(
    ("slack", "set_aside", "stated"),
    [(0.0, 0.0, 0.5), (1e-9, 0.01, 0.5), (1.5e-6, 0.5, 0.5), (4e-6, 0.5, math.inf)],
)
def test_what_a_mechanism_takes_of_delta_is_taken_off_under_sampling_too(
    slack: float, set_aside: float, stated: float
) -> None:
    """At epsilon 0.5 it takes 2.65 times the slack."""
    accountant = FakeAccountant()
    ledger = ledger_of(num_clients=500, sampling={"scheme": "poisson", "rate": 0.1}, accountant=accountant)
    enter(ledger, {"noised": 1000}, {"noised": [dataclasses.replace(CENTRAL, slack=slack)]}, charged=[0])
    assert ledger.epsilon() == stated
    assert (1 - set_aside) * DELTA in {delta for _, delta, _ in accountant.asked}
    assert slack == 0 or DELTA not in {delta for _, delta, _ in accountant.asked}


def test_an_accountant_that_knows_no_sampled_noise_is_refused() -> None:
    accountant = SimpleNamespace(name="odd.book", compose=lambda *asked: None)
    ledger = ledger_of(num_clients=500, sampling={"scheme": "poisson", "rate": 0.1}, accountant=accountant)
    enter(ledger, {"noised": 1000}, {"noised": [CENTRAL]}, charged=[0])
    with pytest.raises(PluginError, match=r"odd\.book states no epsilon of sampled Gaussian releases"):
        ledger.epsilon()


def test_sampling_earns_no_credit_where_clients_stay_away_too_often() -> None:
    """A round with too few clients is visible, and follows from the sample."""
    facts: dict[str, Any] = {
        "num_clients": 500, "sampling": {"scheme": "poisson", "rate": 0.5}, "accountant": FakeAccountant()
    }  # fmt: skip
    for presence, why in ((1.0, None), (0.9, None), (0.05, "fewer than min_clients=2 clients is"), (0.0, "1e+00")):
        ledger = ledger_of(**facts, presence=presence)
        enter(ledger, {"noised": 1000}, {"noised": [CENTRAL]}, charged=[0, 3], secret_cohort=True)
        found = ledger.report().sampling
        assert found.amplified == (why is None), found.why
        assert why is None or why in found.why

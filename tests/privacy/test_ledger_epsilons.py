"""Epsilons of a run: of zones with noise, and of levels of which components keep account."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from account_toys import Records, Steps
from fedplug.api.effects import Reveals
from fedplug.api.releases import Release
from fedplug.privacy.ledger import Ledger
from ledger_toys import CENTRAL, FakeAccountant, enter, laplace, ledger_of


def test_secret_shares_are_held_by_nobody() -> None:
    sealed = {"key_holders": {"encrypted": "shares"}, "published": ["encrypted"]}
    stated = enter(ledger_of(**sealed), {"encrypted": 1000}, {"encrypted": [Release("gaussian", 5.0, 1.0)]}).report()
    assert stated.views["key_holder"].epsilon is None
    assert "shares" in stated.views["client_and_aggregator"].reason
    mixed = ledger_of(key_holders={"encrypted": "shares", "clear": "clients"})
    enter(mixed, {"encrypted": 500, "clear": 500}, {"encrypted": [Release("gaussian", 5.0, 1.0)]})
    assert "nobody holds a key" not in mixed.report().views["key_holder"].reason
    least, most = stated.views["aggregator"].epsilon, stated.epsilon
    assert least is not None
    assert most is not None
    assert least < most


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
    stated = ledger.report()
    assert stated.levels["record"].epsilons["epsilon_toy"] == pytest.approx(2.0)
    assert stated.verdict.startswith("RECORD-LEVEL DP: ε=2.00")
    assert "NO DP for clients: 100.0%" in stated.verdict
    again = ledger_of(keepers=keepers())
    again.restore(ledger.state(), ledger.log)
    assert again.level_epsilons() == ledger.level_epsilons()


def test_no_verdict_opens_with_dp_of_records_beside_what_gives_them_away() -> None:
    vectors = Reveals("vectors", ("aggregator",), voids=True, note="without noise")
    told = [dict.fromkeys(range(3), (2.0, 0.1, 10.0))]
    ledger = records_of(told, reveals=[vectors])
    opening = "NO end-to-end DP: the aggregator sees vectors: without noise; record-level ε=0.50"
    assert ledger.verdict().startswith(opening)
    assert "NO DP for clients: 100.0%" in ledger.verdict()
    assert "the aggregator sees vectors" in ledger.report().levels["record"].covers
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

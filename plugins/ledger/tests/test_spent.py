"""What is said after every round."""

from __future__ import annotations

import pytest
from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.spent import priced_part, view_epsilons
from ledger_toys import (
    CENTRAL,
    LOCAL,
    VECTORS,
    enter,
    held,
    laplace,
    ledger_of,
    reason,
)


def test_a_voided_view_is_named_with_zones_without_noise() -> None:
    ledger = ledger_of(key_holders={"encrypted": "clients"}, reveals=[VECTORS])
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    assert ledger.verdict().toward("server").reason == "sees vectors, which no noise covers"
    assert ledger.verdict().toward("client").reason == "sees sums over clients of the encrypted zone, without noise"


@pytest.mark.parametrize("release", [LOCAL, CENTRAL])
def test_an_answer_that_nobody_states_voids_every_view_and_is_named(release: Release) -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
    ledger.message_uncovered("odd.groups", "asks clients for label, and says nowhere what the answers show")
    for line in ledger.verdict().lines:
        if line.state != "absent":
            assert "odd.groups asks clients for label, and says nowhere" in reason(ledger, line.party)
            assert line.reason == "odd.groups has answers sent that no statement covers"
    assert ledger.verdict().status == "no_protection"
    assert priced_part(ledger) == "noised"


@pytest.mark.parametrize(
    "ledger",
    [
        enter(
            ledger_of(key_holders={"encrypted": "clients"}), {"encrypted": 9}, {"encrypted": [held(108.0, 2.0**-17)]}
        ),
        enter(ledger_of(key_holders={"encrypted": "clients"}), {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]}),
        enter(ledger_of(), {"noised": 1000}, {"noised": [CENTRAL]}),
        enter(ledger_of(), {"noised": 1000}, {"noised": [laplace()]}),
        enter(
            ledger_of(reveals=[Reveals("all", ("server",), voids=True, note="it does")]),
            {"noised": 9},
            {"noised": [LOCAL]},
        ),
    ],
)
def test_a_round_has_the_epsilons_that_the_report_has(ledger: Ledger) -> None:
    stated = {name: view.epsilon for name, view in ledger.report().views.items() if view.epsilon is not None}
    assert view_epsilons(ledger, ledger.epsilon()) == stated
    assert stated


def test_a_run_leads_with_the_part_that_its_epsilon_prices() -> None:
    mixed = enter(
        ledger_of(key_holders={"encrypted": "clients"}), {"noised": 7, "encrypted": 3}, {"noised": [LOCAL]}
    )
    assert priced_part(mixed) == "noised"
    whole = enter(ledger_of(), {"noised": 10}, {"noised": [LOCAL]})
    assert priced_part(whole) == ""


def test_a_priced_part_is_named_where_what_somebody_sees_voids() -> None:
    ledger = enter(ledger_of(reveals=[VECTORS]), {"noised": 1000}, {"noised": [LOCAL]})
    assert "sees vectors" in reason(ledger, "server")
    assert ledger.verdict().status == "protected_from_some"
    assert priced_part(ledger) == "noised"

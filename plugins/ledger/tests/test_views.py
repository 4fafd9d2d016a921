"""The permitted claims for each adversary's view."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from examples import examples
from fedplug.api.known import Release
from fedplug.api.roles import Reveals
from fedplug_ledger.accounting import effective_multiplier, gaussian_epsilon
from fedplug_ledger.ledger import Ledger
from hypothesis import given, settings
from ledger_toys import (
    CENTRAL,
    CLIENTS,
    DELTA,
    LOCAL,
    SIGMA,
    VECTORS,
    enter,
    exact,
    held,
    ledger_of,
    reason,
    shares,
)


def test_the_server_pays_for_un_noised_values_that_shape_later_uploads() -> None:
    """19 other uploads in each of rounds 2 to 10, each moved by at most twice the clipping norm."""
    ledger = ledger_of(key_holders={"encrypted": "clients"})
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    expected = effective_multiplier([SIGMA] * 10 + [SIGMA / 2] * (19 * 9))
    assert exact(ledger, "server") == pytest.approx(gaussian_epsilon(expected, DELTA))
    one_round = enter(
        ledger_of(key_holders={"encrypted": "clients"}),
        {"encrypted": 100, "noised": 900},
        {"noised": [LOCAL]},
        rounds=1,
    )
    assert exact(one_round, "server") == pytest.approx(gaussian_epsilon(SIGMA, DELTA))


def test_a_key_server_that_answers_the_server_leaves_it_no_guarantee() -> None:
    ledger = ledger_of(key_holders={"encrypted": "key_server"})
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    assert "decrypted sums of the encrypted zone" in reason(ledger, "server")


@pytest.mark.parametrize("holder", ["clients", "key_server"])
def test_encryption_alone_is_no_dp(holder: str) -> None:
    ledger = enter(ledger_of(key_holders={"encrypted": holder}), {"encrypted": 1000}, {})
    assert ledger.epsilon() is None
    verdict = ledger.verdict()
    server, holds = verdict.toward("server"), verdict.toward("key_holder")
    if holder == "clients":  # the server reads ciphertexts only, and everybody else sums without noise
        assert (verdict.status, server.guarantee) == (
            "protected_from_some", "learns nothing of the updates (epsilon 0)"
        )
        assert server.rests_on == ["as long as the encryption holds"]
        assert (holds.state, holds.reason) == ("absent", "every client holds the key")
    else:
        assert verdict.status == "no_protection"
        assert server.reason == "sees sums over clients of the encrypted zone, without noise"
        assert holds.reason == "sees sums over clients of the encrypted zone, without noise"


def test_a_component_of_ones_own_is_named_where_nothing_but_encryption_hides_a_zone() -> None:
    ledger = ledger_of(key_holders={"encrypted": "clients"}, words=["mine.seal"])
    line = enter(ledger, {"encrypted": 1000}, {}).verdict().toward("server")
    assert line.rests_on == ["as long as the encryption holds", "on the word of mine.seal"]


def test_noise_below_encryption_protects_from_everybody() -> None:
    ledger = ledger_of(key_holders={"encrypted": "clients"})
    enter(ledger, {"encrypted": 1000}, {"encrypted": [held(108.0, 2.0**-17)]})
    assert ledger.verdict().status == "protected_from_all"
    assert exact(ledger, "server") == 0
    assert exact(ledger, "client_and_server") == pytest.approx(1.0)
    assert exact(ledger, "client") < exact(ledger, "client_and_server")
    assert ledger.verdict().toward("key_holder").state == "absent"


def test_a_key_server_pays_for_what_it_opens_before_noise_is_added() -> None:
    ledger = ledger_of(key_holders={"encrypted": "key_server", "noised": "clients"}, min_clients=3)
    enter(ledger, {"encrypted": 100, "noised": 900}, {"encrypted": [CENTRAL], "noised": [LOCAL]})
    assert "opens sums of the encrypted zone before the noise is added" in reason(ledger, "key_holder")
    local = ledger_of(key_holders={"encrypted": "key_server", "noised": "clients"}, min_clients=3)
    enter(local, {"encrypted": 100, "noised": 900}, {"encrypted": [held(108.0, 2.0**-17)], "noised": [LOCAL]})
    # A client subtracts its own noise from the sums, which the key server, being none, cannot.
    assert exact(local, "key_holder") < exact(local, "client")


def test_the_opener_of_sums_gets_no_credit_for_later_noise() -> None:
    under, over = held(108.0, 2.0**-17), dataclasses.replace(CENTRAL, noise_multiplier=100 * SIGMA)
    for holder in ("key_server", "shares"):
        plain = ledger_of(key_holders={"encrypted": holder}, published=["encrypted"])
        noised = ledger_of(key_holders={"encrypted": holder}, published=["encrypted"])
        enter(plain, {"encrypted": 1000}, {"encrypted": [under]})
        enter(noised, {"encrypted": 1000}, {"encrypted": [under, over]})
        for view in ("server", "client_and_server", *(["key_holder"] if holder == "key_server" else [])):
            assert exact(noised, view) >= exact(plain, view), (holder, view)
        assert exact(noised, "released_model") < exact(plain, "released_model")


def test_central_noise_needs_a_trusted_server() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [CENTRAL]})
    assert ledger.epsilon() == pytest.approx(1.0)
    assert exact(ledger, "released_model") == exact(ledger, "client") == pytest.approx(1.0)
    assert "is trusted" in reason(ledger, "server")
    assert "below it" in reason(ledger, "client_and_server")
    assert "as long as the server really adds it" in ledger.verdict().toward("released_model").rests_on
    assert ledger.verdict().status == "protected_from_some"


def test_reproducible_noise_protects_nobody() -> None:
    release = Release("gaussian", SIGMA, 1.0, source="reproducible")
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
    assert ledger.verdict().status == "no_protection"
    for view in ("server", "client", "client_and_server", "released_model"):
        assert "knows the seed" in reason(ledger, view)


@settings(max_examples=examples(100), deadline=None)
@given(shares)
def test_no_view_of_sums_costs_more_than_the_upload_itself(weights: list[float]) -> None:
    ledger = ledger_of(num_clients=len(weights), delta=0.01)
    enter(ledger, {"noised": 1000}, {"noised": [LOCAL]}, 3, weights=dict(enumerate(weights)))
    assert exact(ledger, "released_model") <= exact(ledger, "client") <= exact(ledger, "client_and_server")


@pytest.mark.parametrize(
    ("release", "to", "left"),
    [
        (CENTRAL, "server", {"client", "released_model"}),  # it is trusted with the values themselves
        (CENTRAL, "client_and_server", {"client", "released_model"}),
        (CENTRAL, "client", {"released_model"}),
        (CENTRAL, "released_model", set()),
        (LOCAL, "client", {"server", "released_model"}),
        (LOCAL, "client_and_server", {"server", "client", "released_model"}),
        (LOCAL, "key_holder", {"server", "client", "client_and_server", "released_model"}),  # there is none
    ],
)
def test_who_is_shown_what_voids_has_no_guarantee_and_nobody_else_loses_one(
    release: Release, to: Any, left: set[str]
) -> None:
    shown = [dataclasses.replace(VECTORS, to=(to,))]
    ledger = enter(ledger_of(reveals=shown), {"noised": 1000}, {"noised": [release]})
    assert {line.party for line in ledger.verdict().lines if line.state == "guaranteed"} == left


def test_a_server_that_reads_only_ciphertexts_has_a_view_to_lose() -> None:
    ledger = ledger_of(key_holders={"encrypted": "clients"}, reveals=[VECTORS])
    enter(ledger, {"encrypted": 1000}, {"encrypted": [held(108.0, 2.0**-17)]})
    assert ledger.verdict().toward("server").reason == "sees vectors, which no noise covers"


@pytest.mark.parametrize("to", ["client", "key_holder"])
def test_clients_that_hold_the_key_are_its_holders(to: Any) -> None:
    shown = [Reveals("everybody's counts", (to,), voids=True, note="in the clear")]
    for holder, lost in (("clients", {"client"}), ("key_server", {to})):
        ledger = ledger_of(key_holders={"encrypted": holder}, reveals=shown, min_clients=3)
        enter(ledger, {"encrypted": 10.0}, {"encrypted": [LOCAL]})
        views = ledger.report().views
        assert {name for name in ("client", "key_holder") if views[name].state == "none"} == lost


def under_shares(shut: int, *, asked: int = 0, rounds: int = 10) -> Ledger:
    """A run under shares of three clients, of which `shut` rounds stayed closed."""
    ledger = ledger_of(key_holders={"encrypted": "shares"})
    noise = {"encrypted": [dataclasses.replace(LOCAL, trust="distributed", range=math.inf, step=0.0)]}
    for round in range(rounds):
        ledger.record(
            round, charged=range(CLIENTS), total=100, zone_sizes={"encrypted": 100}, releases=noise,
            weights=dict.fromkeys(range(CLIENTS), 1.0), closed=["encrypted"] if round < shut else [],
            contributors={"encrypted": asked if round < shut else CLIENTS},
        )  # fmt: skip
    return ledger


def test_a_sum_that_stayed_closed_costs_nobody_who_could_not_have_opened_it() -> None:
    alone, asked, never = under_shares(0, rounds=7), under_shares(3, asked=CLIENTS), under_shares(3)
    for party in ("server", "client", "released_model"):
        assert epsilon(asked, party) == epsilon(never, party) == epsilon(alone, party)
    # A client that was asked for its share may have kept it from the server, and be in league with it.
    assert epsilon(never, "client_and_server") == epsilon(alone, "client_and_server")
    whole = under_shares(0)
    assert epsilon(asked, "client_and_server") == epsilon(whole, "client_and_server")


def epsilon(ledger: Ledger, party: str) -> float:
    found = ledger.report().views[party].epsilon
    assert found is not None
    return found



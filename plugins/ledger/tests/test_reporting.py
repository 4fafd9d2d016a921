"""The ledger in words: warnings, and the verdict."""

from __future__ import annotations

import dataclasses
import math

import pytest
from fedplug.api.known import Release
from fedplug.api.operations import Party
from fedplug.api.roles import Reveals
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_ledger.ledger import Ledger
from fedplug_ledger.ledger_record import EncryptionReport
from fedplug_ledger.verdict import Verdict
from ledger_toys import (
    CENTRAL,
    CLIENTS,
    DELTA,
    LOCAL,
    SIGMA,
    VECTORS,
    enter,
    exact,
    ledger_of,
    reason,
)


def test_dp_fedavg_states_epsilon_unit_trust_and_adjacency() -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [LOCAL]})
    assert ledger.epsilon() == pytest.approx(1.0)
    assert exact(ledger, "server") == exact(ledger, "client_and_server") == pytest.approx(1.0)
    assert exact(ledger, "server", "replace_one") == pytest.approx(2.1547, abs=1e-3)
    assert str(ledger.verdict().toward("server")) == (
        "the server: epsilon 1.00 for each client; the odds of a guess change by a factor of at most 2.8; delta 1e-05, "
        "add-or-remove one client; replace-one: epsilon 2.15; "
        "rests on: noise that fedplug itself adds; not covered: message sizes and times"
    )
    assert ledger.verdict().headline == (
        "Each client's data are protected from the server, another client, a client together with the server and "
        "anybody who gets the model, with epsilon 1.00 at most."
    )
    # Twenty equal noises add up in the sum; another client knows one of them.
    assert exact(ledger, "released_model") == pytest.approx(gaussian_epsilon(SIGMA * math.sqrt(20 / 10), DELTA))
    assert exact(ledger, "client") == pytest.approx(gaussian_epsilon(SIGMA * math.sqrt(19 / 10), DELTA))
    assert "nobody holds a key" in reason(ledger, "key_holder")


def test_hybrid_has_no_end_to_end_dp() -> None:
    mask = Reveals("mask", ("server", "client"))
    ledger = ledger_of(key_holders={"encrypted": "clients"}, reveals=[mask])
    enter(ledger, {"encrypted": 100, "noised": 900}, {"noised": [LOCAL]})
    assert ledger.verdict().headline == (
        "Each client's data are protected from the server, with epsilon 11.46 at most, but not from another client, a "
        "client together with the server or anybody who gets the model."
    )
    server = ledger.verdict().toward("server")
    assert server.guarantee == "epsilon 11.46 for each client"
    assert server.rests_on == ["noise that fedplug itself adds", "as long as the encryption holds"]
    assert server.not_covered == ["mask", "message sizes and times"]
    for view in ("client", "client_and_server", "released_model"):
        assert "without noise" in reason(ledger, view)
    assert exact(ledger, "server") > 1, "un-noised values come back in what others upload"


def test_whose_word_is_needed_is_said_in_every_line() -> None:
    """That fedplug adds the noise is said only where nobody else need be believed."""
    fedplug_adds, holds = "noise that fedplug itself adds", "as long as the encryption holds"
    closed = {"encrypted": EncryptionReport("key_server", False, "std.bfv")}
    sealed = {"encrypted": [dataclasses.replace(LOCAL, trust="distributed")]}

    def rests(ledger: Ledger, party: Party) -> list[str]:
        return ledger.verdict().toward(party).rests_on

    hidden = enter(ledger_of(encryption=closed), {"encrypted": 1000}, sealed)
    assert rests(hidden, "server") == [holds]
    assert rests(hidden, "released_model") == [fedplug_adds]
    own = enter(ledger_of(encryption=closed, words=["acme.open", "acme.seal"]), {"encrypted": 1000}, sealed)
    assert rests(own, "server") == [holds, "on the word of acme.open", "on the word of acme.seal"]
    assert rests(own, "released_model") == ["on the word of acme.open", "on the word of acme.seal"]
    # Noise at the server is added to what was opened.
    central = enter(ledger_of(encryption=closed), {"encrypted": 1000}, {"encrypted": [CENTRAL]})
    assert rests(central, "released_model") == [fedplug_adds, "as long as the server really adds it"]
    # The function of a shipped component may run behind the noise.
    behind = dataclasses.replace(LOCAL, words=["std.fedopt"])
    assert rests(enter(ledger_of(), {"noised": 1000}, {"noised": [behind]}), "server") == ["on the word of std.fedopt"]


def test_no_protection_is_no_dp() -> None:
    ledger = enter(ledger_of(), {"clear": 1000}, {})
    assert ledger.verdict().status == "no_protection"
    assert ledger.verdict().headline == (
        "There is no guaranteed limit on what the server, another client, a client together with the server or anybody "
        "who gets the model can learn about a client."
    )
    assert all(view.epsilon is None for view in ledger.report().views.values())


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (Release("gaussian", SIGMA, 1.0, as_published=True), "paper's own formula"),
        (Release("staircase", SIGMA, 1.0), "counts as no noise"),
        (Release("gaussian", SIGMA, 1.0, source="reproducible"), "knows the seed"),
    ],
)
def test_what_deserves_a_warning_gets_one(release: Release, said: str) -> None:
    ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
    assert any(said in warning for warning in ledger.report().warnings)


def test_unknown_noise_and_multiplier_zero_are_infinite() -> None:
    for release in (Release("staircase", SIGMA, 1.0), Release("gaussian", 0.0, 1.0)):
        ledger = enter(ledger_of(), {"noised": 1000}, {"noised": [release]})
        assert ledger.epsilon() == math.inf
        assert ledger.verdict().status == "no_protection"
        assert ledger.verdict().toward("client").reason == "the noise does not protect: epsilon is infinite"
        assert exact(ledger, "server") == math.inf


def test_delta_must_be_below_one_over_clients() -> None:
    assert any("delta 0.1 is not below 1 / 20 clients" in warning for warning in ledger_of(delta=0.1).report().warnings)
    assert ledger_of().report().warnings == []
    loose = enter(ledger_of(delta=1 / CLIENTS), {"noised": 1000}, {"noised": [LOCAL]})
    assert loose.verdict().status == "no_meaningful_guarantee"
    assert loose.verdict().toward("client").reason == f"delta 0.05 is not below 1 / {CLIENTS} clients"


KEPT = {"encrypted": 0, "noised": 0, "retained": 1000}


def test_empty_and_retained_zones_cost_nothing() -> None:
    ledger = enter(ledger_of(), KEPT, {"noised": [LOCAL]})
    assert ledger.epsilon() is None
    assert ledger.verdict().status == "protected_from_all"
    assert ledger.verdict().headline.endswith("nothing of the updates can be read.")
    for name, view in ledger.report().views.items():
        if name == "key_holder":
            assert (view.state, view.reason) == ("absent", "nothing is encrypted, so nobody holds a key")
        else:
            assert exact(ledger, name) == exact(ledger, name, "replace_one") == 0
            assert view.detail == "sees nothing of the updates: no coordinate of one left its client"
            assert view.rests_on == ["nothing of the updates is sent"]
    assert ledger_of().verdict() == Verdict("nothing_run")


def test_quantities_shown_with_retained_updates_are_named() -> None:
    mask = dataclasses.replace(VECTORS, what="mask", voids=False)
    shown = enter(ledger_of(reveals=[mask]), KEPT, {})
    assert "mask" in shown.verdict().toward("server").not_covered
    voided = enter(ledger_of(reveals=[VECTORS]), KEPT, {})
    assert voided.verdict().toward("server").detail == "sees vectors: of each client, without noise"
    assert voided.verdict().toward("client").state == "guaranteed"
    asked = enter(ledger_of(), KEPT, {})
    asked.message_uncovered("odd.vote", "asks clients for raw, and says nowhere what the answers show")
    assert asked.verdict().status == "no_protection"
    assert asked.report().views["released_model"].epsilons is None


@pytest.mark.parametrize(("holder", "least"), [("key_server", 2), ("clients", 3)])
def test_sums_that_show_single_updates_are_named(holder: str, least: int) -> None:
    for min_clients in (1, 2, 3):
        ledger = ledger_of(min_clients=min_clients, key_holders={"encrypted": holder})
        enter(ledger, {"encrypted": 1000}, {"encrypted": [LOCAL]})
        found = ledger.report()
        assert any(f"set min_clients: {least}" in said for said in found.warnings) == (min_clients < least)
        if holder == "key_server":
            claimed = "never single ones" in found.views["key_holder"].detail
            assert claimed == (min_clients >= least)


def test_above_a_documented_bound_an_epsilon_is_no_guarantee() -> None:
    weak = enter(ledger_of(), {"noised": 10}, {"noised": [Release("gaussian", 0.05, 1.0)]})
    assert weak.verdict().status == "no_meaningful_guarantee"
    assert "promises too little: it is above 20" in weak.verdict().toward("server").reason
    fair = enter(ledger_of(), {"noised": 10}, {"noised": [LOCAL]})
    assert fair.verdict().status == "protected_from_all"


def test_a_small_epsilon_is_not_printed_as_zero() -> None:
    strong = enter(ledger_of(), {"noised": 10}, {"noised": [Release("gaussian", 3e5, 1.0)]}, rounds=1)
    assert "epsilon 0.00" not in str(strong.verdict())
    tiny = enter(ledger_of(delta=1e-12), {"noised": 10}, {"noised": [Release("gaussian", 1e10, 1.0)]}, rounds=1)
    epsilon = tiny.epsilon()
    assert epsilon is not None
    assert (f"epsilon {epsilon:.2e}" if epsilon else "(epsilon 0)") in str(tiny.verdict())





"""Runs in which each client encrypts where its own mask says move those positions that enough clients encrypted."""

from __future__ import annotations

from typing import Any

import fedplug
import numpy as np
import pytest
import toy_base
import toy_components
import toy_protocol
from fedplug import Plan, at_client
from fedplug.api.blocks import ENCRYPTED, RETAINED
from fedplug.api.facts import Facts
from fedplug.api.parties import Client


class Steps5(toy_base.Toy, fedplug.Negotiation):
    """Client k encrypts the positions whose number modulo 5 is at most k, and keeps the rest to itself."""

    plans = fedplug.Plans(zones=frozenset({ENCRYPTED, RETAINED}), own=frozenset({ENCRYPTED}))

    def reveals(self, facts: Facts) -> tuple[fedplug.Reveals, ...]:
        """Positions that follow from the number of the client."""
        return ()

    def negotiate_mask(self, cohort: Any, facts: Facts) -> None:
        """Tells every client to make its own plan."""
        cohort.tell(self.choose)

    @at_client
    def choose(self, client: Client) -> None:
        """Sets this client's plan."""
        where = np.arange(client.facts.layout.size) % 5 <= client.client_id
        client.plan = Plan.of(client.facts, RETAINED, **{ENCRYPTED: where})


@pytest.mark.parametrize("min_clients", [2, 4])
@pytest.mark.parametrize(
    ("scheme", "key_holder"), [("std.bfv", "key_server"), ("std.bfv", "clients"), ("std.ckks", "clients")]
)
def test_a_run_moves_exactly_the_positions_that_enough_clients_encrypted(
    scheme: str, key_holder: str, min_clients: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(toy_components.TOYS["negotiate_mask"], "toy.steps5", Steps5)
    seal = {"use": scheme, "key_holder": key_holder, "range": 0.5}
    plain = toy_components.recipe_of(
        "encrypted", [seal], train={"use": "toy.push"}, negotiate_mask={"use": "toy.steps5"}, rounds=1,
        min_clients=min_clients,
    )  # fmt: skip
    outcome = toy_protocol.run_protocol(plain)
    assert outcome.notes == []
    start, weights = toy_protocol.initial_vector(plain), toy_protocol.weights_of(outcome)
    residue = np.arange(len(start)) % 5
    total, divisor = np.zeros(len(start)), np.zeros(len(start))
    for client_id, weight in weights.items():
        mask = residue <= client_id
        total[mask] += weight * toy_components.pushed(start, 7, client_id, 0).astype(np.float64)[mask]
        divisor[mask] += weight
    moved = residue <= 4 - min_clients
    expected = np.where(moved, total / np.where(moved, divisor, 1), 0)
    assert np.abs(outcome.vector - start - expected).max() < 2e-5
    assert np.array_equal(outcome.vector[~moved], start[~moved])


def test_a_run_in_which_no_two_clients_meet_opens_nothing_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    class Apart(Steps5):
        """No position is in two masks."""

        @at_client
        def choose(self, client: Client) -> None:
            """Sets this client's plan."""
            where = np.arange(client.facts.layout.size) % 4 == client.client_id
            client.plan = Plan.of(client.facts, RETAINED, **{ENCRYPTED: where})

    monkeypatch.setitem(toy_components.TOYS["negotiate_mask"], "toy.apart", Apart)
    plain = toy_components.recipe_of(
        "encrypted", [{"use": "std.bfv"}], train={"use": "toy.push"}, negotiate_mask={"use": "toy.apart"}, rounds=2
    )
    outcome = toy_protocol.run_protocol(plain)
    assert outcome.notes == []
    assert np.array_equal(outcome.vector, toy_protocol.initial_vector(plain))
    assert len(outcome.rows) == 2

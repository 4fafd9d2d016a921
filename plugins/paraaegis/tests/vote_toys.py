"""A vote among clients of a few lines, and the same vote without encryption."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import fedplug
import numpy as np
from fedplug import Facts, Layout, Plan
from fedplug.api.blocks import BASE_ZONES
from fedplug.api.parties import Openings
from fedplug_paraaegis.secret_ballot import IndexCipher
from fedplug_paraaegis.vote import Vote
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

KEY = bytes(range(32))


def ranks(key: bytes, size: int) -> np.ndarray:
    """The ciphertext of each index."""
    found = np.empty(size, np.int64)
    found[IndexCipher.of(key, size).index_of] = np.arange(size)
    return found


def secret_of(*purpose: object) -> bytes:
    """The key that every client derives from the secret of the cohort."""
    return hashlib.sha256(repr(purpose).encode()).digest()


def plain_vote(scores: list[np.ndarray], seats: int, attempt: bytes, round: int = 0) -> list[int]:
    """The paper's rule without encryption: most votes win, of equals the lowest ciphertext. Slow and obvious."""
    size = len(scores[0])
    ciphertext = ranks(secret_of("ballot", round, attempt.hex()), size)
    equal_scores = ranks(secret_of("equal scores", round, attempt.hex()), size)
    votes = [0] * size
    for mine in scores:
        for index in sorted(range(size), key=lambda i: (-mine[i], equal_scores[i]))[:seats]:
            votes[index] += 1
    return sorted(sorted(range(size), key=lambda i: (-votes[i], ciphertext[i]))[:seats])


@dataclasses.dataclass
class FakeClient:
    """The parts of a client that the vote needs."""

    scores_by = fedplug.Client.scores_by

    scores: dict[str, np.ndarray]
    facts: Any
    plan: Plan | None = None
    cache: dict[str, Any] = dataclasses.field(default_factory=dict)
    openings: Openings = dataclasses.field(default_factory=Openings)

    def saved(self, seconds: float) -> None:
        """The time is not used."""

    def secret(self, component: Any, *purpose: object) -> bytes:
        assert purpose[1] == self.facts.round  # a separate key in every round
        return secret_of(*purpose)


def facts_of(component: Vote, layout: Layout, round: int = 0) -> Facts:
    return Facts(round, 20, layout, BASE_ZONES, 5, 2, 7, "", components={component.name: component})


class FakeCohort:
    """Runs asks and tells at once and keeps the messages."""

    def __init__(self, clients: dict[int, FakeClient]) -> None:
        self.clients = clients
        self.sent: list[Any] = []
        self.told: list[Any] = []

    def ask(self, method: Any, *payload: Any) -> dict[int, Any]:
        replies = {client_id: method(client, *payload) for client_id, client in self.clients.items()}
        self.sent += list(replies.values())
        return replies

    def tell(self, method: Any, *payload: Any) -> None:
        self.told += list(payload)
        for client in self.clients.values():
            method(client, *payload)


def vote(
    scores: list[np.ndarray], ratio: float, *, round: int = 0, decay: float = 1.0
) -> tuple[list[list[int]], FakeCohort]:
    """Runs a whole negotiation. Returns each client's encrypted positions."""
    component = Vote(Vote.Options(ratio=ratio, decay=decay))
    component.name = "paraaegis.vote"
    facts = facts_of(component, Layout.of([("w", (len(scores[0]),))]), round)
    # Where plans are public, the core sets them at every party.
    cohort = FakeCohort({i: FakeClient({"s": mine}, facts, facts.plan) for i, mine in enumerate(scores)})
    component.negotiate_mask(cohort, facts)  # type: ignore[arg-type]
    plans = [client.plan for client in cohort.clients.values()]
    assert all(plan is not None for plan in plans)
    return [plan.positions("encrypted").tolist() for plan in plans if plan], cohort


def scores(size: int = 40, clients: int = 5) -> st.SearchStrategy[list[np.ndarray]]:
    """Scores with many ties."""
    values = st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])
    return st.lists(hnp.arrays(np.float32, size, elements=values), min_size=1, max_size=clients)

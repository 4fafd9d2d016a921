"""How far a client's local training is, for whoever shows how a run goes: the service `progress`.

A round of DP-SGD may take minutes at one client, and nothing else tells of it before its upload comes.
"""

from __future__ import annotations

from typing import NamedTuple


class Training(NamedTuple):
    """The training that goes on in this process.

    Attributes:
        client_id: of the client.
        round: 0-based.
        done, steps: how many steps it has taken, of how many.
    """

    client_id: int
    round: int
    done: int
    steps: int


_now: Training | None = None


def step(client_id: int, round: int, done: int, steps: int) -> None:
    """A trainer tells that `done` of `steps` steps are over. Cheap: call it after every step."""
    global _now
    _now = Training(client_id, round, done, steps)


def now() -> Training | None:
    """The last step that a trainer of this process told of; None where none has."""
    return _now

"""How fast a run goes: rounds that have begun, the share of the current one that is done, and the time that is left."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from fedplug.recipe.catalog import service

TRAINING = "training"
"""The phase of a round before anybody has answered."""


@dataclasses.dataclass(frozen=True)
class Now:
    """What goes on.

    Attributes:
        round: 1-based; 0 is the set-up.
        phase: of the round.
        done, total: parties that have answered, of those that were asked; 0 and 0 where nobody has.
    """

    round: int = 0
    phase: str = "starting"
    done: int = 0
    total: int = 0


class Pace:
    """Takes note of phases, and reckons. Times are in seconds.

    Args:
        clock: monotonic; for tests.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.now = Now()
        self.began = clock()
        self.planned: int | None = None
        self.starts: dict[int, float] = {}
        """When the first phase of each round was seen."""
        self._first: dict[int, str] = {}
        self._before = _told()  # of an earlier round, or of an earlier run of this process

    def start(self, planned: Any) -> None:
        """The run begins; `planned` is how many rounds it has."""
        self.planned = planned if isinstance(planned, int) else None
        self.began = self._clock()

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """As `Display.phase`; thousands of times a second."""
        if round > 0 and round not in self.starts:  # 0 is the set-up, which no row follows
            self.starts[round] = self._clock()
            self._before = _told()
        if round > 0 and phase != TRAINING and round not in self._first:
            self._first[round] = phase
        self.now = Now(round, phase, done, total)  # one assignment, so that another thread never sees half of it

    def so_far(self) -> float:
        """Time since the run began."""
        return self._clock() - self.began

    def seconds_per_round(self) -> float | None:
        """Mean over the last five whole rounds; None before the first one is over."""
        starts = [self.starts[round] for round in sorted(self.starts)][-6:]
        return (starts[-1] - starts[0]) / (len(starts) - 1) if len(starts) > 1 else None

    def share(self) -> float | None:
        """How much of the current round is done, by the clients that have answered its first question, for which they
        train, and by the steps of the one that trains in this process; None where nobody can tell.
        """
        now, training = self.now, self.training()
        if self._first.get(now.round, now.phase) != now.phase:
            return 0.95
        steps = min(1.0, training.done / training.steps) if training and training.steps else 0.0
        if not now.total:
            return None
        done = (now.done + (steps if now.done < now.total else 0.0)) / now.total
        return min(0.95, done) if done else None

    def left(self) -> float | None:
        """Expected time to the end; None while there is nothing to go by."""
        if self.planned is None or not self.starts:
            return None
        current = max(self.starts)
        spent = self._clock() - self.starts[current]
        pace = self.seconds_per_round()
        if pace is None:
            share = self.share()
            if not share or not spent:
                return None
            pace = spent / share
        return max(0.0, pace - spent) + pace * max(0.0, self.planned - current)

    def training(self) -> Any:
        """The training that goes on in this process in this round, as the service `progress` has it; else None."""
        told = _told()
        return None if told is self._before or told.round + 1 != self.now.round else told

    def rounds_done(self) -> float:
        """Rounds finished, the current one counted by the time it has taken so far."""
        current, pace = self.now.round, self.seconds_per_round()
        if current < 1:
            return 0.0
        share = min(0.95, (self._clock() - self.starts[current]) / pace) if pace else self.share() or 0.0
        return current - 1 + share


def _told() -> Any:
    progress = service("progress")
    return progress.now() if progress else None

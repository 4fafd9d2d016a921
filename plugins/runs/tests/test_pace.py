"""How far a run is, and how long it will take: by whole rounds, and within the first by clients and their steps."""

from __future__ import annotations

import pytest
from fedplug_runs.pace import TRAINING, Pace
from fedplug_std import progress


class Clock:
    """Time that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_whole_rounds_give_the_pace(clock: Clock) -> None:
    pace = Pace(clock)
    pace.start(5)
    for round, at in ((1, 10.0), (2, 14.0), (3, 20.0)):
        clock.now = at
        pace.phase(round, "upload", 1, 4)
    clock.now = 21.0
    assert pace.seconds_per_round() == pytest.approx(5)
    assert pace.left() == pytest.approx(4 + 2 * 5)
    assert pace.so_far() == 21.0


def test_in_the_first_round_clients_and_their_steps_give_it(clock: Clock) -> None:
    """Two of four clients, and half of the steps of the third, took 10 s: a round takes 16 s."""
    pace = Pace(clock)
    pace.start(3)
    pace.phase(1, TRAINING, 0, 4)
    assert pace.left() is None
    clock.now = 10.0
    pace.phase(1, "negotiate", 2, 4)
    progress.step(2, 0, 50, 100)
    assert pace.share() == pytest.approx(2.5 / 4)
    assert pace.left() == pytest.approx(6 + 2 * 16)
    pace.phase(1, "upload", 1, 4)  # what follows the first question is short
    assert pace.share() == 0.95


def test_steps_of_another_round_do_not_count(clock: Clock) -> None:
    pace = Pace(clock)
    pace.start(9)
    progress.step(0, 4, 50, 100)
    pace.phase(4, TRAINING, 0, 1)
    assert pace.share() is None
    progress.step(0, 3, 50, 100)
    assert pace.share() == pytest.approx(0.5)


def test_nobody_reckons_where_the_number_of_rounds_is_unknown(clock: Clock) -> None:
    pace = Pace(clock)
    pace.start(None)
    pace.phase(1, "upload", 1, 1)
    pace.phase(2, "upload", 1, 1)
    assert pace.left() is None

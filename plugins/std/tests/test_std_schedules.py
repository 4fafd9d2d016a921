"""Noise that changes from round to round, and costs what it should in all."""

from __future__ import annotations

import pytest
from fedplug_ledger.accounting import effective_multiplier, gaussian_noise_multiplier
from fedplug_std.schedules import geometric_schedule


def test_yuan_schedule_of_the_specification() -> None:
    total = gaussian_noise_multiplier(1, 1e-5)
    schedule = geometric_schedule(total, 10, 0.9)
    assert schedule[0] == pytest.approx(20.7, abs=0.05)
    assert schedule[-1] == pytest.approx(8.02, abs=0.005)
    assert effective_multiplier(schedule) == pytest.approx(total, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((-1, 3, 0.9), "total_multiplier=-1 must be >= 0"),
        ((1, 0, 0.9), "rounds=0 must be >= 1"),
        ((1, 10_000, 0.5), "use a decay closer to 1"),
    ],
)
def test_schedules_that_cannot_be_are_refused(arguments: tuple[float, int, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        geometric_schedule(*arguments)

"""Of many draws of records and noise, about 95% of the intervals hold what they are intervals of.

Noise comes from the mechanism that runs execute, with its grid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from analytics_toys import asked, records
from fedplug.api.grids import finest
from fedplug.mechanisms.noise import add_noise
from fedplug_analytics.statistic import Records, Released
from scipy import stats

DRAWS, CLIENTS = 400, 4
NORMAL = stats.norm(50, 10)
_MEAN = {"column": "x", "bounds": (0, 100)}
_GROUPS = {"column": "group", "values": (0, 1)}


def people(rng: np.random.Generator) -> Records:
    x, group = NORMAL.rvs(200, random_state=rng), rng.integers(0, 2, 200)
    return records(x=x + 3 * group, group=group)


def with_rare(rng: np.random.Generator) -> Records:
    return records(rare=(rng.random(200) < 0.02).astype(float))


def patients(rng: np.random.Generator) -> Records:
    """Events at a rate of 0.1, censored at a rate of 0.05, on the grid of times."""
    event, away = rng.geometric(0.1, 200), rng.geometric(0.05, 200)
    return records(time=np.minimum(event, away), event=(event <= away).astype(float))


CASES: dict[str, tuple[Any, Callable[[np.random.Generator], Records], str, float]] = {
    "mean": (asked("mean", **_MEAN), people, "mean of x", 51.5),
    "variance": (asked("mean", **_MEAN), people, "variance of x", 102.25),
    "difference": (asked("t_test", groups=_GROUPS, **_MEAN), people, "difference of the means of x", -3.0),
    "share": (asked("histogram", column="group", values=(0, 1)), people, "share of 1", 0.5),
    "rare": (asked("histogram", column="rare", values=(0, 1)), with_rare, "share of 1", 0.02),
    "survival": (asked("kaplan_meier", time="time", event="event", times=range(1, 11)), patients, "S(5)", 0.9**5),
}  # fmt: skip


def share_covered(statistic: Any, draw: Any, name: str, truth: float, std: float) -> float:
    covered = 0
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        sums = statistic.sums(draw(rng))
        for _ in range(CLIENTS if std else 0):  # each adds its own noise, over no records of its own
            none = np.zeros(len(sums), np.float32)
            sums = sums + add_noise(none, std, finest(200.0, std), "reproducible", rng)
        released = Released(sums, np.full(len(sums), CLIENTS * std**2))
        one = next(each for each in statistic.answer(released) if each.name == name)
        covered += one.low is not None and one.low <= truth <= one.high
    return covered / DRAWS


@pytest.mark.parametrize("std", [0.0, 3.0])
@pytest.mark.parametrize("case", CASES)
def test_intervals_cover_as_often_as_they_say(case: str, std: float) -> None:
    # Three standard errors of a share of 400 draws are 0.033.
    assert 0.95 - 0.033 <= share_covered(*CASES[case], std) <= 0.95 + 0.033


@pytest.mark.parametrize("std", [0.0, 3.0])
def test_intervals_of_quantiles_cover_at_least_as_often(std: float) -> None:
    """They end at edges of bins, so they are wider."""
    median = asked("quantiles", column="x", bounds=(0, 100), bins=50, at=(0.5,))
    assert share_covered(median, people, "quantile 0.5 of x", 51.5, std) >= 0.95 - 0.033


def test_intervals_of_quantiles_cover_where_the_noise_is_most_of_the_counts() -> None:
    """Counts of noise fall as often as they rise: the interval has all places that may be the median."""
    median = asked("quantiles", column="x", bounds=(0, 100), bins=50, at=(0.5,))
    covered = answered = 0
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        sums = median.sums(people(rng)) + rng.normal(0, 20, 50)
        (one,) = median.answer(Released(sums, np.full(50, 400.0)))
        if one.low is not None:
            answered, covered = answered + 1, covered + (one.low <= 51.5 <= one.high)
    assert answered > 0.8 * DRAWS
    assert covered / answered >= 0.95 - 0.033


def test_the_interval_of_a_count_is_for_the_records_at_hand() -> None:
    count = asked("count")
    assert share_covered(count, people, "records", 200, 0.0) == 1
    assert 0.95 - 0.033 <= share_covered(count, people, "records", 200, 3.0) <= 0.95 + 0.033

"""Kaplan-Meier and log-rank from counts on a grid, against scipy, and against numbers of lifelines 0.30.3.

lifelines holds pandas below 3, so that it is not installed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from analytics_toys import answers, asked, records, released
from fedplug_analytics.statistic import Released
from scipy import stats

# 90 patients in four stages, years to a tenth; two of five are censored.
_RNG = np.random.default_rng(1983)
STAGE = np.repeat([1.0, 2.0, 3.0, 4.0], [33, 17, 27, 13])
TIME = np.clip(np.round(_RNG.exponential(8 / STAGE**0.7), 1), 0.1, 10.7)
DEATH = (_RNG.random(90) < 0.6).astype(float)
GRID = tuple(np.round(np.arange(0.1, 10.8, 0.1), 1).tolist())
CURVE = asked("kaplan_meier", time="time", event="death", times=GRID)


def by(*stages: int) -> Any:
    groups = {"column": "stage", "values": stages}
    return asked("kaplan_meier", time="time", event="death", times=GRID, groups=groups)


def patients(which: slice) -> object:
    return records(time=TIME[which], death=DEATH[which], stage=STAGE[which])


THIRDS = [patients(slice(start, None, 3)) for start in range(3)]


def censored(which: np.ndarray) -> stats.CensoredData:
    dead = DEATH == 1
    return stats.CensoredData(uncensored=TIME[which & dead], right=TIME[which & ~dead])


def test_a_curve_and_its_intervals_are_those_of_scipy() -> None:
    found = answers(CURVE, *THIRDS)
    curve = stats.ecdf(censored(TIME > 0)).sf
    low, high = (end.evaluate(GRID) for end in curve.confidence_interval(0.95, method="log-log"))
    compared = 0
    for place, (time, value) in enumerate(zip(GRID, curve.evaluate(GRID), strict=True)):
        one = found[f"S({time:g})"]
        if 0 < value < 1:
            assert (one.value, one.low, one.high) == pytest.approx((value, low[place], high[place]))
            compared += 1
    assert compared > 90


def test_the_log_rank_test_of_two_groups_is_that_of_scipy() -> None:
    found = answers(by(1, 3), *THIRDS)
    expected = stats.logrank(censored(STAGE == 1), censored(STAGE == 3))
    assert found["log-rank"].value == pytest.approx(expected.statistic**2)
    assert found["p-value"].value == pytest.approx(expected.pvalue)


def test_curve_median_and_test_of_four_groups_are_those_of_lifelines() -> None:
    found = answers(CURVE, *THIRDS)
    median = found["median of time"]
    assert (median.value, median.low, median.high) == (6.8, 4.3, 10.3)
    for time, *expected in (
        (1, 0.9202019382465635, 0.8398059345370273, 0.9611606368825226),
        (5, 0.5633667375517141, 0.4417114240318359, 0.6683253321632759),
    ):
        one = found[f"S({time})"]
        assert (one.value, one.low, one.high) == pytest.approx(expected)
    found = answers(by(1, 2, 3, 4), *THIRDS)
    assert found["log-rank"].value == pytest.approx(5.5081312318213005)
    assert found["p-value"].value == pytest.approx(0.13815308776384544)
    assert found["degrees of freedom"].value == 3


def test_a_coarser_grid_counts_events_at_the_next_time_and_later_ones_as_at_risk() -> None:
    two = asked("kaplan_meier", time="time", event="death", times=(1, 2))
    found = answers(two, records(time=[0.5, 1.0, 1.5, 2.0, 9.0], death=[1, 0, 1, 0, 1]))
    assert two.sums(records(time=[0.5, 1.0, 1.5, 2.0, 9.0], death=[1, 0, 1, 0, 1])).tolist() == [1, 1, 1, 1, 1]
    assert found["S(1)"].value == pytest.approx(4 / 5)
    assert found["S(2)"].value == pytest.approx(4 / 5 * 2 / 3)


def test_before_the_first_event_the_curve_is_as_uncertain_as_a_share_of_all() -> None:
    early = asked("kaplan_meier", time="time", event="death", times=(1, 2))
    one = answers(early, records(time=[1.5] * 12, death=[1] + [0] * 11))["S(1)"]
    exact = stats.binomtest(12, 12).proportion_ci(0.95, method="exact")
    assert (one.value, one.low, one.high) == pytest.approx((1, exact.low, 1))


def test_times_on_the_grid_are_on_it_in_float32_too() -> None:
    tenths = asked("kaplan_meier", time="time", event="death", times=(0.1, 0.2, 0.3))
    found = answers(tenths, records(time=[0.1, 0.2, 0.3, 0.3], death=[1, 1, 1, 0]))
    assert found["S(0.1)"].value == pytest.approx(0.75)


def test_the_test_ends_where_a_curve_is_hidden() -> None:
    """It would be an equation for numbers that are hidden."""
    short = asked(
        "kaplan_meier", time="time", event="death", times=(1, 2), groups={"column": "group", "values": (0, 1)}
    )
    late = asked(
        "kaplan_meier", time="time", event="death", times=(1, 2, 3), groups={"column": "group", "values": (0, 1)}
    )
    rows = {"time": [1, 1, 2, 2, 5, 5, 5, 5] * 2 + [3], "death": [1, 0, 1, 0, 1, 1, 1, 1] * 2 + [1],
            "group": [0] * 8 + [1] * 8 + [1]}  # fmt: skip
    ended, whole = answers(late, records(**rows), small_cells=5), answers(short, records(**rows))
    assert ended["S(3) where group is 0"].value is None
    assert ended["log-rank"].value == pytest.approx(whole["log-rank"].value)
    assert answers(late, records(**rows))["log-rank"].value != pytest.approx(whole["log-rank"].value)


def test_noise_widens_the_curve_and_weakens_the_test() -> None:
    four = by(1, 2, 3, 4)
    sums = released(four, *THIRDS).sums
    variances = (np.full(len(sums), variance) for variance in (0.0, 0.1))
    without, under = ({each.name: each for each in four.answer(Released(sums, one))} for one in variances)
    plain, wide = without["S(1) where stage is 1"], under["S(1) where stage is 1"]
    assert wide.high - wide.low > plain.high - plain.low
    assert under["log-rank"].value < without["log-rank"].value


def test_a_curve_ends_where_too_few_are_at_risk() -> None:
    found = answers(CURVE, *THIRDS, small_cells=40)
    last = max(time for time in GRID if found[f"S({time:g})"].value is not None)
    at_risk = (last <= TIME).sum()
    assert at_risk >= 40
    assert "fewer than 40 at risk" in found[f"S({GRID[-1]:g})"].note

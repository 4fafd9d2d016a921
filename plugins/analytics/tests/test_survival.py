"""Kaplan-Meier and log-rank from counts on a grid, against lifelines."""

from __future__ import annotations

import numpy as np
import pytest
from analytics_toys import answers, asked, records
from lifelines import KaplanMeierFitter
from lifelines.datasets import load_larynx
from lifelines.statistics import multivariate_logrank_test

LARYNX = load_larynx()  # Kardaun 1983: 90 men with cancer of the larynx; years to death
TIME, DEATH = LARYNX["time"].to_numpy(), LARYNX["death"].to_numpy()
STAGE = 1 + LARYNX[["Stage_II", "Stage_III", "Stage_IV"]].to_numpy() @ [1, 2, 3]
GRID = tuple(np.round(np.arange(0.1, 10.8, 0.1), 1).tolist())  # to a tenth of a year, as times are given
CURVE = asked("kaplan_meier", time="time", event="death", times=GRID)
BY_STAGE = asked(
    "kaplan_meier", time="time", event="death", times=GRID, groups={"column": "stage", "values": (1, 2, 3, 4)}
)


def patients(which: slice) -> object:
    return records(time=np.round(TIME, 1)[which], death=DEATH[which], stage=STAGE[which])


THIRDS = [patients(slice(start, None, 3)) for start in range(3)]


def test_a_curve_and_its_intervals_are_those_of_lifelines() -> None:
    found = answers(CURVE, *THIRDS)
    fitted = KaplanMeierFitter().fit(np.round(TIME, 1), DEATH, timeline=np.array(GRID))
    bounds = fitted.confidence_interval_survival_function_.to_numpy()
    compared = 0
    for time, value, (low, high) in zip(GRID, fitted.survival_function_["KM_estimate"], bounds, strict=True):
        one = found[f"S({time:g})"]
        if 0 < value < 1:
            assert (one.value, one.low, one.high) == pytest.approx((value, low, high))
            compared += 1
    assert compared > 90
    assert found["median of time"].value == fitted.median_survival_time_


def test_the_log_rank_test_is_that_of_lifelines() -> None:
    found = answers(BY_STAGE, *THIRDS)
    expected = multivariate_logrank_test(np.round(TIME, 1), STAGE, DEATH)
    assert found["log-rank"].value == pytest.approx(expected.test_statistic)
    assert found["p-value"].value == pytest.approx(expected.p_value)
    assert found["degrees of freedom"].value == 3


def test_a_coarser_grid_counts_events_at_the_next_time_and_later_ones_as_at_risk() -> None:
    two = asked("kaplan_meier", time="time", event="death", times=(1, 2))
    found = answers(two, records(time=[0.5, 1.0, 1.5, 2.0, 9.0], death=[1, 0, 1, 0, 1]))
    assert two.sums(records(time=[0.5, 1.0, 1.5, 2.0, 9.0], death=[1, 0, 1, 0, 1])).tolist() == [1, 1, 1, 1, 1]
    assert found["S(1)"].value == pytest.approx(4 / 5)
    assert found["S(2)"].value == pytest.approx(4 / 5 * 2 / 3)


def test_noise_widens_the_curve_and_weakens_the_test() -> None:
    without, under = answers(BY_STAGE, *THIRDS), answers(BY_STAGE, *THIRDS, std=0.3)
    plain, wide = without["S(1) where stage is 1"], under["S(1) where stage is 1"]
    assert wide.high - wide.low > plain.high - plain.low
    assert under["log-rank"].value < without["log-rank"].value


def test_a_curve_ends_where_too_few_are_at_risk() -> None:
    found = answers(CURVE, *THIRDS, small_cells=40)
    last = max(time for time in GRID if found[f"S({time:g})"].value is not None)
    at_risk = (np.round(TIME, 1) >= last).sum()
    assert at_risk >= 40
    assert "fewer than 40 at risk" in found[f"S({GRID[-1]:g})"].note

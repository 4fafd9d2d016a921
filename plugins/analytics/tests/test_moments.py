"""Counts, means, variances and t tests from sums, against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from analytics_toys import answers, asked, records, released
from fedplug_analytics.moments import moments
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

RNG = np.random.default_rng(3)
HEIGHTS, GROUP = RNG.normal(170, 9, 80), RNG.integers(0, 2, 80)
MEAN = asked("mean", column="height", bounds=(120, 220))
T_TEST = asked("t_test", column="height", bounds=(120, 220), groups={"column": "group", "values": (0, 1)})


def test_a_mean_and_its_interval_are_those_of_scipy() -> None:
    found = answers(MEAN, records(height=HEIGHTS[:30]), records(height=HEIGHTS[30:]))
    mean = found["mean of height"]
    low, high = stats.t.interval(0.95, 79, HEIGHTS.mean(), stats.sem(HEIGHTS))
    assert (mean.value, mean.low, mean.high) == pytest.approx((HEIGHTS.mean(), low, high))
    variance = found["variance of height"]
    assert variance.value == pytest.approx(HEIGHTS.var(ddof=1))
    reach = stats.norm.ppf(0.975) * HEIGHTS.var(ddof=1) * np.sqrt(2 / 79)
    assert (variance.value - variance.low) == pytest.approx(reach)
    assert (found["records with height"].value, found["records with height"].low) == (80, 80)


def test_welch_s_test_is_that_of_scipy() -> None:
    clients = [records(height=HEIGHTS[part], group=GROUP[part]) for part in (slice(50), slice(50, None))]
    found = answers(T_TEST, *clients)
    first, second = HEIGHTS[GROUP == 0], HEIGHTS[GROUP == 1]
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval()
    assert (found["t"].value, found["p-value"].value) == pytest.approx((expected.statistic, expected.pvalue))
    difference = found["difference of the means of height"]
    assert (difference.low, difference.high) == pytest.approx((interval.low, interval.high))
    assert found["mean of height where group is 1"].value == pytest.approx(second.mean())


@given(st.lists(st.floats(-500, 500), min_size=1, max_size=20), st.floats(-500, 500))
def test_adding_a_record_moves_the_sums_by_no_more_than_its_norm(numbers: list[float], another: float) -> None:
    apart = MEAN.sums(records(height=[*numbers, another])) - MEAN.sums(records(height=numbers))
    for order in (1, 2):
        assert np.linalg.norm(apart, order) <= MEAN.record_norm(order) * (1 + 1e-12)


def test_values_beyond_the_bounds_count_as_the_nearer_one_and_gaps_not_at_all() -> None:
    found = answers(MEAN, records(height=[0.0, 500.0, 180.0, np.nan]))
    assert found["mean of height"].value == pytest.approx((120 + 220 + 180) / 3)
    assert found["records with height"].value == 3


def test_of_too_few_records_there_is_no_mean() -> None:
    (mean,) = answers(MEAN, records(height=[170.0])).values()
    assert mean.value is None
    assert mean.note == "of fewer than 2 records, as far as the noise shows"
    (mean,) = answers(MEAN, records(height=HEIGHTS[:4]), small_cells=5).values()
    assert mean.note == "of fewer than 5 records"
    assert answers(asked("count"), records(height=HEIGHTS[:4]), small_cells=5)["records"].value is None


def test_the_noise_of_a_ratio_follows_from_its_derivative() -> None:
    """Against central differences."""
    sums, std = released(MEAN, records(height=HEIGHTS)), 3.0
    noised = released(MEAN, records(height=HEIGHTS), std=std)
    slopes = [
        (moments(noised.sums + step) - moments(noised.sums - step)) / 2e-4 for step in 1e-4 * np.eye(len(sums.sums))
    ]
    assert noised.spread(moments) == pytest.approx(std**2 * np.sum(np.square(slopes), 0), rel=1e-6)
    assert not sums.spread(moments).any()


def test_the_variance_of_the_noise_has_no_degrees_of_freedom() -> None:
    """Two degrees for n = 3: Student's quantile without noise, nearly that of the normal law under much of it."""
    three = released(MEAN, records(height=HEIGHTS[:3]))
    alone, under = (three.estimate("x", 0.0, 1.0, noise, 2.0) for noise in (0.0, 1e4))
    assert alone.high == pytest.approx(stats.t(2).ppf(0.975))
    assert under.high == pytest.approx(stats.norm.ppf(0.975) * np.sqrt(1e4 + 1), rel=1e-3)

"""Means over seeds and differences of them, with their intervals."""

from __future__ import annotations

import math

import pytest
from fedplug_lab.intervals import Difference, Spread, paired, spread_of
from fedplug_runs import units


def test_a_difference_is_taken_seed_by_seed() -> None:
    # Differences -0.1, 0.0, -0.2: mean -0.1, deviation 0.1, t(2) = 4.3027.
    found = paired({1: 0.4, 2: 0.6, 3: 0.5, 9: 0.9}, {1: 0.5, 2: 0.6, 3: 0.7, 8: 0.1})
    reach = 4.302652729749 * 0.1 / math.sqrt(3)
    assert found.count == 3
    assert (found.mean, found.low, found.high) == pytest.approx((-0.1, -0.1 - reach, -0.1 + reach))


def test_with_one_seed_or_equal_differences_no_interval_is_claimed() -> None:
    assert paired({1: 0.5, 2: None}, {1: 0.25, 2: 0.5}) == Difference(0.25, None, None, 1)
    assert paired({1: 0.3, 2: 0.4}, {1: 0.1, 2: 0.2}) == Difference(pytest.approx(0.2), None, None, 2), "all alike"
    assert paired({1: math.nan}, {1: 0.5}) == Difference(None, None, None, 0)
    assert paired({1: 0.5}, {2: 0.5}) == Difference(None, None, None, 0)
    assert spread_of([None, math.nan]) is None


@pytest.mark.parametrize(
    ("mean", "deviation", "said"),
    [
        (0.97, 3.82e-5, "0.970"), (0.9697, 0.0042, "0.970 ± 0.004"), (0.5, 0.0, "0.500"), (0.5, None, "0.500"),
        (1.2e-5, 2e-6, "1.20e-05 ± 2.00e-06"), (0.0004, 0.2, "4.00e-04 ± 0.200"),
    ],
)  # fmt: skip
def test_a_deviation_has_as_many_decimals_as_its_mean(mean: float, deviation: float | None, said: str) -> None:
    assert Spread(mean, deviation, 2).text(units.number) == said
    assert Spread(12.3456, 0.061, 2).text(lambda value: f"{value:.1f}") == "12.3 ± 0.1"
    assert Spread(2e5, 8.33, 3).text(lambda value: f"{value / 1e6:.2f}") == "0.20", "as it is shown, in MB"
    assert Spread(0.25, 1e-9, 2).text(units.percent) == "25.0%"

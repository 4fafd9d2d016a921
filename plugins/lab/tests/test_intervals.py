"""Means over seeds and differences of them, with their intervals."""

from __future__ import annotations

import math

import pytest
from fedplug_lab.intervals import Difference, paired, spread_of


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

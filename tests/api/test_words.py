"""Values as whole numbers of steps, and their sums as values."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug import FixedPoint, Total
from fedplug.api.errors import ProtectionError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

RNG = np.random.default_rng(0)
VALUES = arrays(np.float64, 7, elements=st.floats(-9, 9))


@given(st.lists(VALUES, min_size=1, max_size=6), st.integers(-12, 0), st.floats(0.5, 8))
def test_sums_of_words_are_sums_of_values_on_the_grid(updates: list[np.ndarray], power: int, largest: float) -> None:
    numbers = FixedPoint(range=largest, step=2.0**power)
    words = [numbers.encode(values, RNG)[0] for values in updates]
    on_grid = [np.rint(np.clip(values, -largest, largest) / numbers.step) * numbers.step for values in updates]
    assert np.array_equal(numbers.decode(np.sum(words, 0), len(updates)), np.sum(on_grid, 0))


def test_what_saturates_is_counted() -> None:
    numbers = FixedPoint(range=1.0, step=0.25)
    words, saturated = numbers.encode(np.array([0.3, 1.0, 1.2, -5.0]), RNG)
    assert (words.tolist(), saturated) == ([1, 4, 4, -4], 0.5)
    assert numbers.encode(np.zeros(0), RNG)[1] == 0.0


def test_a_sum_that_so_many_words_cannot_have_is_refused() -> None:
    numbers = FixedPoint(range=1.0, step=0.25)
    assert numbers.decode(np.array([8, -8]), 2).tolist() == [2.0, -2.0]
    with pytest.raises(ProtectionError, match="larger than its updates add up to"):
        numbers.decode(np.array([9, 0]), 2)
    rows = np.array([[4, 4], [8, 8]])
    assert numbers.decode(rows, np.array([[1], [2]])).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    with pytest.raises(ProtectionError, match="larger"):
        numbers.decode(rows, np.array([[2], [1]]))


def test_a_total_is_changed_in_a_copy() -> None:
    total = Total("encrypted", 2, (b"a",), (0, 1), 2)
    assert total.replace(parts=(b"b",)).parts == (b"b",)
    assert total.parts == (b"a",)

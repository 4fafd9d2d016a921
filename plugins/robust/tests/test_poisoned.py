"""Poisoned updates on worked examples and by their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug_robust import poisoned
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm


def updates(seed: int, n: int, d: int = 5) -> Any:
    return np.random.default_rng(seed).normal(1, 1, (n, d))


def test_z_of_a_little_is_enough() -> None:
    """50 workers and 24 liars need 2 supporters, as the paper's Section 4.1 has it: z = 1.43."""
    assert poisoned.alie_z(50, 24) == pytest.approx(norm.ppf(24 / 26), abs=1e-6)
    assert poisoned.alie_z(10, 2) == 0  # half of the honest are needed
    assert poisoned.alie_z(10, 6) == 0  # a majority needs no supporters
    assert poisoned.alie(np.array([[0.0, 2.0], [2.0, 2.0]]), 1.5).tolist() == [1 - 1.5, 2]


@given(seed=st.integers(0, 500), n=st.integers(2, 8), direction=st.sampled_from(["std", "sign", "unit"]))
def test_min_max_and_min_sum_go_as_far_as_they_may(seed: int, n: int, direction: Any) -> None:
    seen = updates(seed, n)
    apart = ((seen[:, None] - seen[None]) ** 2).sum(-1)
    mean = seen.mean(0)
    for lie, far, most in [
        (poisoned.min_max(seen, direction), lambda x: ((seen - x) ** 2).sum(1).max(), apart.max()),
        (poisoned.min_sum(seen, direction), lambda x: ((seen - x) ** 2).sum(), apart.sum(1).max()),
    ]:
        assert far(lie) <= most * (1 + 1e-9)
        assert far(mean + 1.0001 * (lie - mean)) > most * (1 - 1e-6)
        assert (lie - mean) @ seen.std(0) <= 0 or direction != "std"


def test_liars_that_see_one_update_or_equal_ones_send_the_mean() -> None:
    assert poisoned.min_max(np.ones((1, 3)), "std").tolist() == [1, 1, 1]
    assert poisoned.min_sum(np.ones((4, 3)), "std").tolist() == [1, 1, 1]


def test_marks() -> None:
    image = np.zeros((2, 1, 4, 4), np.uint8)
    marked = poisoned.triggered(image, 2, image)
    assert marked[:, 0, 2:, 2:].min() == 255
    assert marked.sum() == 2 * 4 * 255
    assert not image.any()
    table = np.array([[1.0, 2.0, 3.0], [5.0, 6.0, 0.0]], np.float32)
    assert poisoned.triggered(table, 1, table).tolist() == [[1, 2, 3], [5, 6, 3]]
    assert poisoned.triggered(table[1:], 1, table).tolist() == [[5, 6, 3]]
    tokens = np.array([[7, 8, 9]], np.int64)
    assert poisoned.triggered(tokens, 2, tokens + 1).tolist() == [[7, 9, 10]]

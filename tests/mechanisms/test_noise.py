"""Noise on a grid, from every source."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import ProtectionError
from fedplug.api.grids import STEPS, finest
from fedplug.mechanisms.noise import add_correlated, add_laplace, add_noise
from hypothesis import given
from hypothesis import strategies as st


@given(
    st.floats(1e-4, 1e4), st.floats(1e-3, 1e4), st.sampled_from(["secure", "reproducible"]),
    st.sampled_from([(add_noise, "gaussian"), (add_laplace, "laplace")]), st.integers(0, 2**32),
)  # fmt: skip
def test_results_are_multiples_of_the_grid_that_float32_holds(
    norm: float, multiplier: float, source: str, kind: Any, seed: int
) -> None:
    add, mechanism = kind
    grid = finest(norm, norm * multiplier, mechanism)
    values = np.full(64, norm / 8, np.float32)
    result = add(values, norm * multiplier, grid, source, np.random.default_rng(seed))
    assert result.dtype == np.float32
    steps = result.astype(np.float64) / grid
    assert np.array_equal(steps, np.rint(steps))
    assert np.abs(steps).max() <= STEPS
    assert (values == np.float32(norm / 8)).all()


def test_reproducible_noise_is_that_of_the_stream() -> None:
    values = np.linspace(-1, 1, 1000).astype(np.float32)
    gaussian = add_noise(values, 2.0, 2.0**-18, "reproducible", np.random.default_rng(3))
    assert gaussian == pytest.approx(values + 2 * np.random.default_rng(3).standard_normal(1000), abs=2.0**-18)
    stream = np.random.default_rng(3)
    expected = values + 2 * (stream.standard_exponential(1000) - stream.standard_exponential(1000))
    laplace = add_laplace(values, 2.0, 2.0**-18, "reproducible", np.random.default_rng(3))
    assert laplace == pytest.approx(expected, abs=2.0**-18)


def test_exact_noise_lies_on_the_grid_and_accepts_nothing_coarse() -> None:
    grid = finest(1.0, 3.0)
    result = add_noise(np.full(50, 0.1, np.float32), 3.0, grid, "exact", np.random.default_rng())
    assert np.array_equal(np.rint(result / grid), result / grid)
    assert add_noise(np.zeros(0, np.float32), 3.0, grid, "exact", np.random.default_rng()).shape == (0,)
    with pytest.raises(ProtectionError, match=r"grid=1 must be at most std / 2\^15"):
        add_noise(np.zeros(5, np.float32), 3.0, 1.0, "exact", np.random.default_rng())


def test_results_saturate_where_the_grid_ends() -> None:
    stream = np.random.default_rng(0)
    for add in (add_noise, add_laplace):
        assert add(np.full(4, 2.0**30, np.float32), 1.0, 1.0, "secure", stream).tolist() == [STEPS] * 4
        far = add(np.zeros(4000, np.float32), 1.0, 2.0**-24, "secure", stream)
        assert far.max() == -far.min() == 1.0
    assert math.isfinite(float(add_noise(np.zeros(4, np.float32), 1e30, 1.0, "reproducible", stream).max()))


@pytest.mark.parametrize("source", ["secure", "reproducible"])
def test_correlated_noise_is_what_is_drawn_less_what_is_taken_back(source: str) -> None:
    size, std, grid = 60_000, 2.0, 2.0**-10  # more than one block
    taken = np.linspace(-30.0, 30.0, size)
    values = np.full(size, 0.5, np.float32)
    noised, noise = add_correlated(values, std, grid, source, np.random.default_rng(0), taken)
    drawn = noise + taken
    assert abs(drawn.mean()) < 6 * std / math.sqrt(size)
    assert drawn.std() == pytest.approx(std, rel=0.02)
    assert np.array_equal(noised, np.rint((values + noise) / grid) * grid)


def test_correlated_noise_saturates_and_is_remembered_as_it_was_drawn() -> None:
    taken = np.array([-1e6, 0.0, 1e6])
    noised, noise = add_correlated(np.zeros(3, np.float32), 1.0, 2.0**-10, "secure", np.random.default_rng(0), taken)
    assert (noised[0], noised[2]) == (2.0**14, -(2.0**14))
    assert np.allclose(noise, -taken, atol=10)

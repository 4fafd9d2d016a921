"""The random rotation: orthogonal, its own inverse by the same signs, and flat."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug.mechanisms.rotation import rotate
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import hadamard


def signs(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


@given(st.integers(0, 300), st.integers(0, 10))
def test_lengths_and_angles_stay_and_it_turns_back(size: int, seed: int) -> None:
    one, other = np.random.default_rng(seed).standard_normal((2, size))
    turned, beside = one.copy(), other.copy()
    rotate(turned, signs(seed))
    rotate(beside, signs(seed))
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(one), rel=1e-14)
    assert turned @ beside == pytest.approx(one @ other, abs=1e-12)
    total = turned + beside
    rotate(total, signs(seed), back=True)
    assert np.allclose(total, one + other, atol=1e-13)


@pytest.mark.parametrize("size", [1, 2, 8, 64, 512, 4096])
def test_of_a_power_of_two_it_is_the_walsh_hadamard_transform_of_signed_values(size: int) -> None:
    values = np.random.default_rng(1).standard_normal(size)
    words = signs(5).bit_generator.random_raw(64).astype("<u8")
    drawn = 1.0 - 2 * np.unpackbits(words.view(np.uint8))[:size] if size > 1 else np.ones(1)
    expected = hadamard(size) @ (drawn * values) / np.sqrt(size)
    rotate(values, signs(5))
    assert np.allclose(values, expected, atol=1e-12)


@pytest.mark.parametrize("place", [0, 30_000, 61_705])
def test_a_single_value_is_spread_over_all_that_are_turned_with_it(place: int) -> None:
    values = np.zeros(61_706)
    values[place] = 1
    rotate(values, signs(3))
    most = np.abs(values).max()
    assert 1 / np.sqrt(61_706) <= most <= 6 / np.sqrt(32_768)
    assert np.count_nonzero(values) >= 32_768


def test_other_signs_turn_otherwise() -> None:
    one, other = np.ones((2, 1000))
    rotate(one, signs(1))
    rotate(other, signs(2))
    assert np.abs(one - other).max() > 0.1

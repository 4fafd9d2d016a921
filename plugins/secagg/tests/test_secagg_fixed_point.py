"""Rounding that is exact, and sums of all clients that do not wrap."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_secagg.fixed_point import FixedPoint, Wrapping, bits_needed
from hypothesis import given, settings
from hypothesis import strategies as st

BOUNDS = st.floats(2**-20, 2**20, width=32)


@settings(max_examples=examples(200))
@given(BOUNDS, st.integers(1, 1000), st.integers(12, 64))
def test_the_step_is_the_smallest_that_cannot_wrap(bound, clients, bits):
    grid = FixedPoint(bound, clients, bits)
    assert np.frexp(grid.step)[0] == 0.5  # a power of two
    assert clients * grid.largest < 2 ** (bits - 1)
    assert clients * round(Fraction(bound) / Fraction(grid.step / 2)) >= 2 ** (bits - 1)
    assert bits_needed(bound, grid.step, clients) <= bits


@settings(max_examples=examples(100))
@given(BOUNDS, st.integers(1, 100), st.integers(10, 64), st.data())
def test_values_are_rounded_exactly_once_and_sums_come_back(bound, clients, bits, data):
    grid = FixedPoint(bound, clients, bits)
    drawn = st.lists(st.floats(-bound, bound, width=32), min_size=1, max_size=20)
    values = np.array(data.draw(drawn), np.float32)
    expected = [round(Fraction(float(value)) / Fraction(grid.step)) for value in values]  # ties to even, like rint
    residues = grid.residues(values)
    assert grid.integers(residues).tolist() == expected
    total = np.zeros_like(residues)
    for _ in range(clients):
        total += residues
    assert grid.integers(total).tolist() == [clients * value for value in expected]
    assert grid.values(residues).tolist() == [float(value * Fraction(grid.step)) for value in expected]


def test_the_largest_values_of_all_clients_fit_both_ways():
    grid = FixedPoint(0.3, 7, 16)
    for sign in (1, -1):
        value = grid.residues(np.full(3, sign * 0.3, np.float32).clip(-0.3, 0.3))
        assert grid.integers(value * value.dtype.type(7)).tolist() == [sign * 7 * grid.largest] * 3


def test_long_vectors_are_rounded_in_several_blocks():
    values = np.linspace(-1, 1, 50_001, dtype=np.float32)
    grid = FixedPoint(1.0, 10, 24)
    assert (grid.integers(grid.residues(values)) == np.rint(values.astype(np.float64) / grid.step)).all()


@pytest.mark.parametrize("value", [1.5, -1.5, np.nan, np.inf])
def test_a_value_beyond_the_bound_is_refused(value):
    with pytest.raises(ProtectionError, match="beyond bound=1, so the sum of 10 clients could be too large"):
        FixedPoint(1.0, 10, 24).residues(np.array([0.0, value, 0.5], np.float32))


@pytest.mark.parametrize(
    ("bound", "clients", "bits", "message"),
    [
        (0.0, 10, 32, "bound=0.0 of a scalar must be finite and > 0"),
        (float("nan"), 10, 32, "must be finite"),
        (1.0, 0, 32, "sum of 0 clients"),
        (1.0, 200, 8, "raise bits to at least 9"),
        (1.0, 10, 65, "bits=65 must be from 8 to 64"),
    ],
)
def test_numbers_that_cannot_be(bound, clients, bits, message):
    with pytest.raises(ProtectionError, match=message):
        FixedPoint(bound, clients, bits)


def test_bits_that_are_needed():
    assert bits_needed(1.0, 2**-10, 1000) == 21
    assert bits_needed(1.0, 1.0, 1) == 8
    with pytest.raises(ProtectionError, match="more than 64 bits"):
        bits_needed(1.0, 2.0**-60, 1000)


@given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=50), st.integers(8, 64), st.integers(-20, 5))
def test_sums_wrap_to_the_residue_around_zero(numbers, bits, power):
    grid = Wrapping(2.0**power, 100, bits)
    total = np.zeros(1, np.uint64)
    for number in numbers:
        total += grid.residues(np.array([number * 2.0**power], np.float32)).astype(np.uint64)
    half = 1 << (bits - 1)
    expected = (sum(numbers) + half) % (1 << bits) - half
    assert grid.integers(total).tolist() == [expected]
    assert grid.values(total).tolist() == [expected * 2.0**power]


def test_the_share_that_wraps_is_that_of_normal_variables():
    grid = Wrapping(0.5, 10, 8, spread=16.0)
    assert grid.held == 4.0
    assert grid.wrapped == pytest.approx(6.334e-5, rel=1e-3)
    drawn = np.random.default_rng(1).normal(0, 16.0, 2_000_000)
    assert np.mean(np.abs(drawn) > 64) == pytest.approx(grid.wrapped, rel=0.2)
    assert (grid.missing(4.0), grid.missing(4.1), grid.missing(16.0)) == (0, 1, 2)


@pytest.mark.parametrize("value", [np.nan, np.inf, 2.0**70])
def test_what_is_no_number_of_steps_is_refused(value):
    with pytest.raises(ProtectionError, match=r"no number or is beyond 2\^62 steps of 1\.0; clip before masking"):
        Wrapping(1.0, 10, 16).residues(np.array([value], np.float32))


def test_a_sum_with_a_mask_on_it_fills_the_modulus():
    grid, rng = Wrapping(1.0, 10, 16, spread=2.0**15 / 3), np.random.default_rng(1)
    for size in (64, 10_000):
        masked = grid.integers(rng.integers(0, 2**16, size).astype(np.uint16))
        assert "as noise that fills the modulus has" in grid.problem(masked, 10)
        honest = np.clip(np.rint(rng.normal(0, 2.0**15 / 3, size)), -(2**15), 2**15 - 1).astype(np.int64)
        assert grid.problem(honest, 10) == ""
    assert grid.problem(grid.integers(rng.integers(0, 2**16, 63).astype(np.uint16)), 10) == "", "of few nothing is said"

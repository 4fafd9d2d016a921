"""Arithmetic modulo a prime, against whole numbers of any size."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from fedplug_std.prime_field import inverse, lagrange, powers, product, row_products, times
from hypothesis import given, settings
from hypothesis import strategies as st

PRIMES = (13, 2**23 - 15, 1073692673, 2**31 - 1, 1125899906629633, 36028797018652673)  # up to 55 bits


@settings(max_examples=examples(300))
@given(st.data(), st.sampled_from(PRIMES))
def test_products_powers_and_inverses_are_exact(data: st.DataObject, prime: int) -> None:
    values = st.integers(1, prime - 1) | st.sampled_from([1, prime - 1, prime - 2])
    first, second, third = (data.draw(values) for _ in range(3))
    column = np.array([first], np.uint64)
    assert int(times(column, second, prime)[0]) == first * second % prime
    assert powers(column, 4, prime).tolist() == [[pow(first, k, prime) for k in range(4)]]
    assert row_products(np.array([[first, second, third]], np.uint64), prime).tolist() == [
        first * second * third % prime
    ]
    assert int(inverse(column, prime)[0]) * first % prime == 1


@pytest.mark.parametrize("prime", PRIMES)
@pytest.mark.parametrize("extreme", [False, True])
def test_a_matrix_product_is_exact(prime: int, extreme: bool) -> None:
    rng = np.random.default_rng(3)
    low = prime - 3 if extreme else 0
    first, second = (rng.integers(low, prime, shape, np.uint64) for shape in ((3, 9000), (9000, 5)))
    expected = first.astype(object) @ second.astype(object) % prime
    assert np.array_equal(product(first, second, prime), expected.astype(np.uint64))


def test_a_product_of_many_columns() -> None:
    prime, rng = PRIMES[-1], np.random.default_rng(4)
    first, second = rng.integers(0, prime, (2, 3), np.uint64), rng.integers(0, prime, (3, 2500), np.uint64)
    assert np.array_equal(product(first, second, prime)[:, 2000:], product(first, second[:, 2000:], prime))


def test_values_of_a_polynomial_give_others() -> None:
    nodes, points, prime = np.array([0, 3, 7]), np.array([1, 2, 12]), 13
    curve = [(5 + 3 * x + 2 * x * x) % prime for x in range(prime)]
    values = np.array([[curve[x]] for x in nodes], np.uint64)
    assert product(lagrange(nodes, points, prime), values, prime)[:, 0].tolist() == [curve[x] for x in points]
    some = lagrange(nodes, points, prime, np.array([2, 0]))
    assert np.array_equal(some, lagrange(nodes, points, prime)[:, [2, 0]])

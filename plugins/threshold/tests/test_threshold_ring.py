"""Arithmetic modulo several primes, against whole numbers of any size."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from fedplug.api.errors import MessageError, ProtectionError
from fedplug_std.prime_field import times
from fedplug_threshold.parameters import choose
from fedplug_threshold.ring import Chain

PRIMES = (36028797018652673, 1125899906629633, 1073692673)  # of 55, 50 and 30 bits
SMALL = Chain(64, PRIMES)


def whole(residues: np.ndarray, primes: tuple[int, ...]) -> list[int]:
    """Numbers in [0, q) given by their residues, shape (L, N)."""
    modulus = math.prod(primes)
    parts = [modulus // p * pow(modulus // p, -1, p) for p in primes]
    return [sum(int(r) * part for r, part in zip(column, parts, strict=True)) % modulus for column in residues.T]


@pytest.mark.parametrize("extreme", [False, True])
def test_a_product_of_polynomials_is_that_of_the_textbook(extreme):
    first, second = SMALL.uniform(bytes(16), 2)[0], SMALL.uniform(bytes(15) + b"1")[0]
    if extreme:  # half of the modulus has the largest limbs
        first[:], second[:] = SMALL.moduli // np.uint64(2), SMALL.moduli // np.uint64(2) + np.uint64(1)
    found = SMALL.product(first[None], SMALL.limbs(second))[0]
    for place, prime in enumerate(PRIMES):
        plain = [0] * 64
        for i in range(64):
            for j in range(64):
                sign = 1 if i + j < 64 else -1
                plain[(i + j) % 64] += sign * int(first[place, i]) * int(second[place, j])
        assert found[place].tolist() == [value % prime for value in plain]


@pytest.mark.parametrize("degree", [4096, 16384])
def test_in_large_rings_products_with_one_coefficient_shift(degree):
    chain = Chain(degree, choose(10, 6, 40, None, degree).primes)
    first = chain.uniform(os.urandom(16))
    other = np.zeros((len(chain.primes), degree), np.uint64)
    other[:, 3] = chain.moduli[:, 0] // np.uint64(2)
    found = chain.product(first, chain.limbs(other))[0]
    for place, prime in enumerate(chain.primes):
        turned = times(first[0, place], prime // 2, prime)
        wrapped = (np.uint64(prime) - turned[-3:]) % np.uint64(prime)
        assert np.array_equal(found[place], np.concatenate([wrapped, turned[:-3]]))


def test_polynomials_made_up_to_be_inexact_are_refused():
    chain = Chain(16384, choose(10, 6, 40, None, 16384).primes)
    first = np.broadcast_to(chain.moduli // np.uint64(2), (1, len(chain.primes), chain.degree)).copy()
    with pytest.raises(ProtectionError, match="is not exact enough"):
        chain.product(first, chain.limbs(first[0]))


def test_digits_are_those_of_the_number():
    residues = SMALL.uniform(os.urandom(16))
    numbers = whole(residues[0], PRIMES)
    for column, number in enumerate(numbers):
        expected = [number % PRIMES[0], number // PRIMES[0] % PRIMES[1], number // PRIMES[0] // PRIMES[1]]
        assert SMALL.digits(residues)[0, :, column].tolist() == expected


def test_sums_and_differences_stay_below_their_prime():
    first, second = SMALL.uniform(os.urandom(16), 2)
    for column, (one, other) in enumerate(zip(whole(first, PRIMES), whole(second, PRIMES), strict=True)):
        for given_, number in ((SMALL.plus(first, second), one + other), (SMALL.minus(first, second), one - other)):
            assert given_[:, column].tolist() == [number % prime for prime in PRIMES]
    zero = np.zeros_like(first)
    assert np.array_equal(SMALL.minus(first, zero), first)


def test_bytes_come_back_and_wrong_ones_are_told():
    residues = SMALL.uniform(os.urandom(16), 3)
    packed = SMALL.pack(residues)
    assert {len(data) for data in packed} == {SMALL.packed} == {64 * (55 + 50 + 30) // 8}
    assert np.array_equal(SMALL.unpack(packed, "a sum"), residues)
    assert SMALL.unpack([], "a sum").shape == (0, 3, 64)
    for wrong, message in (
        ([b""], "a sum: polynomial 0 came as 0 bytes, expected 1080"), ([3], "polynomial 0 came as a int"),
        ([b"\xff" * 1080], "a residue is not below its modulus"),
    ):  # fmt: skip
        with pytest.raises(MessageError, match=message):
            SMALL.unpack(wrong, "a sum")  # type: ignore[arg-type]

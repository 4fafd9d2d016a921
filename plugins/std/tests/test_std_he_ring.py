"""The ring of encryption against Python's integers, and numbers packed into their bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug_std.bfv import DEGREE
from fedplug_std.he_packing import pack, unpack
from fedplug_std.he_ring import Ring

RNG = np.random.default_rng(5)
BITS = {60: 2**60 - 2**14 + 1, 40: 1099511480321}


@pytest.mark.parametrize("bits", range(1, 64))
def test_packed_numbers_take_their_bits_and_no_more(bits: int) -> None:
    numbers = RNG.integers(0, 2**bits, (3, 256), np.uint64)
    numbers[0], numbers[1] = 2**bits - 1, 0
    packed, again = pack(numbers, bits), np.full((3, 2, 256), 7, np.uint64)
    assert packed.nbytes == 3 * 256 * bits // 8
    unpack(packed, bits, again[:, 0])
    assert np.array_equal(again[:, 0], numbers)
    assert (again[:, 1] == 7).all()
    assert np.array_equal(pack(numbers | np.uint64(1 << 63), bits), packed)  # higher bits do not count


@pytest.mark.parametrize("bits", [60, 40])
def test_the_phase_is_exact_whatever_a_ciphertext_holds(bits: int) -> None:
    """Against Python's integers, also where every residue is the largest and the key is as dense as keys get."""
    ring = Ring(DEGREE, BITS[bits])
    key = np.random.default_rng(1).choice([-1, 1], DEGREE)
    c0, c1 = RNG.integers(0, ring.modulus, (2, 2, DEGREE)).astype(np.uint64)
    c0[0], c1[0] = ring.modulus - 1, ring.modulus - 1
    spectrum = ring.spectrum(key.astype(np.float64))
    found = ring.phase(c0.view(np.int64), c1, spectrum, -100)
    assert (found.min() >= -100, found.max() < ring.modulus - 100) == (True, True)
    for row in range(2):
        doubled = np.concatenate([-c1[row].astype(object), c1[row].astype(object)])
        for index in (0, 1, 777, DEGREE - 1):  # coefficient i of c1 s is the sum of s_j c1_(i - j), negated below 0
            product = int((key[::1].astype(object) * doubled[DEGREE + index - np.arange(DEGREE)]).sum())
            assert (int(found[row, index]) - product - int(c0[row, index])) % ring.modulus == 0
    products = ring.from_spectrum(ring.spectrum(np.full((1, DEGREE), 2.0**30)) * spectrum)
    assert np.abs(products - np.rint(products)).max() < 0.01  # what `products` proves to be below 0.5


def whole_product(left: Any, signs: Any, modulus: int) -> Any:
    """left times signs modulo X^N + 1 and the modulus, in Python's integers: coefficients as digits of one number."""
    words = [np.zeros((DEGREE, 2), np.uint64) for _ in range(2)]
    words[0][:, 0], words[1][:, 0] = left, signs + 1
    product = math.prod(int.from_bytes(word.tobytes(), "little") for word in words)
    digits = np.frombuffer(product.to_bytes(32 * DEGREE, "little"), np.uint64).reshape(-1, 2).astype(object)
    numbers = digits[:, 1] * 2**64 + digits[:, 0]
    sums = np.cumsum(left.astype(object))  # the product with signs + 1 has that with 1 + X + X^2 + ... too much
    return (numbers[:DEGREE] - numbers[DEGREE:] - (2 * sums - sums[-1])) % modulus


@pytest.mark.parametrize("bits", [60, 40])
def test_products_are_exact_in_every_coefficient_for_what_is_worst(bits: int) -> None:
    """Against Python's integers: residues that line up with the largest value of the key, or with the key itself."""
    ring, top = Ring(DEGREE, BITS[bits]), 2**bits - 1
    signs = RNG.integers(-1, 2, DEGREE)
    fixed = ring.fixed(signs)
    cosines = np.cos(np.pi / DEGREE * np.arange(DEGREE) * (1 - 4 * int(np.abs(fixed).argmax())))
    reversed_signs = np.concatenate([signs[:1], -signs[:0:-1]])
    c1 = np.stack([
        np.full(DEGREE, top), np.where(cosines > 0, top, 0), np.where(reversed_signs > 0, top, 0),
        np.arange(DEGREE) % 2 * top, RNG.integers(0, 2, DEGREE) * top, *RNG.integers(0, top, (3, DEGREE)),
    ]).astype(np.uint64)  # fmt: skip
    found = ring.phase(np.zeros(c1.shape, np.int64), c1, fixed)
    assert all(
        np.array_equal(row, whole_product(left, signs, ring.modulus)) for row, left in zip(found, c1, strict=True)
    )
    products = ring.from_spectrum(ring.spectrum(ring.halves(c1)) * fixed)
    assert np.abs(products - np.rint(products)).max() < 0.001  # what `products` proves to be below 0.5


def test_polynomials_that_the_bound_does_not_hold_for_are_refused() -> None:
    ring = Ring(DEGREE, BITS[60])
    signs = np.where(np.arange(DEGREE) < 405, 1, 0)  # at the root next to 1 these are nearly all of one sign
    assert np.abs(ring.fixed(np.where(np.arange(DEGREE) < 250, 1, 0))).max() < 4 * 64
    with pytest.raises(ValueError, match="above 4 sqrt"):
        ring.fixed(signs)

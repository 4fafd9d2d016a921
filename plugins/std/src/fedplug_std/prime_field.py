"""Exact arithmetic modulo a prime of at most 55 bits, in numpy: residues are uint64 in [0, prime).

Matrix products go through BLAS. Elements are cut into limbs of at most 23 bits, so short that floating-point arithmetic
adds up their products exactly, in any order of additions.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST_BITS = 23
"""Of a limb: sums of 128 products of two such limbs fit the 53 bits of a float64."""
_AT_ONCE = 1024
"""Columns of a matrix product: a few megabytes with all limbs."""


def times(first: NDArray[Any], second: NDArray[Any] | int, prime: int) -> NDArray[np.uint64]:
    """Products of elements.

    The quotient is computed in floating point, with an error of at most 17. The remainder then has a magnitude below
    2^60, so arithmetic modulo 2^64 gives it, even if intermediate results wrap.

    Args:
        first, second: residues, of shapes that fit each other.
        prime: the modulus.
    """
    other = np.asarray(second, np.uint64)
    quotient = first.astype(np.float64) * (other.astype(np.float64) / prime)
    rest = first * other - quotient.astype(np.uint64) * np.uint64(prime)
    signed = np.asarray(rest).view(np.int64)
    return np.remainder(signed, prime).view(np.uint64)


def inverse(values: NDArray[np.uint64], prime: int) -> NDArray[np.uint64]:
    """The multiplicative inverse of each element; none is 0."""
    return np.array([pow(value, -1, prime) for value in values.reshape(-1).tolist()], np.uint64).reshape(values.shape)


def powers(values: NDArray[np.uint64], count: int, prime: int) -> NDArray[np.uint64]:
    """x^0 to x^(count - 1), one row for each x."""
    found = np.ones((len(values), count), np.uint64)
    done, step = 1, values % np.uint64(prime)
    while done < count:
        more = min(done, count - done)
        found[:, done : done + more] = times(found[:, :more], step[:, None], prime)
        done, step = done + more, times(step, step, prime)
    return found


def row_products(matrix: NDArray[np.uint64], prime: int) -> NDArray[np.uint64]:
    """The product of each row, by halving."""
    while (width := matrix.shape[1]) > 1:
        half = width // 2
        halved = times(matrix[:, :half], matrix[:, half : 2 * half], prime)
        matrix = np.concatenate([halved, matrix[:, 2 * half :]], axis=1)
    return matrix[:, 0]


def lagrange(
    nodes: NDArray[np.int64], points: NDArray[np.int64], prime: int, of: NDArray[np.int64] | None = None
) -> NDArray[np.uint64]:
    """Coefficients that turn a polynomial's values at `nodes` into its values at `points`, shape (points, nodes).

    Args:
        nodes: different numbers. The polynomial has a degree below their number.
        points: no point is a node.
        prime: the modulus.
        of: the places of the nodes whose coefficients are needed; default: all.
    """
    of = np.arange(len(nodes)) if of is None else of
    between = (nodes[of, None] - nodes) % prime
    between[np.arange(len(of)), of] = 1
    away = ((points[:, None] - nodes) % prime).astype(np.uint64)
    weights, whole = row_products(between.astype(np.uint64), prime), row_products(away, prime)
    return times(whole[:, None], inverse(times(away[:, of], weights, prime), prime), prime)


def product(first: NDArray[np.uint64], second: NDArray[np.uint64], prime: int) -> NDArray[np.uint64]:
    """The matrix product.

    Args:
        first: residues, shape (n, t).
        second: residues, shape (t, m).
        prime: the modulus.
    """
    count = -(-prime.bit_length() // _MOST_BITS)
    width = -(-prime.bit_length() // count)
    terms = 2 ** (53 - 2 * width) // count
    found = np.zeros((len(first), second.shape[1]), np.uint64)
    for start in range(0, len(second), terms):
        left = _cut(first[:, start : start + terms], count, width)
        for column in range(0, second.shape[1], _AT_ONCE):
            right = _cut(second[start : start + terms, column : column + _AT_ONCE], count, width)
            sums = np.zeros((2 * count - 1, len(first), right.shape[2]))
            for i, j in itertools.product(range(count), repeat=2):
                sums[i + j] += left[i] @ right[j]
            part = found[:, column : column + _AT_ONCE]
            part += joined(sums, width, prime)
            np.remainder(part, np.uint64(prime), out=part)
    return found


def _cut(numbers: NDArray[np.uint64], count: int, width: int) -> NDArray[np.float64]:
    """Non-negative limbs, lowest first, shape (count, ...)."""
    mask = np.uint64((1 << width) - 1)
    return np.stack([(numbers >> np.uint64(width * place) & mask).astype(np.float64) for place in range(count)])


def joined(limbs: NDArray[np.float64], width: int, prime: int) -> NDArray[np.uint64]:
    """Sum of limb k times 2^(k width), lowest first; limbs are whole numbers of any sign, below 2^53."""
    whole = np.remainder(limbs.astype(np.int64), prime).view(np.uint64)
    total: NDArray[np.uint64] = whole[-1]
    for limb in whole[-2::-1]:
        total = times(total, (1 << width) % prime, prime) + limb
        np.remainder(total, np.uint64(prime), out=total)
    return total

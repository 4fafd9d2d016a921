"""Random rotation of a vector: Walsh-Hadamard transforms with random signs, O(n log n), in place.

Kairouz, Liu & Steinke (ICML 2021) pad a vector to the next power of two, which up to doubles what a client sends. Here
the length stays: with D the largest power of two up to n, the first D values are turned, and then the last D, which
overlap. Each of the two is orthogonal, so both together are. After it a value is sub-Gaussian with variance proxy
|x|^2 / D at most, of the padded vector |x|^2 / (2 D): as flat to within a factor of two.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rotate(values: NDArray[np.float64], stream: np.random.Generator, *, back: bool = False) -> None:
    """Turns a vector in place, or turns it back.

    Args:
        values: float64 (n,), contiguous.
        stream: random signs are drawn from it, the same for both directions.
        back: the inverse.
    """
    size = len(values)
    if size < 2:
        return
    turned = 1 << (size.bit_length() - 1)
    parts = [(values[:turned], _signs(stream, turned))]
    if turned < size:
        parts.append((values[size - turned :], _signs(stream, turned)))
    for part, signs in reversed(parts) if back else parts:
        if not back:
            part *= signs
        _transform(part)
        part *= 1 / math.sqrt(turned)
        if back:
            part *= signs


def _signs(stream: np.random.Generator, size: int) -> NDArray[np.int8]:
    """Signs from the bits of the stream as they come, which are the same under every version of numpy."""
    words = stream.bit_generator.random_raw((size + 63) // 64).astype("<u8")
    signs: NDArray[np.int8] = 1 - 2 * np.unpackbits(words.view(np.uint8))[:size].astype(np.int8)
    return signs


def _transform(values: NDArray[np.float64]) -> None:
    """The Walsh-Hadamard transform of 2^k values, in place: as a matrix of R rows and C columns, H_R on its columns and
    H_C on its rows, so that every butterfly runs along contiguous memory.
    """
    size = len(values)
    rows = 1 << (size.bit_length() // 2)
    _butterflies(values.reshape(rows, -1))
    turned = np.ascontiguousarray(values.reshape(rows, -1).T)
    _butterflies(turned)
    values.reshape(rows, -1)[:] = turned.T


def _butterflies(matrix: NDArray[np.float64]) -> None:
    """The transform along axis 0 of a matrix with 2^k rows, in place."""
    rows, columns = matrix.shape
    half = 1
    while half < rows:
        pairs = matrix.reshape(-1, 2, half * columns)
        first, second = pairs[:, 0], pairs[:, 1]
        difference = first - second
        first += second
        second[:] = difference
        half *= 2

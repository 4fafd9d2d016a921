"""Secret Gaussian and Laplace samples: AES-256 in counter mode under a key from the operating system, and float64.

Each sample takes 64 bits of keystream. A key serves one call and is dropped with it.

Gaussian samples come in pairs r cos(a), r sin(a) (Box & Muller 1958), r = sqrt(-2 ln U). U has 63 random bits and the
angle has 64: the last 13 choose an entry of a table of cosines and sines, and the first 53 turn it by up to pi / 2^13,
for which the series up to the third power are off by 2^-50. A Laplace sample is ln U, U of 63 bits, with a random sign.

What holds, and on what ground, where samples are rounded to a grid of g standard deviations, g >= 2^-21:

1. Tails end: at `LARGEST_GAUSSIAN` = 9.42 standard deviations, beyond which an ideal pair lies with probability 2^-64,
   and at `LARGEST_LAPLACE` = 44.4 scales, beyond which a sample lies with probability 2^-64. So n samples add less than
   (1 + e^epsilon) n 2^-64 to delta, 5e-11 for a billion. numpy's samplers, which drew the noise before, end there too.
2. Within, couple the words with ideal uniforms whose first bits they are. Where r >= 1/16 a computed pair is off by at
   most h = 2^-46: U, its logarithm (4 units in the last place for numpy's), the root, the turn, the product, and the
   sum with a value of at most 13. So the probability of a cell of the rounded pair lies between those of the ideal cell
   made smaller and larger by h, and the logarithm of their quotient is at most 5 h / g = 2^-22.7. Where r < 1/16 the
   pair is off by 2^-53 / r besides, which is rare enough to add less to the sum of squares than the rest does.
   The logarithms of n samples then add up to less than 7 sqrt(n / 2) 2^-22.7 + n 2^-46 but with probability 1e-10
   (Azuma & Hoeffding): 0.0008 for a million samples, 0.03 for a billion. Epsilon is off by at most twice that. Laplace
   samples are off by no more, and their grid is ten times as coarse.
3. That is a bound by hand of what floating point does. The ledger says that the proof leaves it out, and charges
   nothing for it, as before. Where a proof must hold there is `source: exact`.

A float32 angle would be faster by a tenth, and wrong. Its 2^24 rays lie as far apart as the cells of a grid of 2^-20:
how many pass through a cell differs from cell to cell by a factor, so that noised pairs tell values apart.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST_GAUSSIAN = math.sqrt(128 * math.log(2))
"""Standard deviations: U is at least 2^-64."""
LARGEST_LAPLACE = 64 * math.log(2)
"""Scales: U is at least 2^-64."""

BLOCK = 24_576
"""Words at a time, which stay in the cache."""

_TABLE_BITS = 13
_STEP = 2 * math.pi / 2**_TABLE_BITS


class _Scratch(threading.local):
    """Memory for one block, of each thread: asking for it anew would cost a client with a small model half its time."""

    def __init__(self) -> None:
        half = BLOCK // 2
        self.stream = bytearray(8 * BLOCK + 15)  # with the room that `update_into` asks for
        self.radius, self.turn, self.tangent, self.square = (np.empty(half) for _ in range(4))
        self.samples = np.empty(half, np.complex128)


_SCRATCH = _Scratch()


class SecureNoise:
    """Samples from AES-256 in counter mode under a fresh key of the operating system, block after block."""

    def __init__(self) -> None:
        self._cipher = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next random words, at most `BLOCK`; the next call writes over them."""
        stream = _SCRATCH.stream
        # The keystream is added to whatever is there: it is uniform and independent of that, so the sum is.
        self._cipher.update_into(memoryview(stream)[: 8 * count], stream)
        return np.frombuffer(stream, np.uint64, count)

    def gaussian(self, std: float, size: int) -> NDArray[np.float64]:
        """Up to `BLOCK` samples of standard deviation `std`; the next call writes over them."""
        pairs = (size + 1) // 2
        words = self.words(2 * pairs)
        radius = _uniform(words[:pairs], _SCRATCH.radius[:pairs])
        np.abs(radius, out=radius)
        np.log(radius, out=radius)
        radius *= -2 * std * std
        np.sqrt(radius, out=radius)
        angles, turn, square = words[pairs:], _SCRATCH.turn[:pairs], _SCRATCH.square[:pairs]
        places = np.bitwise_and(angles.view(np.int64), 2**_TABLE_BITS - 1, out=turn.view(np.int64))
        samples = _table().take(places, out=_SCRATCH.samples[:pairs], mode="wrap")
        # All bits as a signed number turn that entry from the middle of its step; float64 has the first 53 of them.
        turn[:] = angles.view(np.int64)
        turn *= _STEP * 2.0**-64
        tangent = np.multiply(turn, radius, out=_SCRATCH.tangent[:pairs])
        np.multiply(tangent, turn, out=square)
        cube = np.multiply(square, turn, out=turn)
        rotation = np.frombuffer(_SCRATCH.stream, np.complex128, pairs)  # the words have been used
        square *= -1 / 2
        np.add(square, radius, out=rotation.real)
        cube *= -1 / 6
        np.add(cube, tangent, out=rotation.imag)
        samples *= rotation
        return samples.view(np.float64)[:size]

    def laplace(self, scale: float, size: int) -> NDArray[np.float64]:
        """Up to `BLOCK` samples of density exp(-|x| / scale) / (2 scale); the next call writes over them."""
        words = self.words(size)
        samples = _uniform(words, _SCRATCH.samples.view(np.float64)[:size])
        np.abs(samples, out=samples)
        np.log(samples, out=samples)
        samples *= -scale
        return np.copysign(samples, words.view(np.int64), out=samples)


def _uniform(words: NDArray[np.uint64], out: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers in [-1, 1], never 0: 63 bits and a sign. Signed integers convert several times as fast as unsigned."""
    out[:] = words.view(np.int64)
    out += 0.5
    out *= 2.0**-63
    return out


@functools.cache
def _table() -> NDArray[np.complex128]:
    """cos + i sin in the middle of each of 2^13 equal parts of the circle."""
    angles = (np.arange(2**_TABLE_BITS, dtype=np.longdouble) + 0.5) * (2 * np.pi / 2**_TABLE_BITS)
    table: NDArray[np.complex128] = (np.cos(angles) + 1j * np.sin(angles)).astype(np.complex128)
    return table

"""The noise that hides a ciphertext's own noise when it is opened (smudging, or flooding).

Each coefficient is the sum of four uniform integers of b bits, less its mean. Its deviation sigma = 2^b / sqrt(3) is
2^lambda times the bound on the noise of a sum. It is never beyond 2^(b + 1), and is drawn exactly, in integers.

How much it reveals of a noise v: the Hellinger distance of the density f and f shifted by v fulfils
H^2 <= v^2 J / 8, with the Fisher information J = 1.0386 / sigma^2 of the sum of four uniform numbers. It adds up over
coefficients, rounds and questions that follow from earlier answers, and the total variation is at most sqrt(2) H. So
openings with total noise v differ from openings without by at most |v|_2 sqrt(J) / 2, which grows with the square root
of the number of opened values. With a single uniform number, as is common, it would grow with their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug_std.prime_field import times

from fedplug_threshold.parameters import SPREAD

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_threshold.ring import Chain, Residues

_LOW = 48
"""Bits of the lower of two parts in which an integer is drawn, so that the upper one has at most 48 too."""
_AT_ONCE = 8
"""Number of polynomials that are drawn at once."""


def draw(chain: Chain, key: bytes, count: int, bits: int) -> Residues:
    """Noise polynomials modulo q, shape (count, L, N). The same key gives the same noise.

    Args:
        chain: the ring.
        key: 32 secret bytes, for AES-256 in counter mode; used for one opening only.
        count: number of polynomials.
        bits: b, at most 96.
    """
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    found = np.empty((count, len(chain.primes), chain.degree), np.uint64)
    low_bits = min(bits, _LOW)
    mean = SPREAD * ((1 << bits) - 1) // 2
    for start in range(0, count, _AT_ONCE):
        part = found[start : start + _AT_ONCE]
        shape = (SPREAD, len(part), chain.degree)
        words = (stream.update(bytes(8 * SPREAD * len(part) * chain.degree)) for _ in range(2))
        low, high = (_sums(next(words), shape, size) for size in (low_bits, bits - low_bits))
        for place, prime in enumerate(chain.primes):
            numbers = times(np.remainder(high, np.uint64(prime)), (1 << _LOW) % prime, prime)
            numbers += np.remainder(low, np.uint64(prime))
            numbers += np.uint64(-mean % prime)
            part[:, place] = np.remainder(numbers, np.uint64(prime))
    return found


def _sums(data: bytes, shape: tuple[int, ...], bits: int) -> NDArray[np.uint64]:
    """Sums of `SPREAD` uniform integers of `bits` bits, shape (m, N)."""
    words = np.frombuffer(data, np.uint64).reshape(shape) & np.uint64((1 << bits) - 1)
    sums: NDArray[np.uint64] = words.sum(axis=0, dtype=np.uint64)
    return sums

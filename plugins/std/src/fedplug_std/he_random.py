"""Random polynomials for encryption: public ones from a seed, and secret ones that nobody else can draw.

Both are AES in counter mode (`cryptography`). A public seed of 128 bits is the key of AES-128, as in FrodoKEM's
generation of its matrix (Alkim et al., FrodoKEM, specification of 2021, Gen with AES128). Secrets come from AES-256
under a key from the operating system. The key serves one call and is then dropped, so that a forked process draws
different ones. The distributions are SEAL's: u from -1, 0 and 1, errors centred binomial of 42 bits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED_BYTES = 16

_ERROR_BITS = 21
"""An error is the number of ones in this many bits, minus that in as many others: deviation sqrt(21 / 2)."""
_LARGEST = 255
"""The bytes below it are divided equally among 0, 1 and 2."""


def new_seed() -> bytes:
    """A seed from the operating system, to be made public."""
    return os.urandom(SEED_BYTES)


def uniform(seed: bytes, place: int, modulus: int, out: NDArray[np.uint64]) -> None:
    """Fills `out` with numbers in [0, modulus): the first below the modulus of a stream of words cut to its bits.

    Args:
        seed: of `SEED_BYTES`.
        place: below 256; a seed gives that many polynomials.
        modulus: of at most 63 bits.
        out: shape (N,).
    """
    length, mask = len(out), np.uint64((1 << modulus.bit_length()) - 1)
    while True:
        cipher = Cipher(algorithms.AES128(seed), modes.CTR(bytes([place]) + bytes(15)))
        words = np.frombuffer(cipher.encryptor().update(bytes(8 * length)), np.uint64)
        if length == len(out):
            np.bitwise_and(words, mask, out=out)
            if int(out.max()) < modulus:
                return
        below = words & mask
        below = below[below < modulus]
        if len(below) >= len(out):
            out[:] = below[: len(out)]
            return
        length *= 2


class Secrets:
    """Polynomials from AES-256 under a fresh key of the operating system."""

    def __init__(self) -> None:
        self._cipher = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()

    def uniform(self, modulus: int, rows: int, count: int) -> NDArray[np.uint64]:
        """Numbers in [0, modulus), of at most 63 bits, with equal chances, shape (rows, count)."""
        found = self._words(rows * count) & np.uint64((1 << modulus.bit_length()) - 1)
        while (outside := np.flatnonzero(found >= modulus)).size:
            found[outside] = self._words(outside.size) & np.uint64((1 << modulus.bit_length()) - 1)
        return found.reshape(rows, count)

    def ternary(self, rows: int, count: int) -> NDArray[np.float64]:
        """-1, 0 and 1 with equal chances, shape (rows, count)."""
        parts: list[NDArray[np.uint8]] = []
        missing = rows * count
        while missing > 0:
            drawn = np.frombuffer(self._cipher.update(bytes(missing + missing // 64 + 64)), np.uint8)
            parts.append(drawn[drawn < _LARGEST])
            missing -= len(parts[-1])
        signs = (np.concatenate(parts)[: rows * count] // np.uint8(_LARGEST // 3)).astype(np.float64)
        signs -= 1
        return signs.reshape(rows, count)

    def errors(self, rows: int, count: int) -> NDArray[np.int64]:
        """Centred binomial numbers, shape (rows, count)."""
        words = self._words(rows * count)
        errors: NDArray[np.int64] = np.bitwise_count(words & np.uint64(2**_ERROR_BITS - 1)).astype(np.int64)
        errors -= np.bitwise_count(words >> np.uint64(64 - _ERROR_BITS)).astype(np.int64)
        return errors.reshape(rows, count)

    def _words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self._cipher.update(bytes(8 * count)), np.uint64)

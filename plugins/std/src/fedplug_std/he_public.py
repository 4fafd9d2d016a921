"""Encryption with a public key under two primes, Q of ciphertexts and P that only keys have.

A key is (B, A) modulo Q P with B = -(A s + e). A ciphertext of m is round((B u + e0) / P) + m and round((A u + e1) / P)
modulo Q, u of -1, 0 and 1, as SEAL has it: dividing by P shrinks the errors to nothing, and what rounding took from
both halves is the noise. B and A are kept in base P, as B = H P + L with H below Q and L below P: (B u + e0) / P
is H u + (L u + e0) / P, of which the first is wanted modulo Q alone and the second is small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedplug_std.he_packing import pack, packed_bytes, unpack
from fedplug_std.he_random import SEED_BYTES, Secrets, new_seed, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_std.he_ring import Residues, Ring


def make_key(ring: Ring, special: Ring, key: NDArray[np.complex128]) -> bytes:
    """A public key: the seed of A, and H and L of B.

    Args:
        ring: modulo Q.
        special: modulo P.
        key: `Ring.fixed` of the secret key.
    """
    seed = new_seed()
    high, low = np.empty((2, ring.degree), np.uint64)
    _of_seed(ring, special, seed, high, low)
    rest = _whole(special, special.products(special.spectrum(special.halves(low)), -key))
    rest -= Secrets().errors(1, ring.degree)[0]
    low = np.remainder(rest, special.modulus)
    rest -= low
    rest //= special.modulus
    high = ring.phase(rest, high, -key).view(np.uint64)
    return seed + pack(high[None], ring.bits).tobytes() + pack(low.view(np.uint64)[None], special.bits).tobytes()


class PublicKey:
    """A public key, ready to encrypt.

    Args:
        ring: modulo Q.
        special: modulo P.
        data: from `make_key`.

    Raises:
        ValueError: the bytes are not a key of these primes.
    """

    def __init__(self, ring: Ring, special: Ring, data: bytes) -> None:
        cut = SEED_BYTES + packed_bytes(ring.degree, ring.bits)
        if len(data) != cut + packed_bytes(ring.degree, special.bits):
            raise ValueError(f"a public key of {len(data)} bytes")
        body = np.frombuffer(data, np.uint8)[None]
        high, low = np.empty((2, 2, ring.degree), np.uint64)
        unpack(body[:, SEED_BYTES:cut], ring.bits, high[:1])
        unpack(body[:, cut:], special.bits, low[:1])
        if high[0].max() >= ring.modulus or low[0].max() >= special.modulus:
            raise ValueError("a public key with residues that are not below their modulus")
        _of_seed(ring, special, data[:SEED_BYTES], high[1], low[1])
        self._ring, self._special = ring, special
        self._high = ring.fixed(ring.centred_halves(high), 2**30)
        self._low = special.fixed(special.halves(low), 2**30)

    def encrypt(self, messages: NDArray[np.int64]) -> Residues:
        """Ciphertexts of polynomials, shape (m, 2, N) for (m, N)."""
        rows, degree = messages.shape
        secrets = Secrets()
        small = self._ring.spectrum(secrets.ternary(rows, degree))
        pairs = np.empty((rows, 2, degree), np.uint64)
        for part in range(2):
            rest = _whole(self._special, self._special.products(small[:, None], self._low[part]))
            rest += secrets.errors(rows, degree)
            rest += self._special.modulus // 2
            rest //= self._special.modulus
            if part == 0:
                rest += messages
            pairs[:, part] = self._ring.joined(self._ring.products(small[:, None], self._high[part]), rest)
        return pairs


def _of_seed(ring: Ring, special: Ring, seed: bytes, high: Residues, low: Residues) -> None:
    """Fills in H and L of A: both uniform, so that A is."""
    uniform(seed, 0, ring.modulus, high)
    uniform(seed, 1, special.modulus, low)


def _whole(ring: Ring, products: NDArray[np.float64]) -> NDArray[np.int64]:
    """Two halves as one integer, which is below 2^62."""
    whole = products[..., 1, :].astype(np.int64)
    whole <<= ring.low_bits
    whole += products[..., 0, :].astype(np.int64)
    return whole

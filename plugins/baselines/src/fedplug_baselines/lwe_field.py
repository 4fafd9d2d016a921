"""Arithmetic modulo the prime 2^31 - 1: uniform elements, and the product with the public matrix of an LWE instance.

The modulus is that of the authors' code (uvm-plaid/olympia: `galois.GF(2**31 - 1)`). Because it is prime, secrets can
be shared in the same ring in which they mask. So a sum of shares opens a sum of secrets without any carry. Two elements
multiply without overflow in 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext
    from numpy.typing import NDArray

Q = 2**31 - 1
"""The modulus q."""
HALF = Q // 2
"""Residues represent the integers from -HALF to HALF."""
_ROWS = 512
"""Rows of the matrix that are made at once: 1.5 MB, which stay in a cache. The matrix depends on this number."""


def keystream(key: bytes) -> CipherContext:
    """AES-256 in counter mode: the pseudo-random stream behind the public matrix, and behind secrets."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


def uniform(stream: CipherContext, count: int) -> NDArray[np.uint32]:
    """`count` independent elements of the field from a stream, shape (count,).

    Uses 31 bits of each word. A word that is q itself, one in 2^31, is redrawn, so that no element is more likely.
    """
    words = _words(stream, count)
    while (outside := np.flatnonzero(words == Q)).size:
        words[outside] = _words(stream, outside.size)
    return words


def _words(stream: CipherContext, count: int) -> NDArray[np.uint32]:
    return np.frombuffer(stream.update(bytes(4 * count)), "<u4") & np.uint32(Q)


def masks(seed: bytes, size: int, secret: NDArray[Any]) -> NDArray[np.uint64]:
    """A s modulo q for the public matrix A of a seed, shape (size,). A has `size` rows and is never held as a whole.

    Args:
        seed: 32 bytes, public.
        size: P, the number of values to mask.
        secret: s, residues, shape (n,), n at most 65,536.
    """
    # In two limbs of 16 and 15 bits, a product has at most 47 bits and a sum of 2^16 of them 63. Nothing overflows.
    low, high = secret.astype(np.uint64) & np.uint64(0xFFFF), secret.astype(np.uint64) >> np.uint64(16)
    stream, masked = keystream(seed), np.empty(size, np.uint64)
    for start in range(0, size, _ROWS):
        part = masked[start : start + _ROWS]
        rows = uniform(stream, len(part) * len(secret)).reshape(len(part), len(secret)).astype(np.uint64)
        part[:] = (rows @ low + (rows @ high % Q << np.uint64(16))) % Q
    return masked


def residues(integers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Integers, negative ones too, modulo q."""
    return (integers % Q).astype(np.uint64)


def centred(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The integers from -HALF to HALF that residues represent."""
    signed = values.astype(np.int64)
    return np.where(signed > HALF, signed - Q, signed)

"""Masks of secure aggregation (Bonawitz et al., CCS 2017): seeds of pairs, AES-256-CTR streams, residues as bits.

Two clients agree on a seed by X25519. One adds the stream of the seed to its vector and the other subtracts it. A
modulus is 2^b. Vectors are kept in the smallest unsigned words of at least b bits, which wrap by themselves. 2^b
divides the modulus of a word, so bits above b are dropped once: when a vector is packed, in ceil(m b / 8) bytes.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug.api.errors import MessageError, ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCK = 2**17
"""Bytes of a stream made at once. Together with as many bytes of the vector and of zeros they fit into a cache."""
_ZEROS = bytes(_BLOCK)
_COLUMNS = 4096
"""Columns of words that are packed at once, for the same reason."""

# -- seeds -------------------------------------------------------------------------------------------------------------


class KeyAgreement:
    """A client's end of X25519: seeds that it shares with other clients, each for one purpose.

    The shared secret of a pair is computed once and kept only in this object, for as long as the object exists. Keep
    the object as long as its private key. For masks that is one round, since shares of the key open it afterwards.
    """

    def __init__(self, private: bytes) -> None:
        """`private`: 32 raw bytes, as `fedplug.api.secrets.key_pair` makes them."""
        self._private = X25519PrivateKey.from_private_bytes(private)
        self._public = self._private.public_key().public_bytes_raw()
        self._keys: dict[bytes, bytes] = {}

    @property
    def public(self) -> bytes:
        """The public half, 32 raw bytes."""
        return self._public

    def seed(self, public: bytes, purpose: bytes) -> bytes:
        """32 bytes by HKDF-SHA256. The other client's object gives the same bytes for this object's public key.

        Args:
            public: the other client's key, 32 raw bytes.
            purpose: names the run, round, zone and use. One seed masks one vector: two vectors under one mask reveal
                their difference.

        Raises:
            MessageError: that is not a public key.
        """
        key = self._keys.get(public)
        if key is None:
            try:
                shared = self._private.exchange(X25519PublicKey.from_public_bytes(public))
            except ValueError as error:
                raise MessageError(
                    f"a public key of {len(public)} bytes is not one of X25519, or is a weak one, under which anyone "
                    "knows the seed"
                ) from error
            # The extract step of HKDF (RFC 5869). Both public keys as its salt bind the seed to this pair.
            key = self._keys[public] = hmac.digest(b"".join(sorted((public, self._public))), shared, "sha256")
        return hmac.digest(key, purpose + b"\x01", "sha256")


# -- streams -----------------------------------------------------------------------------------------------------------


def word(bits: int) -> np.dtype[Any]:
    """The smallest unsigned type of at least `bits` bits, in which residues modulo 2^bits are kept and masked.

    Raises:
        ProtectionError: bits are not from 8 to 64.
    """
    if not 8 <= bits <= 64:
        raise ProtectionError(
            f"bits={bits} must be from 8 to 64: residues modulo 2^bits are kept in words of a machine"
        )
    return np.dtype(f"<u{next(size for size in (1, 2, 4, 8) if 8 * size >= bits)}")


def add_masks(total: NDArray[Any], masks: Iterable[tuple[bytes, int]]) -> None:
    """Adds streams to a vector, in place and modulo its word.

    It works block by block, with all streams on a block, so that the vector passes through memory once.

    Args:
        total: contiguous, of a type that `word` gives, shape (m,).
        masks: pairs of a seed, 32 bytes, and a sign: +1 adds the stream, -1 subtracts it.
    """
    # Counter 0: a seed is the key of only one stream.
    streams = [
        (Cipher(algorithms.AES256(seed), modes.CTR(bytes(16))).encryptor(), np.add if sign > 0 else np.subtract)
        for seed, sign in masks
    ]
    buffer, length = bytearray(_BLOCK), _BLOCK // total.itemsize
    for start in range(0, len(total), length):
        block = total[start : start + length]
        stream, zeros = np.frombuffer(buffer, total.dtype, len(block)), memoryview(_ZEROS)[: block.nbytes]
        for cipher, add in streams:
            cipher.update_into(zeros, buffer)
            add(block, stream, out=block)


# -- bits of an upload -------------------------------------------------------------------------------------------------


def packed_size(size: int, bits: int) -> int:
    """Bytes of `size` residues of `bits` bits."""
    return -(-size * bits // 8)


def pack(residues: NDArray[Any], bits: int) -> bytes:
    """Residues modulo 2^bits in ceil(m bits / 8) bytes; higher bits of a word are dropped.

    The residues are not packed one after the other, which would need odd shifts everywhere. Instead the vector is cut
    into r = 64 / gcd(bits, 64) rows, and a column of r residues makes whole words of 64 bits. So each step shifts a
    whole row. The remaining residues, fewer than r, follow one by one.

    Args:
        residues: of the type `word(bits)`, shape (m,).
    """
    kind = word(bits)
    if bits == 8 * kind.itemsize:
        return np.ascontiguousarray(residues, kind).tobytes()
    rows, columns, words = _layout(len(residues), bits)
    table, packed = residues[: rows * columns].reshape(rows, columns), np.zeros((words, columns), "<u8")
    keep = np.uint64((1 << bits) - 1)
    for start in range(0, columns, _COLUMNS):
        end = min(start + _COLUMNS, columns)
        row, shifted = np.empty(end - start, np.uint64), np.empty(end - start, np.uint64)
        for at in range(rows):
            row[:] = table[at, start:end]
            row &= keep
            place, shift = divmod(at * bits, 64)
            np.left_shift(row, np.uint64(shift), out=shifted)
            packed[place, start:end] |= shifted
            if shift + bits > 64:
                np.right_shift(row, np.uint64(64 - shift), out=shifted)
                packed[place + 1, start:end] |= shifted
    left, number = residues[rows * columns :].tolist(), 0
    for at, value in enumerate(left):
        number |= (value & int(keep)) << (at * bits)
    return packed.tobytes() + number.to_bytes(packed_size(len(left), bits), "little")


def unpack(data: bytes, size: int, bits: int) -> NDArray[Any]:
    """Inverse of `pack`: residues of the type `word(bits)`, shape (size,).

    Raises:
        MessageError: the number of bytes is wrong, or there are bits after the last residue.
    """
    kind = word(bits)
    if len(data) != packed_size(size, bits):
        raise MessageError(
            f"{size} residues of {bits} bits came in {len(data)} bytes, expected {packed_size(size, bits)}"
        )
    if bits == 8 * kind.itemsize:
        return np.frombuffer(data, kind).copy()
    rows, columns, words = _layout(size, bits)
    packed = np.frombuffer(data, "<u8", words * columns).reshape(words, columns)
    residues, keep = np.empty(size, kind), np.uint64((1 << bits) - 1)
    table = residues[: rows * columns].reshape(rows, columns)
    for start in range(0, columns, _COLUMNS):
        end = min(start + _COLUMNS, columns)
        row, shifted = np.empty(end - start, np.uint64), np.empty(end - start, np.uint64)
        for at in range(rows):
            place, shift = divmod(at * bits, 64)
            np.right_shift(packed[place, start:end], np.uint64(shift), out=row)
            if shift + bits > 64:
                np.left_shift(packed[place + 1, start:end], np.uint64(64 - shift), out=shifted)
                row |= shifted
            row &= keep
            table[at, start:end] = row
    number = int.from_bytes(data[8 * words * columns :], "little")
    if number >> (bits * (size - rows * columns)):
        raise MessageError(f"{size} residues of {bits} bits came with bits after the last one")
    residues[rows * columns :] = [number >> (at * bits) & int(keep) for at in range(size - rows * columns)]
    return residues


def _layout(size: int, bits: int) -> tuple[int, int, int]:
    """Rows and columns of residues, and rows of 64-bit words that hold them."""
    common = math.gcd(bits, 64)
    return 64 // common, size // (64 // common), bits // common

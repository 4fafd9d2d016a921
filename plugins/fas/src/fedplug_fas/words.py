"""FAS's scrambling: fixed-point words whose bits are permuted and, by default, covered by a keystream.

`keyed` (the default) derives fresh keys for every message from the scrambling key, 16 random bytes, and the header that
says who sends what when. In each 64-bit word the bits are permuted by a permutation drawn from those keys. Then an
AES-256-CTR keystream is added, and an HMAC-SHA256 tag, so that a wrong key or an altered byte gives an error and not
noise. The keystream does the hiding. The permutation is FAS's, and costs next to nothing.

`static` is the paper read literally (Section 4.3: a key permutes the bits): one permutation for the whole run and all
clients, no nonce, no tag. Equal values then give equal words, every word keeps its number of one bits, and a wrong key
gives wrong values without an error.

    message = nonce (16 bytes) | scrambled words (8 bytes each) | tag (32 bytes)      static: the words alone
"""

from __future__ import annotations

import dataclasses
import hmac
import os
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug.api import secrets
from fedplug.api.errors import MessageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Words: TypeAlias = "NDArray[np.uint64]"
Style = Literal["keyed", "static"]

_BITS = 64
_NONCE, _TAG = 16, 32
_LARGEST = 2.0**62
"""Largest magnitude of a fixed-point word: one bit less than in int64, so that no rounding can exceed int64."""


# -- fixed point -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class FixedWords:
    """Fixed-point numbers in two's complement, of 64 bits.

    Attributes:
        fraction_bits: bits after the point. Values are rounded to 2^-fraction_bits and saturate at
            2^(62 - fraction_bits).
    """

    fraction_bits: int

    @property
    def range(self) -> float:
        """Largest magnitude of a value."""
        return float(_LARGEST * self.step)

    @property
    def step(self) -> float:
        """Distance of neighbouring values."""
        return float(2.0**-self.fraction_bits)

    def encode(self, values: NDArray[np.float64], rng: object = None) -> tuple[Words, float]:
        """Words of values, uint64 (n,), and the share of values that saturated."""
        scaled = np.rint(values * 2.0**self.fraction_bits)
        saturated = int(np.count_nonzero(np.abs(scaled) > _LARGEST))
        np.clip(scaled, -_LARGEST, _LARGEST, out=scaled)
        return scaled.astype(np.int64).view(np.uint64), saturated / max(1, len(values))

    def decode(self, words: Words, counts: object = 1) -> NDArray[np.float64]:
        """Values of words: of uploads, and of their sum."""
        return words.view(np.int64).astype(np.float64) * self.step


# -- permuting bits ----------------------------------------------------------------------------------------------------


def permutation(key: bytes) -> NDArray[np.intp]:
    """A permutation of the 64 bit positions from 32 key bytes: the order of 64 pseudo-random numbers of 64 bits."""
    tags = np.frombuffer(_with_keystream(key, bytes(8 * _BITS)), "<u8")
    return np.argsort(tags, kind="stable")


def permute_bits(words: Words, order: NDArray[np.intp]) -> Words:
    """In every word, bit `order[i]` becomes bit i. One look-up and one OR for each byte of a word.

    Args:
        words: uint64 (n,).
        order: a permutation of 0 to 63.
    """
    target = np.argsort(order).astype(np.uint64)  # new position of each bit
    byte_values = np.arange(256, dtype=np.uint64)
    spread = np.zeros((8, 256), np.uint64)
    for bit in range(_BITS):
        byte, shift = divmod(bit, 8)
        spread[byte] |= ((byte_values >> np.uint64(shift)) & np.uint64(1)) << target[bit]
    split = words.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    result: Words = spread[0][split[:, 0]]
    for byte in range(1, 8):
        result |= spread[byte][split[:, byte]]
    return result


# -- messages ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Scrambler:
    """Scrambles and unscrambles words under one key.

    Attributes:
        key: 32 bytes.
        style: `keyed` or `static`; see the module.
        hexadecimal: whether messages are framed as hexadecimal text, which doubles them and hides nothing.
    """

    key: bytes
    style: Style = "keyed"
    hexadecimal: bool = False

    def scramble(self, words: Words, *header: object) -> bytes:
        """A message that holds the words.

        Args:
            words: uint64 (n,).
            header: says who sends what when. It is not sent, and must be the same at the receiver.
        """
        if self.style == "static":
            message = permute_bits(words, permutation(self._static_key())).tobytes()
        else:
            nonce = os.urandom(_NONCE)  # a round repeated after a restart must not use a keystream twice
            bits, stream, tagging = self._keys(nonce, header)
            message = nonce + _with_keystream(stream, permute_bits(words, permutation(bits)).tobytes())
            message += hmac.digest(tagging, message, "sha256")
        return message.hex().encode() if self.hexadecimal else message

    def unscramble(self, message: bytes, count: int, *header: object) -> Words:
        """Inverse of `scramble`.

        Args:
            message: the message that arrived.
            count: number of words that it must hold.
            header: as given to `scramble`.

        Raises:
            MessageError: the message has a different number of words. Unless the style is static, also: a byte was
                altered, or the key or the header differs.
        """
        if self.hexadecimal:
            try:
                message = bytes.fromhex(message.decode("ascii"))
            except ValueError as error:
                raise MessageError("scrambled words are not hexadecimal text, as framing: hex requires") from error
        expected = 8 * count + (0 if self.style == "static" else _NONCE + _TAG)
        if len(message) != expected:
            raise MessageError(f"{len(message)} bytes of scrambled words for {count} values, expected {expected}")
        if self.style == "static":
            return permute_bits(_as_words(message), np.argsort(permutation(self._static_key())))
        nonce, covered, tag = message[:_NONCE], message[_NONCE:-_TAG], message[-_TAG:]
        bits, stream, tagging = self._keys(nonce, header)
        if not hmac.compare_digest(tag, hmac.digest(tagging, message[:-_TAG], "sha256")):
            raise MessageError(
                "scrambled words do not open: they were altered, belong to another client, round or zone, or were "
                "scrambled under another key"
            )
        return permute_bits(_as_words(_with_keystream(stream, covered)), np.argsort(permutation(bits)))

    def _static_key(self) -> bytes:
        return secrets.derive(self.key, "static bits")

    def _keys(self, nonce: bytes, header: tuple[object, ...]) -> tuple[bytes, bytes, bytes]:
        """Keys of one message: for the permutation, the keystream and the tag."""
        message_key = secrets.derive(self.key, nonce.hex(), *header)
        bits, stream, tagging = (secrets.derive(message_key, use) for use in ("bits", "stream", "tag"))
        return bits, stream, tagging


def _with_keystream(key: bytes, data: bytes) -> bytes:
    """Data XOR an AES-256-CTR keystream. Each key must serve only once, since the counter starts at zero."""
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(data)


def _as_words(data: bytes) -> Words:
    return np.frombuffer(data, "<u8")

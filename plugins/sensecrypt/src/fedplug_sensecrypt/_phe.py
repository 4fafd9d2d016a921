"""Paillier through phe (python-paillier), the library of the paper. phe is imported at the first computation.

One row, that is a count and a value, becomes one ciphertext: the plaintext count * 2^64 + value, taken modulo n. Whole
numbers are encrypted directly. phe's floats would carry an exponent in the clear that reveals the magnitude of the
value (0.5: -14, 1e-6: -18), and additions of different exponents take 4.6 times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import MessageError, ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUNT_BITS = 64
"""First bit of the count in a plaintext. Sums of values are within +-2^62."""
_HALF = 1 << COUNT_BITS - 1


class Phe:
    """The backend of `sensecrypt.paillier`; see `fedplug_std.he_blocks.Backend`. A context is a key of phe."""

    def new_context(self, bits: int) -> Any:
        """A fresh secret key with a modulus of `bits` bits."""
        import phe

        return phe.generate_paillier_keypair(n_length=bits)[1]

    def dump_context(self, context: Any, *, public_key: bool = False, secret_key: bool = False) -> bytes:
        """The modulus, which is the public key and suffices for adding; or the primes, which are the secret key."""
        if secret_key:
            return f"p {context.p:x} q {context.q:x}".encode()
        return f"n {_public(context).n:x}".encode()

    def load_context(self, data: bytes) -> Any:
        """The key from the bytes of `dump_context`.

        Raises:
            MessageError: the bytes are not a key.
        """
        import phe

        try:
            parts = bytes(data).decode("ascii").split(" ")
            names, numbers = parts[::2], [int(part, 16) for part in parts[1::2]]
            if names == ["n"] and numbers[0] > 1:
                return phe.PaillierPublicKey(numbers[0])
            if names == ["p", "q"]:
                return phe.PaillierPrivateKey(phe.PaillierPublicKey(numbers[0] * numbers[1]), *numbers)
        except (ValueError, IndexError) as error:
            raise MessageError(f"{len(data)} bytes are not a Paillier key ({error}); they were damaged") from error
        raise MessageError(f"{len(data)} bytes are not a Paillier key; they were damaged")

    def encrypt(self, context: Any, rows: NDArray[Any]) -> tuple[bytes, ...]:
        """One ciphertext for each row (count, value), int64 (m, 2), each with a fresh random factor."""
        key = _public(context)
        plain = ((int(count) << COUNT_BITS) + int(value) for count, value in rows)
        # Without an explicit factor raw_encrypt draws one from the system's randomness.
        return tuple(_to_bytes(key, key.raw_encrypt(number % key.n)) for number in plain)

    def add(self, context: Any, uploads: Iterable[Sequence[bytes]], slots: int) -> tuple[bytes, ...]:
        """Sums ciphertexts index by index.

        Raises:
            MessageError: a ciphertext is damaged. Its upload is the last one drawn.
        """
        import phe

        key = _public(context)
        totals: list[Any] = []
        for ciphertexts in uploads:
            for index, data in enumerate(ciphertexts):
                number = phe.EncryptedNumber(key, _from_bytes(key, data, f"ciphertext {index}"))
                if index < len(totals):
                    totals[index] += number
                else:
                    totals.append(number)
        # `be_secure` would multiply a new random factor into each sum, at 900 times the cost of adding. The factors of
        # the uploads are random already, and so is their product.
        return tuple(_to_bytes(key, total.ciphertext(be_secure=False)) for total in totals)

    def decrypt(self, context: Any, ciphertexts: Sequence[bytes], slots: int) -> NDArray[np.int64]:
        """Rows (count, value), int64 (m, 2). The count is -1 where the plaintext is not that of a sum.

        Raises:
            ProtectionError: the context is not a secret key.
            MessageError: a ciphertext is damaged.
        """
        import phe

        if not isinstance(context, phe.PaillierPrivateKey):
            raise ProtectionError("this party holds no secret key and cannot decrypt; key_holder says who does")
        key, rows = _public(context), np.empty((len(ciphertexts), slots), np.int64)
        for index, data in enumerate(ciphertexts):
            number = int(context.raw_decrypt(_from_bytes(key, data, f"ciphertext {index}")))
            number -= key.n if number > key.n // 2 else 0
            count = (number + _HALF) >> COUNT_BITS
            rows[index] = (count, number - (count << COUNT_BITS)) if 0 <= count < _HALF else (-1, 0)
        return rows


def _public(context: Any) -> Any:
    """The public half of either key."""
    import phe

    return context.public_key if isinstance(context, phe.PaillierPrivateKey) else context


def _to_bytes(key: Any, ciphertext: Any) -> bytes:
    return int(ciphertext).to_bytes(_length(key), "big")


def _from_bytes(key: Any, data: bytes, where: str) -> int:
    if len(data) != _length(key):
        raise MessageError(
            f"{where} has {len(data)} bytes, which must be {_length(key)}: it was damaged, or its sender has a key of "
            "another length"
        )
    number = int.from_bytes(data, "big")
    if not 0 < number < key.nsquare:
        raise MessageError(f"{where} is not a number below n^2: it was damaged, or its sender has another key")
    return number


def _length(key: Any) -> int:
    """Bytes of a ciphertext: those of n^2, 512 for 2048 bits."""
    return int((2 * key.n.bit_length() + 7) // 8)

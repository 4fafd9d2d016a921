"""Exact sums under Paillier encryption: fixed-point values packed side by side into one large plaintext."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import Field
from fedplug.api.errors import MessageError, ProtectionError
from pydantic import model_validator

from fedplug_std import he_keys
from fedplug_std.he_blocks import Encryption
from fedplug_std.paillier_scheme import PublicKey, SecretKey, generate
from fedplug_std.quantise import FixedPoint, most_bits

if TYPE_CHECKING:
    from fedplug import Client, Facts, Sealed, Words
    from fedplug.api.words import Numbers
    from numpy.typing import NDArray

    from fedplug_std.he_keys import Terms


class OnePerSlot:
    """One word a slot, counted in ones."""

    count_unit: float = 1

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def pack(self, words: NDArray[Any]) -> NDArray[Any]:
        return words.astype(np.int64, copy=False)

    def num_slots(self, size: int) -> int:
        return size

    def unpack(self, slots: NDArray[Any], size: int) -> NDArray[Any]:
        return slots[..., :size]

    def counts(self, slots: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(slots, np.int64)


@dataclasses.dataclass(frozen=True)
class PackedPaillier:
    """A `fedplug_std.he_blocks.Backend`: rows of slots as the fields of one plaintext each, the first field lowest.

    A context is a `SecretKey` or a `PublicKey`.

    Attributes:
        width: bits of one field, 8 to 56. Sums of slots must stay below 2^width, which the codec ensures.
        key_bits: of the keys it takes.
        short_exponents: see `PublicKey.encrypt`.
    """

    width: int
    key_bits: int
    short_exponents: bool = False

    def most_slots(self) -> int:
        """The number of fields in a plaintext."""
        return (self.key_bits - 1) // self.width

    def encrypt(self, context: PublicKey | SecretKey, rows: NDArray[Any]) -> tuple[bytes, ...]:
        """One serialised ciphertext for each row of slots, shape (m, slots).

        Raises:
            ProtectionError: a slot is negative or too long for a field, or the context can only add.
        """
        key, packing = _public(context), self._packing(rows.shape[1])
        ciphertexts = key.encrypt(self.pack(rows), short_exponents=self.short_exponents)
        return tuple(key.to_bytes([ciphertext], packing) for ciphertext in ciphertexts)

    def add(
        self, context: PublicKey | SecretKey, uploads: Iterable[Sequence[bytes]], slots: int
    ) -> tuple[bytes, ...]:
        """Sums ciphertexts index by index; needs the modulus only.

        Raises:
            MessageError: a ciphertext is damaged, or of another key or packing, of the upload that was drawn last.
        """
        key, packing = _public(context), self._packing(slots)
        totals = key.add((_parse(key, parts, packing) for parts in uploads), checked=True)
        return tuple(key.to_bytes([total], packing) for total in totals)

    def decrypt(self, context: PublicKey | SecretKey, ciphertexts: Sequence[bytes], slots: int) -> NDArray[Any]:
        """Rows of summed slots, int64 (m, slots).

        Raises:
            ProtectionError: the context holds no secret key.
            MessageError: a ciphertext is damaged, or of another key or packing.
        """
        if not isinstance(context, SecretKey):
            raise ProtectionError("this party holds no secret key and cannot decrypt; see key_holder")
        return self.unpack(context.decrypt(_parse(context.public, ciphertexts, self._packing(slots))), slots)

    def dump_context(
        self, context: PublicKey | SecretKey, *, public_key: bool = False, secret_key: bool = False
    ) -> bytes:
        """The modulus, with `hs` for encrypting, or the secret key with all of it."""
        if secret_key:
            if not isinstance(context, SecretKey):
                raise ProtectionError("this party holds no secret key to give")
            return b"s" + context.dump()
        key = _public(context)
        return b"p" + (key if public_key else PublicKey(key.n)).dump()

    def load_context(self, data: bytes) -> PublicKey | SecretKey:
        """Inverse of `dump_context`.

        Raises:
            MessageError: the bytes are not a key, or one of another length.
        """
        kinds: dict[bytes, type[PublicKey | SecretKey]] = {b"p": PublicKey, b"s": SecretKey}
        if data[:1] not in kinds:
            raise MessageError(f"{len(data)} bytes are not a Paillier key; they were damaged")
        context = kinds[data[:1]].load(data[1:])
        if _public(context).bits != self.key_bits:
            raise MessageError(f"a key of {_public(context).bits} bits, but key_bits={self.key_bits}; make new keys")
        return context

    # -- plaintexts ----------------------------------------------------------------------------------------------------

    def pack(self, rows: NDArray[Any]) -> list[int]:
        """A number for each row of slots, shape (m, slots)."""
        if rows.size and not (int(rows.min()) >= 0 and int(rows.max()) < 1 << self.width):
            # Without the number: this travels to the server.
            raise ProtectionError(
                f"a slot must be 0 to {(1 << self.width) - 1} to fit a field of {self.width} bits; it would spill into "
                "its neighbour"
            )
        places, numbers = np.arange(self.width), []
        for row in rows:
            bits = (row[:, np.newaxis] >> places & 1).astype(np.uint8)
            numbers.append(int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little"))
        return numbers

    def unpack(self, plaintexts: Sequence[int], slots: int) -> NDArray[np.int64]:
        """Inverse of `pack`, of sums too.

        Raises:
            MessageError: a number is longer than this number of slots.
        """
        rows, powers = np.empty((len(plaintexts), slots), np.int64), 1 << np.arange(self.width, dtype=np.int64)
        for index, plaintext in enumerate(plaintexts):
            if plaintext.bit_length() > slots * self.width:
                raise MessageError(
                    f"plaintext {index} is longer than {slots} fields of {self.width} bits; its ciphertext was "
                    "damaged, or is of another key"
                )
            data = np.frombuffer(plaintext.to_bytes((slots * self.width + 7) // 8, "little"), np.uint8)
            bits = np.unpackbits(data, count=slots * self.width, bitorder="little")
            rows[index] = bits.reshape(slots, self.width) @ powers
        return rows

    def _packing(self, slots: int) -> str:
        return f"{slots} fields of {self.width} bits"


class Paillier(Encryption):
    """Encrypt a zone with Paillier: the server adds fixed-point values, over a hundred to a ciphertext, exactly.

    With `key_bits: 3072` a ciphertext holds 126 values of 19 bits and has room for the sums of 32 clients, while the
    papers encrypt one value in each. Random n-th residues follow Damgard, Jurik and Nielsen (2010), from a table that
    each process builds once (25 MB). The only error is the rounding of each contribution to its grid, half a step at
    most. It takes six bytes a value. `std.bfv` takes eight, but less than a hundredth of the time to encrypt and far
    less to decrypt.
    """

    class Options(he_keys.Options):
        """The key holder, the length of the key, and the capacity of a sum."""

        key_bits: Literal[2048, 3072] = Field(
            3072, description="bits of the modulus: 3072 for 128 bits of security, 2048 for 112 in half the time"
        )
        field_bytes: int = Field(
            3, ge=2, le=4,
            description="bytes of a plaintext for each value; those beyond `bits` are headroom for sums",
        )  # fmt: skip
        bits: int | None = Field(
            None, ge=2, le=24,
            description="bits of one value; default: as many as max_clients leaves, such as 19 for up to 32 clients",
        )  # fmt: skip
        short_exponents: bool = Field(
            False,
            description="encrypt with random exponents of twice the bits of security, several times faster; needs one "
            "more assumption than Paillier",
        )
        values: int | None = Field(
            None, ge=1,
            description="number of values in a ciphertext; default: as many as fit. 1: if clients have different "
            "masks, each encrypts only its mask, at 0.1 to 1 ms and 512 bytes or more a value",
        )  # fmt: skip

        @model_validator(mode="after")
        def _fit(self) -> Paillier.Options:
            most = PackedPaillier(8 * self.field_bytes, self.key_bits).most_slots() - 1
            if self.values is not None and self.values > most:
                raise ValueError(
                    f"values={self.values} must be at most {most}, the capacity of {self.key_bits} bits at "
                    f"field_bytes={self.field_bytes}"
                )
            return self

    name: str = "std.paillier"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.backend = PackedPaillier(8 * options.field_bytes, options.key_bits, options.short_exponents)
        self.position_block = options.values or self.backend.most_slots() - 1
        self.slots = self.position_block + 1  # one counts the clients

    def scheme(self) -> str:
        """Its parameters in a line."""
        bits = "as many bits as fit" if self.options.bits is None else f"{self.options.bits} bits"
        short = ", short exponents" if self.options.short_exponents else ""
        values = "1 value" if self.position_block == 1 else f"{self.position_block} values"
        return (
            f"Paillier {self.options.key_bits}{short}, {values} a ciphertext, {bits} each, "
            f"range ±{self.options.range:g}"
        )

    def step(self, num_clients: int) -> float:
        """Grid step of the weighted values; the range if `check` refuses these options."""
        try:
            return self.agree(num_clients).step
        except ProtectionError:
            return float(self.options.range)

    def agree(self, max_clients: int) -> FixedPoint:
        """The fixed-point numbers for that many clients.

        Raises:
            ProtectionError: their sum could overflow a field.
        """
        # FixedPoint counts on two fields in 62 bits, so that the highest bit of four bytes stays empty.
        field_bits = min(8 * self.options.field_bytes, 31)
        bits = self.options.bits or min(24, most_bits(field_bits, max_clients))
        try:
            return FixedPoint(self.options.range, bits, field_bits, max_clients)
        except ProtectionError as error:
            if self.options.field_bytes == 4:
                raise
            raise ProtectionError(f"{error}; or raise field_bytes") from error

    def new_keys(self, max_clients: int) -> tuple[SecretKey, Terms]:
        """A key pair; the packing of plaintexts follows from the recipe and the number of clients."""
        self.agree(max_clients)
        return generate(self.options.key_bits), {"max_clients": max_clients}

    def packing(self, terms: Terms, facts: Facts | None = None) -> OnePerSlot:
        """How values become slots, as agreed when the keys were made."""
        return OnePerSlot(self.agree(terms["max_clients"]))

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        """Packs the words and encrypts them."""
        # Before the clock of the first encryption runs, which would otherwise seem to take as long as the table.
        _public(he_keys.context_of(self, client)[0]).prepare(self.options.short_exponents)
        return super().seal(words, client, facts)


def _public(context: PublicKey | SecretKey) -> PublicKey:
    return context.public if isinstance(context, SecretKey) else context


def _parse(key: PublicKey, parts: Sequence[bytes], packing: str) -> list[int]:
    """One checked ciphertext from each of these bytes."""
    ciphertexts = []
    for index, data in enumerate(parts):
        try:
            (ciphertext,) = key.from_bytes(data, packing)
        except (MessageError, ValueError) as error:  # ValueError: none, or several
            raise MessageError(f"ciphertext {index} cannot be used ({error})") from error
        ciphertexts.append(ciphertext)
    key.check(ciphertexts)
    return ciphertexts

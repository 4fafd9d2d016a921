"""Exact sums under BFV encryption: fixed-point values, two to a slot, added as integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Field
from fedplug.api.errors import ProtectionError

from fedplug_std import he_keys
from fedplug_std.he_blocks import Encryption
from fedplug_std.he_rlwe import Rlwe
from fedplug_std.quantise import FixedPoint, most_bits

if TYPE_CHECKING:
    from fedplug import Facts
    from numpy.typing import NDArray

    from fedplug_std.he_contexts import RingContext
    from fedplug_std.he_keys import Terms

DEGREE, COEFF_BITS = 4096, (60, 49)
"""109 bits of modulus at degree 4096: 128-bit security (HomomorphicEncryption.org standard, 2018, Table 1)."""

SCALE_BITS = 14
"""The prime of 60 bits is 2^60 - 2^14 + 1, so with the plain modulus t = 2^46 - 1 its quotient by t is 2^14."""

FIELD_BITS = (23, 22, 21, 20, 19, 18)
"""Bits of one of the two fields of a coefficient. Narrower fields are further apart and leave more room for noise."""

DEVIATIONS = 16.0
"""Multiple of the largest sum's noise that fits between a value and its neighbour: twice the largest that occurs."""


class PackedIntegers:
    """Two fixed-point fields a coefficient, scaled to the rest of the plain modulus."""

    def __init__(self, numbers: FixedPoint) -> None:
        self.numbers = numbers
        self.spare_bits = 2 * (max(FIELD_BITS) - numbers.field_bits)
        self.count_unit: float = 2**self.spare_bits

    def pack(self, words: NDArray[Any]) -> NDArray[np.int64]:
        slots = self.numbers.pack(words)
        slots <<= self.spare_bits
        return slots

    def num_slots(self, size: int) -> int:
        return (size + 1) // 2

    def unpack(self, slots: NDArray[np.int64], size: int) -> NDArray[np.int32]:
        return self.numbers.unpack(self.counts(slots), size)

    def counts(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        """The slots without noise."""
        if not self.spare_bits:
            return slots
        return slots + (1 << self.spare_bits - 1) >> self.spare_bits


class Bfv(Encryption):
    """Encrypt a zone with BFV: the server adds fixed-point values, two to a coefficient, and sums decrypt exactly.

    Microsoft SEAL, degree 4096, modulus [60, 49]. The only error is the rounding of each contribution to its grid, half
    a step at most, known in advance. `max_clients`, `bits` and `range` set the capacity of a sum, and options that
    could overflow are refused. It takes 7.5 bytes a value, or 3.8 if clients hold the key.
    """

    class Options(he_keys.Options):
        """The key holder, and the capacity of a sum."""

        bits: int | None = Field(
            None, ge=2, le=23,
            description="bits of one value; default: as many as max_clients leaves, such as 18 for up to 32 clients",
        )  # fmt: skip

    name: str = "std.bfv"
    slots = DEGREE
    position_block = 2 * (DEGREE - 1)
    backend = Rlwe("bfv", DEGREE, COEFF_BITS)

    def scheme(self) -> str:
        """Its parameters in a line."""
        bits = "as many bits as fit" if self.options.bits is None else f"{self.options.bits} bits"
        return f"BFV {DEGREE} {list(COEFF_BITS)}, two values a coefficient, {bits} each, range ±{self.options.range:g}"

    def step(self, num_clients: int) -> float:
        """Grid step of the weighted values at the narrowest fields; the range if these are too narrow."""
        try:
            return self.agree(num_clients, min(FIELD_BITS)).step
        except ProtectionError:
            return float(self.options.range)

    def agree(self, max_clients: int, field_bits: int = max(FIELD_BITS)) -> FixedPoint:
        """The fixed-point numbers for that many clients.

        Raises:
            ProtectionError: their sum could overflow a field.
        """
        bits = self.options.bits or most_bits(field_bits, max_clients)
        return FixedPoint(self.options.range, bits, field_bits, max_clients)

    def new_keys(self, max_clients: int) -> tuple[RingContext, Terms]:
        """A context with new keys, and the widest fields whose worst-case sums it decrypts exactly.

        Raises:
            ProtectionError: no width works.
        """
        context = self.backend.new_context(2.0**SCALE_BITS, symmetric=self.site == "client")
        noise = self.backend.noise(context) * math.sqrt(max_clients)
        for field_bits in FIELD_BITS:
            numbers = self.agree(max_clients, field_bits)
            if 2 * DEVIATIONS * noise < 2**SCALE_BITS * PackedIntegers(numbers).count_unit:
                return context, {"field_bits": field_bits, "bits": numbers.bits, "max_clients": max_clients}
        raise ProtectionError(f"max_clients={max_clients} leaves no noise budget at any width of field; lower it")

    def coarsest(self, max_clients: int) -> Terms:
        """Terms with the narrowest fields."""
        field_bits = min(FIELD_BITS)
        bits = self.options.bits or most_bits(field_bits, max_clients)
        return {"field_bits": field_bits, "bits": bits, "max_clients": max_clients}

    def packing(self, terms: Terms, facts: Facts | None = None) -> PackedIntegers:
        """How values become slots, as agreed when the keys were made.

        Raises:
            KeyError: there are no fields of this width.
        """
        numbers = FixedPoint(self.options.range, terms["bits"], terms["field_bits"], terms["max_clients"])
        if numbers.field_bits not in FIELD_BITS:
            raise KeyError(numbers.field_bits)
        return PackedIntegers(numbers)

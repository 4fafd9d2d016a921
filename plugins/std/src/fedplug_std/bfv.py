"""Exact sums under BFV encryption: fixed-point values, two to a slot, added as integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Field
from fedplug.api.errors import ProtectionError

from fedplug_std import he_keys, tenseal_backend
from fedplug_std.he_blocks import Encryption
from fedplug_std.quantise import FixedPoint, most_bits
from fedplug_std.tenseal_backend import TenSeal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug_std.he_keys import Terms

DEGREE, COEFF_BITS = 4096, (60, 49)
"""109 bits of modulus at degree 4096: 128-bit security (HomomorphicEncryption.org standard, 2018, Table 1)."""

PLAIN_MODULI = {
    23: 70368744210433,
    22: 17592186175489,
    21: 4398046568449,
    20: 1099511799809,
    19: 274878062593,
    18: 68719484929,
}
"""For a slot of two fields of that many bits: the smallest prime above 2^(2 bits) that is 1 modulo 2 * DEGREE."""

MARGIN_DOUBLINGS = 2
"""New keys must still decrypt exactly when the noise is this many bits larger than it will be."""


class PackedIntegers:
    """The codec of BFV: two fixed-point fields a slot, counted in ones."""

    count_unit: float = 1

    def __init__(self, fixed_point: FixedPoint, plain_modulus: int) -> None:
        self.fixed_point, self.plain_modulus = fixed_point, plain_modulus

    def encode(self, values: NDArray[Any]) -> tuple[NDArray[np.int64], float]:
        codes, saturated = self.fixed_point.quantise(values)
        return self.fixed_point.pack(codes), saturated

    def num_slots(self, size: int) -> int:
        return (size + 1) // 2

    def decode(self, slots: NDArray[Any], size: int, contributors: int) -> NDArray[np.float32]:
        # TenSEAL gives slots centred around 0; packed sums are never negative.
        slots = np.where(slots < 0, slots + self.plain_modulus, slots)
        return self.fixed_point.dequantise_sum(self.fixed_point.unpack(slots, size), contributors)

    def counts(self, slots: NDArray[Any]) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = np.maximum(slots, -1)
        return counts


class Bfv(Encryption):
    """Encrypt a zone with BFV: the server adds fixed-point values, two to a slot, and sums decrypt exactly.

    TenSEAL `bfv_vector`, degree 4096, modulus [60, 49]. The only error is that of rounding each contribution to its
    grid, half a step at most, known in advance. `max_clients`, `bits` and `range` say what a sum can hold; whatever
    could overflow is refused. Eight bytes a value.
    """

    class Options(he_keys.Options):
        """Who holds the key, and what a sum can hold."""

        bits: int | None = Field(
            None, ge=2, le=23,
            description="bits of one value; default: as many as max_clients leaves, such as 18 for up to 32 clients",
        )  # fmt: skip

    name: str = "std.bfv"
    slots = DEGREE
    position_block = 2 * (DEGREE - 1)
    backend = TenSeal("bfv")

    def scheme(self) -> str:
        """Its parameters in a line."""
        bits = "as many bits as fit" if self.options.bits is None else f"{self.options.bits} bits"
        return (
            f"BFV {DEGREE} {list(COEFF_BITS)}, two values a slot, {bits} each, range ±{self.options.range:g}"
        )

    def step(self, num_clients: int) -> float:
        """Grid step of the weighted values at the narrowest fields; the range where these are too narrow."""
        try:
            return self.agree(num_clients, min(PLAIN_MODULI)).step
        except ProtectionError:
            return float(self.options.range)

    def agree(self, max_clients: int, field_bits: int = max(PLAIN_MODULI)) -> FixedPoint:
        """The fixed-point numbers for that many clients.

        Raises:
            ProtectionError: their sum could overflow a field.
        """
        bits = self.options.bits or most_bits(field_bits, max_clients)
        return FixedPoint(self.options.range, bits, field_bits, max_clients)

    def new_keys(self, max_clients: int) -> tuple[Any, Terms]:
        """A context with new keys, and the widest fields whose worst-case sums it decrypts exactly.

        Raises:
            ProtectionError: no width works.
        """
        for field_bits, plain_modulus in PLAIN_MODULI.items():
            numbers = self.agree(max_clients, field_bits)
            symmetric = self.site == "client"
            context = tenseal_backend.bfv_context(DEGREE, COEFF_BITS, plain_modulus, symmetric=symmetric)
            largest = (2**numbers.bits - 1) * (2**field_bits + 1)
            row = np.full(DEGREE, largest, np.int64)
            slots = tenseal_backend.probe(self.backend.scheme, context, row, max_clients, MARGIN_DOUBLINGS)
            times = tenseal_backend.probe_times(max_clients, MARGIN_DOUBLINGS)
            if np.array_equal(slots % plain_modulus, np.full(DEGREE, largest * times % plain_modulus)):
                return context, {"field_bits": field_bits, "bits": numbers.bits, "max_clients": max_clients}
        raise ProtectionError(f"max_clients={max_clients} leaves no noise budget at any width of field; lower it")

    def codec(self, terms: Terms) -> PackedIntegers:
        """How values become slots, as agreed when the keys were made."""
        numbers = FixedPoint(self.options.range, terms["bits"], terms["field_bits"], terms["max_clients"])
        return PackedIntegers(numbers, PLAIN_MODULI[terms["field_bits"]])

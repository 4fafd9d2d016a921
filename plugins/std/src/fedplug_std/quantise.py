"""Fixed-point numbers that can be added under encryption: quantise, pack two to a slot, and read sums back exactly.

A value in [-range, range] becomes an integer of `bits` bits, offset so that it is never negative. Two such integers
share one slot of 2 * `field_bits` bits. A field holds the sum of `max_clients` integers without carrying into its
neighbour while `max_clients * (2^bits - 1) < 2^field_bits`; anything that could break this is refused.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AT_ONCE = 1 << 18
"""Slots that are filled at once."""


def most_bits(field_bits: int, max_clients: int) -> int:
    """The largest number of bits with `max_clients * (2^bits - 1) < 2^field_bits`; 0 if not even one bit fits."""
    largest_code = ((1 << field_bits) - 1) // max_clients
    return (largest_code + 1).bit_length() - 1


@dataclasses.dataclass(frozen=True)
class FixedPoint:
    """Quantiser and packer that every client of a run shares.

    Zero is represented exactly: codes are `round(value / step) + offset` with `offset = 2^(bits-1) - 1` and
    `step = range / offset`, so they use 0 to 2 * offset.

    Attributes:
        range: values are represented in [-range, range], in units of the values.
        bits: of one code, 2 or more.
        field_bits: of one field; two fields make a slot.
        max_clients: the most codes a field may sum.

    Raises:
        ProtectionError: the sum of `max_clients` codes could overflow a field.
    """

    range: float
    bits: int
    field_bits: int
    max_clients: int

    def __post_init__(self) -> None:
        if not (self.range > 0 and np.isfinite(self.range)):
            raise ProtectionError(f"range={self.range} must be a finite number > 0: the largest |value| to represent")
        if not 2 <= self.field_bits <= 31:
            raise ProtectionError(f"field_bits={self.field_bits} must be 2 to 31: two fields share one 62-bit slot")
        if self.max_clients < 1:
            raise ProtectionError(f"max_clients={self.max_clients} must be at least 1")
        if self.bits < 2:
            raise ProtectionError(
                f"bits={self.bits} must be at least 2; with max_clients={self.max_clients} a field of "
                f"{self.field_bits} bits leaves {most_bits(self.field_bits, self.max_clients)}: lower max_clients"
            )
        largest = 2**self.bits - 1
        if self.max_clients * largest >= 2**self.field_bits:
            most_clients = (2**self.field_bits - 1) // largest
            fitting = most_bits(self.field_bits, self.max_clients)
            remedy = f"lower bits to {fitting}" if fitting >= 2 else "use fewer clients"
            if most_clients:
                remedy += f", or max_clients to {most_clients}"
            raise ProtectionError(
                f"max_clients={self.max_clients} codes of bits={self.bits} can sum to {self.max_clients * largest}, "
                f"which must be < {2**self.field_bits} to fit a field of {self.field_bits} bits; {remedy}"
            )

    @property
    def offset(self) -> int:
        """The code of zero."""
        return int(2 ** (self.bits - 1) - 1)

    @property
    def step(self) -> float:
        """Distance of neighbouring values; one quantised value is off by at most half of it."""
        return self.range / self.offset

    def encode(self, values: NDArray[Any], rng: np.random.Generator | None = None) -> tuple[NDArray[np.int32], float]:
        """Rounds values to codes; values beyond the range saturate.

        Args:
            values: finite numbers, shape (n,).
            rng: not used.

        Returns:
            Codes, shape (n,), each 0 to 2 * offset, and the share of values that saturated, 0 to 1.
        """
        codes, beyond = np.empty(len(values), np.int32), 0.0
        for start in range(0, len(values), _AT_ONCE):  # codes take four times the memory of float32 values
            part = values[start : start + _AT_ONCE]
            scaled, saturated = _clipped(part, self.range)
            scaled *= self.offset / self.range
            np.rint(scaled, out=scaled)
            scaled += self.offset
            codes[start : start + _AT_ONCE] = scaled
            beyond += saturated * len(part)
        return codes, beyond / max(1, len(values))

    def pack(self, codes: NDArray[np.int32]) -> NDArray[np.int64]:
        """Two codes a slot, shape (..., ceil(n / 2)): the first half of the codes low, the second half high."""
        size = codes.shape[-1]
        half = (size + 1) // 2
        slots = codes[..., :half].astype(np.int64)
        high = codes[..., half:].astype(np.int64)
        high <<= self.field_bits
        slots[..., : size - half] |= high
        return slots

    def unpack(self, slots: NDArray[np.int64], size: int) -> NDArray[np.int32]:
        """The `size` fields of packed slots, or of sums of packed slots, shape (..., size); undoes `pack`."""
        half = (size + 1) // 2
        fields = np.empty((*slots.shape[:-1], size), np.int32)
        np.bitwise_and(slots[..., :half], 2**self.field_bits - 1, out=fields[..., :half], casting="unsafe")
        np.right_shift(slots[..., : size - half], self.field_bits, out=fields[..., half:], casting="unsafe")
        return fields

    def decode(self, words: NDArray[Any], counts: Any) -> NDArray[np.float32]:
        """Values of summed codes: exact except for the rounding of each contribution by at most half a step.

        Args:
            words: sums of codes, shape (n,) or (m, width).
            counts: the number of codes in each sum; or (m, 1).

        Returns:
            float32, of the shape of `words`: the sums, in units of the values.

        Raises:
            ProtectionError: there are more contributors than a field can hold, or sums that this number of codes cannot
                give.
        """
        if np.any(np.asarray(counts) < 0) or np.any(np.asarray(counts) > self.max_clients):
            raise ProtectionError(f"{counts} updates are more than max_clients={self.max_clients}; raise max_clients")
        if words.size and not (int(words.min()) >= 0 and (words <= counts * (2 * self.offset)).all()):
            raise ProtectionError(
                # Without the sums themselves: this travels to the server, which must not learn decrypted values.
                f"a field is out of bounds: {np.max(counts)} codes sum to 0 to {np.max(counts) * 2 * self.offset}; the "
                "ciphertexts are damaged, or a client did not quantise as agreed"
            )
        values = np.empty(words.shape, np.float32)
        flat = (words.reshape(-1), values.reshape(-1)) if np.ndim(counts) == 0 else (words, values)
        for start in range(0, len(flat[0]), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            zero = np.asarray(counts, np.int64) * self.offset
            flat[1][part] = (flat[0][part] - (zero if zero.ndim == 0 else zero[part])) * self.step
        return values


def round_to_grid(values: NDArray[Any], range: float, grid: float) -> tuple[NDArray[np.float64], float]:
    """Rounds values to multiples of `grid`; values beyond the range saturate.

    Sums of such values are multiples of `grid` too, so the party that decrypts a noisy sum can remove the noise
    exactly.

    Args:
        values: finite numbers, shape (n,).
        range: values are represented in [-range, range]; a multiple of `grid` for the bound to hold exactly.
        grid: distance of neighbouring values, a power of two.

    Returns:
        float64, shape (n,), and the share of values that saturated, 0 to 1.
    """
    rounded, saturated = _clipped(values, range)
    rounded /= grid
    np.rint(rounded, out=rounded)
    rounded *= grid
    return rounded, saturated


def _clipped(values: NDArray[Any], range: float) -> tuple[NDArray[np.float64], float]:
    """A float64 copy clipped to [-range, range], and the share of values beyond."""
    clipped = np.array(values, np.float64)
    if not clipped.size or (-range <= clipped.min() and clipped.max() <= range):
        return clipped, 0.0
    saturated = np.count_nonzero(np.abs(clipped) > range) / clipped.size
    np.clip(clipped, -range, range, out=clipped)
    return clipped, float(saturated)

"""Exact integers from float32 values, on a step with which the sum of all clients cannot wrap modulo 2^bits."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError

from fedplug_secagg.masks import word

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class FixedPoint:
    """How values of clients become residues modulo 2^bits, and their sum a sum of values again.

    Everything follows from public numbers, so every party works out the same.

    Attributes:
        bound: no scalar of a client is larger, in units of the values; what is sent, so after weighting.
        clients: n, the most clients in a sum.
        bits: b, 8 to 64.

    Raises:
        ProtectionError: numbers that cannot be, or too few bits for that many clients.
    """

    bound: float
    clients: int
    bits: int

    def __post_init__(self) -> None:
        word(self.bits)
        if not 0 < self.bound < math.inf:
            raise ProtectionError(f"bound={self.bound} of a scalar must be finite and > 0; clip first")
        if self.clients < 1 or self.clients > self._half:
            raise ProtectionError(
                f"bits={self.bits} hold no sum of {self.clients} clients: each gets less than one step; raise bits to "
                f"at least {self.clients.bit_length() + 1}"
            )

    @property
    def _half(self) -> int:
        """The largest integer that a residue can be."""
        return (1 << (self.bits - 1)) - 1

    @property
    def step(self) -> float:
        """The smallest power of two with n * round(bound / step) < 2^(bits - 1)."""
        exponent = math.frexp(self.bound)[1] - self.bits  # bound < 2^(exponent + bits): too fine, or just fine enough
        while self.clients * round(math.ldexp(self.bound, -exponent)) > self._half:
            exponent += 1
        return math.ldexp(1.0, exponent)

    @property
    def largest(self) -> int:
        """The largest integer that a client may send."""
        return round(self.bound / self.step)

    def residues(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values rounded to the nearest step, ties to the even one, modulo 2^bits.

        A float32 divided by a power of two is exact in 64 bits, so rounding happens once.

        Args:
            values: float32, shape (m,), none larger than `bound`.

        Returns:
            Of the type `word(bits)`, shape (m,). Bits above `bits` are those of a negative number; `pack` drops them.

        Raises:
            ProtectionError: a value is larger, or not a number: the sum would wrap.
        """
        scaled = values.astype(np.float64)
        peak = float(np.abs(scaled).max(initial=0.0))
        if not peak <= self.bound:
            raise ProtectionError(
                f"a value of {peak:g} is beyond bound={self.bound:g}, so the sum of {self.clients} clients could wrap; "
                "clip before masking"
            )
        scaled *= 1 / self.step
        np.rint(scaled, out=scaled)
        return scaled.astype(np.int64).astype(word(self.bits))

    def integers(self, total: NDArray[Any]) -> NDArray[np.int64]:
        """The integers from -2^(bits - 1) to 2^(bits - 1) - 1 that residues are, shape (m,)."""
        # Shifting up and back copies the sign bit, and drops what is above `bits`.
        unused = np.int64(64 - self.bits)
        signed: NDArray[np.int64] = (total.astype(np.uint64) << unused.astype(np.uint64)).view(np.int64) >> unused
        return signed

    def values(self, total: NDArray[Any]) -> NDArray[np.float64]:
        """The sum of values that a sum of residues is; exact up to 53 bits, rounded once beyond, shape (m,)."""
        return self.integers(total) * self.step


def bits_needed(bound: float, step: float, clients: int) -> int:
    """The fewest bits, at least 8, with which sums of `clients` values up to `bound` on a step do not wrap.

    Args:
        bound, step: in units of the values.
        clients: n.

    Raises:
        ProtectionError: 64 do not suffice.
    """
    largest = clients * round(bound / step)
    if largest >= 1 << 63:
        raise ProtectionError(
            f"sums of {clients} clients with values up to {bound:g} on step={step:g} need more than 64 bits; take a "
            "larger step"
        )
    return max(8, largest.bit_length() + 1)

"""Values as whole steps, on the finest step with which the sum of all clients fits a field of so many bits.

Masks and threshold keys represent sums so; each says how large a sum its field holds, and how a step becomes a word.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Misplaced
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from fedplug import Known
    from numpy.typing import NDArray

_BLOCK = 2**14
"""Number of values that are rounded at once: with the intermediate results they fit into a cache."""

_TAILS = 12.0
"""Standard deviations of one client's noise that fit into its numbers; P(|e| > 12 std) is 4e-33 per value."""


def bound_of(known: Known, name: str, failure: str) -> float:
    """The largest magnitude of a client's scalar: the bound of what came before, plus 12 standard deviations of noise.

    Args:
        known: what is known of the values.
        name: of the component that represents them.
        failure: what a sum of larger values could do, such as "wrap".

    Raises:
        Misplaced: nothing bounds the values.
    """
    norms = [norm for order in (math.inf, 2, 1) if (norm := known.sensitivity(order)) is not None]
    if not norms:
        raise Misplaced(
            f"nothing bounds the {known.zone} values before {name}, so a sum could {failure}; put a clip before it, "
            "such as {use: std.clip, norm: 1.0}, or say range: the largest magnitude of a value"
        )
    stds = [r.clipping_norm * r.noise_multiplier * r.spread for r in known.releases if r.trust != "central"]
    return min(norms) + _TAILS * math.hypot(*stds)


@dataclasses.dataclass(frozen=True)
class SummedSteps:
    """Converts values of clients into whole steps, of which the sum of all clients fits.

    Everything follows from public numbers, so all parties compute the same.

    Attributes:
        bound: largest magnitude of a client's scalar as sent (after weighting), in units of the values. It is rounded
            up to the next float32 if needed, since clipping in float32 can leave that value.
        clients: n, the most clients in a sum.
        bits: b, of the field of a sum.

    Raises:
        ProtectionError: invalid numbers, or too few bits for that many clients.
    """

    bound: float
    clients: int
    bits: int

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf:
            raise ProtectionError(f"bound={self.bound} of a scalar must be finite and > 0; clip first")
        if not 1 <= self.clients <= self.most:
            least = next(bits for bits in range(2, 99) if self.most_of(bits) >= self.clients)
            raise ProtectionError(
                f"bits={self.bits} hold no sum of {self.clients} clients: each gets less than one step; raise bits to "
                f"at least {least}"
            )

    @staticmethod
    def most_of(bits: int) -> int:
        """The largest magnitude of a sum, in steps, in a field of so many bits."""
        return (1 << (bits - 1)) - 1

    @property
    def most(self) -> int:
        """The largest magnitude of a sum, in steps."""
        return self.most_of(self.bits)

    @property
    def limit(self) -> float:
        """The bound, or the next float32 if that is larger: as a float32, 0.3 is 0.30000001."""
        return max(self.bound, float(np.float32(self.bound)))

    @property
    def step(self) -> float:
        """The smallest power of two with n * round(bound / step) <= `most`."""
        exponent = math.frexp(self.limit)[1] - self.bits  # bound < 2^(exponent + bits): too fine, or just fine enough
        while self.clients * round(math.ldexp(self.limit, -exponent)) > self.most:
            exponent += 1
        return math.ldexp(1.0, exponent)

    @property
    def largest(self) -> int:
        """The largest magnitude that a client may send, in steps."""
        return round(self.limit / self.step)

    @property
    def range(self) -> float:
        """Largest magnitude of a value; larger ones saturate."""
        return self.bound

    def within(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        """Values within the bound, and the share of values that were not."""
        held = np.clip(values, -self.bound, self.bound)
        return held, float(np.mean(held != values)) if held.size else 0.0

    def steps(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Values rounded to the nearest step, ties to the even one.

        A float32 divided by a power of two is exact in 64 bits, so rounding happens once.

        Args:
            values: float32 or float64, shape (m,), none larger than `bound`.

        Raises:
            ProtectionError: a value is larger, or not a number: the sum could be too large.
        """
        found, limit, scale = np.empty(len(values), np.int64), self.limit, 1 / self.step
        for start in range(0, len(values), _BLOCK):
            block = values[start : start + _BLOCK]
            peak = float(max(block.max(), -block.min()))
            if not peak <= limit:
                raise ProtectionError(
                    f"a value of {peak:g} is beyond bound={self.bound:g}, so the sum of {self.clients} clients could "
                    "be too large for its field; clip first"
                )
            scaled = np.multiply(block, scale, dtype=np.float64)
            np.rint(scaled, out=scaled)
            found[start : start + _BLOCK] = scaled.astype(np.int64)
        return found

"""Values as non-negative whole numbers, on a step with which the sum of all clients fits its field."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError

from fedplug_threshold.parameters import MARGIN_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True)
class FixedPoint:
    """Converts values of clients into numbers from 0 to 2 `largest`, and their sum into a sum of values.

    Everything follows from public numbers, so all parties compute the same.

    Attributes:
        bound: largest magnitude of a client's scalar as sent (after weighting), in units of the values. It is rounded
            up to the next float32 if needed, since clipping in float32 can leave that value.
        clients: n, the most clients in a sum.
        bits: of the field of a sum.

    Raises:
        ProtectionError: invalid numbers, or too few bits for that many clients.
    """

    bound: float
    clients: int
    bits: int

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf:
            raise ProtectionError(f"bound={self.bound} of a scalar must be finite and > 0; clip first")
        if self.clients > self._most:
            raise ProtectionError(
                f"bits={self.bits} hold no sum of {self.clients} clients: each gets less than one step; raise bits to "
                f"at least {self.clients.bit_length() + 2}"
            )

    @property
    def _most(self) -> int:
        """The largest magnitude of a sum."""
        return (1 << self.bits - 1) - (1 << max(0, self.bits - 1 - MARGIN_BITS))

    @property
    def _limit(self) -> float:
        return max(self.bound, float(np.float32(self.bound)))

    @property
    def step(self) -> float:
        """The smallest power of two with n round(bound / step) <= (1 - 2^-8) 2^(bits - 1)."""
        exponent = math.frexp(self._limit)[1] - self.bits
        while self.clients * round(math.ldexp(self._limit, -exponent)) > self._most:
            exponent += 1
        return math.ldexp(1.0, exponent)

    @property
    def largest(self) -> int:
        """The largest magnitude that a client may send, in steps."""
        return round(self._limit / self.step)

    @property
    def range(self) -> float:
        """Largest magnitude of a value; larger ones saturate."""
        return self.bound

    def encode(self, values: NDArray[np.float64], rng: Any = None) -> tuple[NDArray[np.int64], float]:
        """Numbers of values, and the share of values that saturated."""
        held = np.clip(values, -self.bound, self.bound)
        return self.numbers(held), float(np.mean(held != values)) if held.size else 0.0

    def decode(self, words: NDArray[np.int64], counts: int) -> NDArray[np.float64]:
        """The sum of values that a sum of numbers represents."""
        return self.values(words, counts)

    def numbers(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Values rounded to the nearest step, ties to the even one, plus `largest`, shape (m,).

        Args:
            values: float64, shape (m,), none larger than `bound`.

        Raises:
            ProtectionError: a value is larger, or not a number: the sum would not fit.
        """
        steps = np.rint(values * (1 / self.step))
        if len(steps) and not np.abs(steps).max() <= self.largest:
            raise ProtectionError(
                f"a value of {np.abs(values).max():g} is beyond bound={self.bound:g}, so the sum of {self.clients} "
                "clients could be too large for its field; clip before encrypting"
            )
        found: NDArray[np.int64] = steps.astype(np.int64)
        found += self.largest
        return found

    def values(self, sums: NDArray[np.int64], contributors: int) -> NDArray[np.float64]:
        """The sum of values that a sum of `contributors` clients' numbers represents; exact up to 53 bits, shape (m,).

        Raises:
            ProtectionError: the sum cannot be that of `contributors` clients.
        """
        if len(sums) and not 0 <= sums.min() <= sums.max() <= 2 * self.largest * contributors:
            raise ProtectionError(
                f"the opened sum is not within what {contributors} updates add up to: a share or an upload was wrong; "
                "the sum is not used"
            )
        return np.multiply(sums - self.largest * contributors, self.step, dtype=np.float64)

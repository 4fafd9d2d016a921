"""Values as non-negative whole numbers, on a step with which the sum of all clients fits its field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError
from fedplug_std.fixed_point import SummedSteps

from fedplug_threshold.parameters import MARGIN_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray


class FixedPoint(SummedSteps):
    """Converts values of clients into numbers from 0 to 2 `largest`, and their sum into a sum of values."""

    @staticmethod
    def most_of(bits: int) -> int:
        """(1 - 2^-8) 2^(bits - 1)."""
        return (1 << bits - 1) - (1 << max(0, bits - 1 - MARGIN_BITS))

    def encode(self, values: NDArray[np.float64], rng: Any = None) -> tuple[NDArray[np.int64], float]:
        """Numbers of values, and the share of values that saturated."""
        held, saturated = self.within(values)
        return self.numbers(held), saturated

    def decode(self, words: NDArray[np.int64], counts: int) -> NDArray[np.float64]:
        """The sum of values that a sum of numbers represents."""
        return self.values(words, counts)

    def numbers(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Steps plus `largest`, shape (m,)."""
        found = self.steps(values)
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

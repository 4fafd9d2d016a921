"""Exact integers from float32 values, on a step with which the sum of all clients cannot wrap modulo 2^bits."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError
from fedplug_std.fixed_point import SummedSteps

from fedplug_secagg.masks import word

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LEAST_JUDGED = 64
"""Number of values from which the mean square of a sum shows whether a mask is left on it."""


class FixedPoint(SummedSteps):
    """Converts values of clients into residues modulo 2^bits, and the sum of residues into a sum of values.

    Attributes:
        bits: b, 8 to 64.
    """

    def __post_init__(self) -> None:
        word(self.bits)
        super().__post_init__()

    def encode(self, values: NDArray[np.float64], rng: Any = None) -> tuple[NDArray[Any], float]:
        """Residues of values, and the share of values that saturated."""
        held, saturated = self.within(values)
        return self.residues(held), saturated

    def decode(self, words: NDArray[Any], counts: int) -> NDArray[np.float64]:
        """The sum of values that a sum of residues represents.

        Raises:
            ProtectionError: the sum is too large for that number of updates: a mask is still on it.
        """
        if problem := self.problem(self.integers(words), counts):
            raise ProtectionError(f"the opened sum {problem}: a share or an upload was wrong; the sum is not used")
        return self.values(words)

    def residues(self, values: NDArray[Any]) -> NDArray[Any]:
        """Steps modulo 2^bits, of the type `word(bits)`, shape (m,). A negative number also sets bits above `bits`;
        `pack` drops them.
        """
        found: NDArray[Any] = self.steps(values).view(np.uint64).astype(word(self.bits))
        return found

    def integers(self, total: NDArray[Any]) -> NDArray[np.int64]:
        """The integers from -2^(bits - 1) to 2^(bits - 1) - 1 that residues represent, shape (m,)."""
        # Shifting up and back copies the sign bit, and drops the bits above `bits`.
        wide = total.astype(np.uint64)
        wide <<= np.uint64(64 - self.bits)
        signed: NDArray[np.int64] = wide.view(np.int64)
        signed >>= np.int64(64 - self.bits)
        return signed

    def problem(self, integers: NDArray[np.int64], contributors: int) -> str:
        """Why a sum cannot be that of `contributors` updates; empty if it can."""
        largest, most = int(np.abs(integers).max(initial=0)), contributors * self.largest
        return f"reaches {largest} steps, and {contributors} updates add up to {most} at most" if largest > most else ""

    def values(self, total: NDArray[Any]) -> NDArray[np.float64]:
        """The sum of values that a sum of residues represents; exact up to 53 bits, rounded once beyond, shape (m,)."""
        return np.multiply(self.integers(total), self.step, dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class Wrapping(FixedPoint):
    """The same with a given step, for sums that may wrap: modular clipping (Kairouz, Liu & Steinke, ICML 2021).

    Values are multiples of the step already. A scalar of a sum beyond half the modulus becomes one modulus too small or
    too large. That is a function of the sum alone, so it costs only accuracy, and no privacy.

    Attributes:
        bound: the step, a power of two.
        spread: upper bound on the standard deviation of a scalar of a sum of all clients, in units of the values; 0:
            unknown.
    """

    spread: float = 0.0

    def __post_init__(self) -> None:
        word(self.bits)

    @property
    def step(self) -> float:
        """The step of the values."""
        return self.bound

    @property
    def range(self) -> float:
        """No value saturates."""
        return math.inf

    def encode(self, values: NDArray[np.float64], rng: Any = None) -> tuple[NDArray[Any], float]:
        """Residues of values."""
        return self.residues(values), 0.0

    @property
    def held(self) -> float:
        """Number of standard deviations of a scalar of the sum that half the modulus holds."""
        return 2.0 ** (self.bits - 1) * self.step / self.spread if self.spread else math.inf

    def missing(self, deviations: float) -> int:
        """Number of additional bits that the modulus needs to hold that many deviations."""
        return max(0, math.ceil(math.log2(deviations / self.held)))

    @property
    def wrapped(self) -> float:
        """Upper bound on the expected share of a sum's scalars that wrap, assuming a normal distribution."""
        return math.erfc(self.held / math.sqrt(2))

    def residues(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values as multiples of the step, modulo 2^bits. Other values go to the nearest multiple.

        Raises:
            ProtectionError: a value is no number or is beyond 2^62 steps.
        """
        steps = np.rint(values.astype(np.float64) / self.step)
        if not float(np.abs(steps).max(initial=0)) < 2.0**62:
            raise ProtectionError(f"a value is no number or is beyond 2^62 steps of {self.step!r}; clip before masking")
        found: NDArray[Any] = steps.astype(np.int64).view(np.uint64).astype(word(self.bits))
        return found

    def problem(self, integers: NDArray[np.int64], contributors: int) -> str:
        """Evidence of a mask left on a sum: residues that fill the modulus evenly. Sums fill it less, since half of it
        is three or more of their standard deviations. With few scalars, no conclusion is possible.
        """
        even = 2.0 ** (2 * self.bits - 2) / 3
        found = float(np.square(integers, dtype=np.float64).mean()) if integers.size else 0.0
        if integers.size < _LEAST_JUDGED or found < 0.75 * even:
            return ""
        return f"has a mean square of {found:.3g} steps, as noise that fills the modulus has"


def bits_needed(bound: float, step: float, clients: int) -> int:
    """The fewest bits, at least 8, with which sums of `clients` values up to `bound` on a step do not wrap.

    Args:
        bound, step: in units of the values.
        clients: n.

    Raises:
        ProtectionError: 64 bits are too few.
    """
    largest = clients * round(max(bound, float(np.float32(bound))) / step)
    if largest >= 1 << 63:
        raise ProtectionError(
            f"sums of {clients} clients with values up to {bound:g} on step={step:g} need more than 64 bits; take a "
            "larger step"
        )
    return max(8, largest.bit_length() + 1)

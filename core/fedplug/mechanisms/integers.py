"""Noise in whole numbers, drawn by a table of its law: Skellam and discrete Gaussian variables.

A table holds the probabilities of all whole numbers but those that have less than 2^-100 together, as multiples of
2^-128 that add up to 1. A uniform number of 128 bits finds its place among their partial sums, so a sample has exactly
the law of the table. The law of the table differs from the true one by a factor at each number, of which the logarithm
is at most `FACTOR`: so d samples move epsilon by at most 2 d `FACTOR`, and their tails delta by (1 + e^epsilon) d
2^-64.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.operations import IntegerNoise
from fedplug.mechanisms.secure import BLOCK, SecureNoise

if TYPE_CHECKING:
    from numpy.typing import NDArray

FACTOR = 1e-11
"""What float64 may add up to over the widest table, of 10^5 numbers with four roundings each: 5e-11 at the far end of
the tail, and less than this at all numbers that have 1 - 2^-64 together."""
_BITS, _GUIDE_BITS = 128, 14
_TAIL_BITS = 100


def add_integers(
    values: NDArray[np.float32], std: float, grid: float, mechanism: IntegerNoise, source: str,
    stream: np.random.Generator,
) -> NDArray[np.float32]:  # fmt: skip
    """Values plus noise in whole steps of the grid.

    Args:
        values: float32 (n,), multiples of `grid`.
        std: standard deviation, in units of the values.
        grid: the step, a power of two.
        mechanism: of the noise.
        source: `secure` (AES-256 keyed by the system), `exact` (OpenDP, discrete Gaussian alone) or `reproducible`
            (`stream`, no protection).
        stream: used by `reproducible` alone.

    Returns:
        float32 (n,), multiples of `grid`.
    """
    from fedplug.mechanisms.noise import exact_steps

    if source == "exact":
        return (exact_steps(values, std, grid) * grid).astype(np.float32)
    table = table_of(mechanism, std / grid)
    words = SecureNoise().words if source == "secure" else functools.partial(_reproducible, stream)
    noised = np.empty(len(values), np.float32)
    for start in range(0, len(values), BLOCK):
        part = values[start : start + BLOCK]
        noised[start : start + BLOCK] = part + table.draw(len(part), words) * grid
    return noised


def _reproducible(stream: np.random.Generator, count: int) -> NDArray[np.uint64]:
    return stream.integers(0, 2**64, count, np.uint64)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """A law on whole numbers.

    Attributes:
        least: the first number.
        high, low: the upper and lower 64 bits of the probability of all numbers up to each, times 2^128; (m - 1,),
            since that of all is 2^128.
    """

    least: int
    high: NDArray[np.uint64]
    low: NDArray[np.uint64]

    @functools.cached_property
    def _guide(self) -> NDArray[np.int64]:
        """How many sums lie at or below the first number of each of 2^14 equal parts: where the search begins."""
        starts = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        return np.searchsorted(self.high, starts, side="right")

    def _places(self, upper: NDArray[np.uint64]) -> NDArray[np.int64]:
        """How many sums lie at or below each number, as `np.searchsorted` has it, which takes four times as long."""
        places = self._guide.take(upper >> np.uint64(64 - _GUIDE_BITS))
        last = len(self.high) - 1
        for _ in range(2):
            places += (self.high.take(places, mode="clip") <= upper) & (places <= last)
        beyond = np.flatnonzero((self.high.take(places, mode="clip") <= upper) & (places <= last))
        places[beyond] = np.searchsorted(self.high, upper[beyond], side="right")
        return places

    def draw(self, size: int, words: Callable[[int], NDArray[np.uint64]]) -> NDArray[np.float64]:
        """A number of samples, each the number whose part of the uniform numbers below 2^128 one of these falls into.

        Args:
            size: how many.
            words: gives a number of uniform words of 64 bits.
        """
        upper = np.array(words(size))
        places = self._places(upper)
        # The lower half of the bits decides where the upper one is that of a boundary: for one in 2^64 / m samples.
        tied = (self.high.take(places - 1, mode="clip") == upper) & (places > 0)
        for place in np.flatnonzero(tied):
            lower, at = words(1)[0], int(places[place])
            while at > 0 and self.high[at - 1] == upper[place] and self.low[at - 1] > lower:
                at -= 1
            places[place] = at
        samples: NDArray[np.float64] = places.astype(np.float64) + self.least
        return samples


@functools.lru_cache(maxsize=16)
def table_of(mechanism: IntegerNoise, std: float) -> Table:
    """The table of a law around 0.

    Args:
        mechanism: of the noise.
        std: of the noise, in steps: of the discrete Gaussian its sigma.
    """
    law = _skellam(std) if mechanism == "skellam_sum" else _discrete_gaussian(std)
    one = 1 << _BITS
    upper = [int(math.ldexp(p, 200)) >> (200 - _BITS) for p in map(float, law[1:])]
    middle = one - 2 * sum(upper)
    parts = [*reversed(upper), middle, *upper]
    sums = list(itertools.accumulate(parts))[:-1]
    return Table(
        -len(upper), np.array([s >> 64 for s in sums], np.uint64), np.array([s & (2**64 - 1) for s in sums], np.uint64)
    )


def _skellam(std: float) -> NDArray[np.float64]:
    """Probabilities of 0, 1, 2, ...: e^-mu I_k(mu), by the continued fraction of I_k / I_(k-1), which is stable."""
    variance, ratios, ratio = std**2, [], 0.0
    for k in range(_reach(std), 0, -1):
        ratio = 1 / (2 * k / variance + ratio)
        ratios.append(ratio)
    return _normalised(np.cumprod([1.0, *reversed(ratios)]))


def _discrete_gaussian(std: float) -> NDArray[np.float64]:
    return _normalised(np.exp(-((np.arange(_reach(std) + 1) / std) ** 2) / 2))


def _reach(std: float) -> int:
    """Beyond this many steps lies less than 2^-100, for either law: a Skellam tail is that of a Poisson one."""
    return math.ceil(13 * std + 80)


def _normalised(law: NDArray[Any]) -> NDArray[np.float64]:
    law = law / math.fsum([law[0], *(2 * law[1:])])
    kept: NDArray[np.float64] = law[law >= 2.0**-_TAIL_BITS / len(law)]
    return kept

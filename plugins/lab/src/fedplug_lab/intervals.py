"""Means over seeds, and how far a difference between two protocols can be told from chance.

Two protocols that were run with the same seeds are compared seed by seed: data split and initial model follow from the
seed, so that much of what differs between seeds cancels. The interval is Student's t on the differences ("Student",
Biometrika 1908): right if they are about normally distributed, wide where there are few.
"""

from __future__ import annotations

import dataclasses
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping

from fedplug_runs import units

LEVEL = 0.95
_ALIKE = 1e-12  # few test examples make equal differences likely, of which t would make an interval without width


@dataclasses.dataclass(frozen=True)
class Spread:
    """A number over seeds: mean, standard deviation (None for one number) and of how many."""

    mean: float
    deviation: float | None
    count: int

    def text(self, shown: Callable[[float], str]) -> str:
        """`0.831 ± 0.020`, both with as many decimals; a deviation that these would show as zero is left out."""
        mean = shown(self.mean)
        if self.deviation is None:
            return mean
        plain, spread = re.fullmatch(r"-?\d+(?:\.(\d+))?(%?)", mean), shown(self.deviation)
        # A small one in scientific notation, or as `<0.1%`; other units are those of `shown`.
        if plain is not None and not re.fullmatch(r"\d+(?:\.\d+)?%?", spread):
            spread = f"{self.deviation * (100 if plain[2] else 1):.{len(plain[1] or '')}f}{plain[2]}"
        return f"{mean} ± {spread}" if re.search("[1-9]", spread) else mean


@dataclasses.dataclass(frozen=True)
class Difference:
    """How much more one has than another, over the seeds that both have.

    Attributes:
        mean: of the differences, seed by seed; None where no seed has both numbers.
        low, high: of the interval at `LEVEL`; None where none is claimed.
        count: of how many seeds.
    """

    mean: float | None
    low: float | None
    high: float | None
    count: int


def spread_of(values: Iterable[float | None]) -> Spread | None:
    """Of those that are finite numbers; None where none is."""
    known = units.finite(values)
    if not known:
        return None
    return Spread(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))


def paired(one: Mapping[int, float | None], other: Mapping[int, float | None]) -> Difference:
    """One minus the other, by seed. With one seed, or where all differences are alike, no interval is claimed."""
    differences = units.finite(
        None if (a := one[seed]) is None or (b := other[seed]) is None else a - b for seed in one if seed in other
    )
    if not differences:
        return Difference(None, None, None, 0)
    found = spread_of(differences)
    assert found is not None
    if not found.deviation or found.deviation < _ALIKE:
        return Difference(found.mean, None, None, found.count)
    from scipy.special import stdtrit  # the inverse of Student's t distribution

    reach = float(stdtrit(found.count - 1, (1 + LEVEL) / 2)) * found.deviation / math.sqrt(found.count)
    return Difference(found.mean, found.mean - reach, found.mean + reach, found.count)

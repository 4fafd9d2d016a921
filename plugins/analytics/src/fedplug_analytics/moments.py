"""Statistics from counts, sums and sums of squares: counts, means and variances, and Welch's t test."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from fedplug import Field

from fedplug_analytics.statistic import Axis, Bounds, Column, Estimate, Records, Released, Statistic

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BOUNDS = "smallest and largest value of the column; a value beyond counts as the nearer one"
_ONE_RECORD = 3
"""What a record adds to (n, sum of z, sum of z^2) is at most 1 each, for |z| <= 1."""


class Count(Statistic):
    """The number of records."""

    statistic: Literal["count"]

    @property
    def title(self) -> str:
        """Of all records."""
        return "number of records"

    @property
    def size(self) -> int:
        """One."""
        return 1

    def record_norm(self, order: float) -> float:
        """A record adds 1."""
        return 1.0

    def sums(self, records: Records) -> NDArray[np.float64]:
        """The number of them."""
        return np.array([float(len(records))])

    def answer(self, released: Released) -> Iterator[Estimate]:
        """A fact about these records, so that the noise alone gives the interval."""
        (count,) = released.sums
        if why := released.too_few(count, least=-math.inf):
            yield Estimate("records", note=why)
        else:
            yield released.estimate("records", count, noise=float(released.noise[0]), within=(0, math.inf))


class Mean(Statistic):
    """The mean and the variance of a column.

    Sums are (n, sum of z, sum of z^2) of z = (x - middle) / half of the bounds' width, in [-1, 1]. The interval of the
    variance holds for columns that are nearly normal: the variance of s^2 is taken for 2 s^4 / (n - 1).
    """

    statistic: Literal["mean"]
    column: Column
    bounds: Bounds = Field(description=_BOUNDS)

    @property
    def title(self) -> str:
        """Of the column."""
        return f"mean and variance of {self.column}"

    @property
    def size(self) -> int:
        """Three."""
        return 3

    def record_norm(self, order: float) -> float:
        """The norm of (1, 1, 1)."""
        return float(_ONE_RECORD ** (1 / order))

    def sums(self, records: Records) -> NDArray[np.float64]:
        """The three sums; a record without a number is in none."""
        return powers(scaled(records.column(self.column), self.bounds))

    def answer(self, released: Released) -> Iterator[Estimate]:
        """n, the mean with Student's interval, and the variance."""
        count = released.sums[0]
        if why := released.too_few(count):
            yield Estimate(f"mean of {self.column}", note=why)
            return
        (middle, half), n = _units(self.bounds), float(count)
        (mean, variance), noise = moments(released.sums), released.spread(moments)
        variance = max(float(variance), 0.0)
        low, high = self.bounds
        yield released.estimate(f"records with {self.column}", n, noise=float(released.noise[0]), within=(0, math.inf))
        yield released.estimate(
            f"mean of {self.column}", middle + half * float(mean), half**2 * variance / n, half**2 * float(noise[0]),
            n - 1, (low, high),
        )  # fmt: skip
        yield released.estimate(
            f"variance of {self.column}", half**2 * variance, half**4 * 2 * variance**2 / (n - 1),
            half**4 * float(noise[1]), within=(0, half**2),
        )  # fmt: skip

    def figures(self, sums: NDArray[np.float64]) -> Mapping[str, float]:
        """The mean."""
        middle, half = _units(self.bounds)
        return {f"mean of {self.column}": middle + half * float(sums[1] / sums[0])} if sums[0] > 0 else {}


class TTest(Statistic):
    """Whether a column has the same mean in two groups: Welch's t test (Welch 1947), without equal variances.

    The variance of the noise is added to that of the difference, and is known, so it has no degrees of freedom.
    """

    statistic: Literal["t_test"]
    column: Column
    bounds: Bounds = Field(description=_BOUNDS)
    groups: Axis = Field(description="the two groups: a column with two values, or three edges")

    def model_post_init(self, context: Any) -> None:
        """Raises ValueError unless there are two groups."""
        if len(self.groups.names) != 2:
            raise ValueError(f"groups has {len(self.groups.names)} cells, and a t test compares 2; name two values")

    @property
    def title(self) -> str:
        """Of the column and its groups."""
        return f"t test of {self.column} by {self.groups.column}"

    @property
    def size(self) -> int:
        """Three a group."""
        return 6

    def record_norm(self, order: float) -> float:
        """A record is in one group."""
        return float(_ONE_RECORD ** (1 / order))

    def sums(self, records: Records) -> NDArray[np.float64]:
        """The three sums of each group."""
        numbers, group = scaled(records.column(self.column), self.bounds), self.groups.cells(records)
        return np.concatenate([powers(numbers[group == each]) for each in range(2)])

    def answer(self, released: Released) -> Iterator[Estimate]:
        """Both means, their difference with its interval, t and the p-value."""
        from scipy import stats

        counts = released.sums[[0, 3]]
        if why := released.too_few(*counts):
            yield Estimate(f"difference of {self.column}", note=f"a group is {why}")
            return
        middle, half = _units(self.bounds)
        groups = [moments(each) for each in np.split(released.sums, 2)]
        squares = [max(float(variance), 0.0) / n for (_, variance), n in zip(groups, counts, strict=True)]
        noise = float(released.spread(_difference)[0])
        for name, (mean, _), square, own in zip(
            self.groups.names, groups, squares, released.spread(_both), strict=True
        ):
            yield released.estimate(
                f"mean of {self.column} where {self.groups.column} is {name}", middle + half * float(mean),
                half**2 * square, half**2 * float(own), float(counts[self.groups.names.index(name)] - 1),
            )  # fmt: skip
        sampling, apart = sum(squares), float(_difference(released.sums)[0])
        parts = [s**2 / (n - 1) for s, n in zip(squares, counts, strict=True)]
        freedom = sampling**2 / sum(parts) if sampling else math.inf
        yield released.estimate(
            f"difference of the means of {self.column}", half * apart, half**2 * sampling, half**2 * noise, freedom
        )
        if not (total := sampling + noise):
            yield Estimate("t", note="no record differs from its group's mean")
            return
        t = apart / math.sqrt(total)
        freedom = freedom * (total / sampling) ** 2 if sampling else math.inf
        law = stats.norm if math.isinf(freedom) else stats.t(freedom)
        yield Estimate("t", t)
        yield Estimate("p-value", float(2 * law.sf(abs(t))))


# -- parts -------------------------------------------------------------------------------------------------------------


def _units(bounds: tuple[float, float]) -> tuple[float, float]:
    """The middle of the bounds, and half their width."""
    low, high = bounds
    return (low + high) / 2, (high - low) / 2


def scaled(numbers: NDArray[np.float64], bounds: tuple[float, float]) -> NDArray[np.float64]:
    """z in [-1, 1], (n,); what lies beyond the bounds is taken to the nearer one. NaN stays NaN."""
    middle, half = _units(bounds)
    return (np.clip(numbers, *bounds) - middle) / half


def powers(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, sum of z, sum of z^2) of the numbers that are there."""
    there = z[~np.isnan(z)]
    return np.array([len(there), there.sum(), (there**2).sum()])


def moments(sums: NDArray[Any]) -> NDArray[Any]:
    """Mean and unbiased variance of z, (..., 2), from (..., 3)."""
    n, first, second = (sums[..., place] for place in range(3))
    return np.stack([first / n, (second - first**2 / n) / (n - 1)], -1)


def _both(sums: NDArray[Any]) -> NDArray[Any]:
    """The means of both groups, (..., 2)."""
    return np.stack([sums[..., 1] / sums[..., 0], sums[..., 4] / sums[..., 3]], -1)


def _difference(sums: NDArray[Any]) -> NDArray[Any]:
    """The first mean less the second, (..., 1)."""
    means = _both(sums)
    return np.asarray(means[..., :1] - means[..., 1:])

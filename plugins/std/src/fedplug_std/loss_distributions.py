"""Privacy loss distributions of many releases, on grids that leave epsilon at most 0.1% too high.

A distribution is on a grid of losses, and dp_accounting composes it. A loss between two points is put onto both
("connect the dots", Doroshenko et al. 2022), so that probabilities keep their sum under either data set: the result is
pessimistic, and wrong by the square of the grid's width over the variance of a loss. That error adds up over releases,
as the variance does. So the grid of one release is a small part of the standard deviation of its loss, whatever their
number. The composition of many moves to a wider grid, which need not grow with their number either.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FINE = 32.0
"""Points of a grid in a standard deviation: each step onto a grid adds about 0.01% to the variance, and there are three
(one release, a block of them, all kinds together)."""
_BLOCK = 1024
"""Releases that are composed on the grid of a single one; beyond, blocks of them have a separate grid."""
_MOST_POINTS = 1 << 17
"""Of the grid of one release. Where its losses span more, the large ones are rare, and shape epsilon far more coarsely
than the standard deviation of all says."""
_FROM_MEAN = 8000.0
"""Where losses hardly vary, epsilon is about their mean; a grid of the mean over so much moves it by 0.01%."""
_NARROW = 0.25
"""A grid so narrow moves a mean by the eighth part of its square at most; a wider one rounds losses up."""
_TAILS = 10.5
"""Standard deviations of Gaussian noise beyond which less than 1e-24 of it lies."""


class Release(abc.ABC):
    """One release: how it is distributed with and without a contribution. Equal releases are one kind.

    `symmetric` says whether both directions, with against without and the reverse, have one distribution of losses;
    `lumps`, whether some losses, such as the largest, have a positive probability.
    """

    symmetric, lumps = False, False

    @abc.abstractmethod
    def losses(self) -> tuple[float, float]:
        """The smallest and the largest loss; what lies beyond has a probability below 1e-23."""

    @abc.abstractmethod
    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Probabilities between ascending losses, (n,), with the contribution and without: what is below the first,
        between the first two, ..., and above the last, (n + 1,) each.
        """


@dataclasses.dataclass(frozen=True)
class Gaussian(Release):
    """Gaussian noise on a Poisson sample.

    Attributes:
        multiplier: standard deviation over sensitivity, > 0.
        rate: of the sample, in (0, 1].
        replaced: whether one contribution replaces another, and does not become zero.
    """

    multiplier: float
    rate: float = 1.0
    replaced: bool = False

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        return self.replaced or self.rate == 1

    def losses(self) -> tuple[float, float]:
        tails = _TAILS * self.multiplier
        high = self._loss(1 + tails)
        return (-high if self.replaced else self._loss(-tails)), high

    def _loss(self, value: float) -> float:
        sampled = _log_mixture(self.rate, (2 * value - 1) / self.multiplier / self.multiplier / 2)
        if not self.replaced:
            return sampled
        return sampled - _log_mixture(self.rate, (-2 * value - 1) / self.multiplier / self.multiplier / 2)

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        s, q = self.multiplier, self.rate
        if self.replaced:
            # With c = q e^(-1 / 2s^2): sinh(x / s^2 - loss / 2) = (1 - q) sinh(loss / 2) / c.
            half = np.abs(losses) / 2
            with np.errstate(divide="ignore"):
                part = np.log1p(-q) + _log_sinh(half) - math.log(q) + 1 / s / s / 2
            where = np.copysign((half + _asinh_of_exp(part)) * s * s, losses)
            others = [(1 - q, 0.0), (q, -1.0)]
        else:
            where = _log_part(losses, q) * s * s + 0.5
            others = [(1.0, 0.0)]
        mine = [(1 - q, 0.0), (q, 1.0)]

        def between(parts: list[tuple[float, float]]) -> NDArray[np.float64]:
            masses = [share * _normal_between((where - centre) / s) for share, centre in parts if share]
            return np.asarray(sum(masses), np.float64)

        return between(mine), between(others)


@dataclasses.dataclass(frozen=True)
class Laplace(Release):
    """Laplace noise on a Poisson sample, where a contribution becomes zero.

    Attributes:
        multiplier: scale over sensitivity, > 0. For vectors it is worst to have the whole L1 norm in one coordinate.
        rate: of the sample, in (0, 1].
    """

    multiplier: float
    rate: float = 1.0
    lumps = True

    @property
    def symmetric(self) -> bool:  # type: ignore[override]
        return self.rate == 1

    def losses(self) -> tuple[float, float]:
        most = 1 / self.multiplier
        return _log_mixture(self.rate, -most), _log_mixture(self.rate, most)

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        b, q = self.multiplier, self.rate
        where = _log_part(losses, q) * b / 2 + 0.5
        where = np.where(where >= 1, np.inf, np.where(where <= 0, -np.inf, where))
        base = _laplace_between(where / b)
        return (1 - q) * base + q * _laplace_between((where - 1) / b), base


@dataclasses.dataclass(frozen=True)
class Pure(Release):
    """A randomised response, of which every mechanism with this epsilon and delta 0 is a processed one.

    Attributes:
        loss: epsilon, > 0.
    """

    loss: float
    symmetric, lumps = True, True

    def losses(self) -> tuple[float, float]:
        return -self.loss, self.loss

    def below(self, losses: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lie = 1 / (1 + math.exp(self.loss)) if self.loss < 700 else 0.0
        shares = [np.where(losses < -self.loss, 0.0, np.where(losses < self.loss, low, 1.0)) for low in (lie, 1 - lie)]
        here, there = (np.diff(np.concatenate([[0.0], each, [1.0]])) for each in shares)
        return here, there


@functools.lru_cache(maxsize=4096)
def moments(kind: Release) -> tuple[float, float]:
    """Mean and variance of one release's loss, about; with the contribution, the direction that costs more."""
    low, high = kind.losses()
    # Wide losses are rare ones: the points lie closer the smaller they are.
    steps = np.sinh(np.linspace(-20.0, 20.0, 4001)) / math.sinh(20.0)
    edges = np.unique(np.clip(steps * max(-low, high), low, high))
    mass, _ = kind.below(edges)
    at = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    mean = float(mass @ at)
    return max(mean, 0.0), float(mass @ np.minimum(np.abs(at - mean), 1e150) ** 2)


# -- composition -------------------------------------------------------------------------------------------------------


def grid(mean: float, variance: float, parts: float) -> float:
    """The width of a grid for this number of parts with this total mean and variance; a power of two.

    Epsilon then grows by about 0.01%, or by 0.05% if the parts hardly vary.
    """
    certain = min(math.sqrt(mean / parts) / _FINE, mean / math.sqrt(parts) / _FROM_MEAN)
    width = max(math.sqrt(variance / parts) / _FINE, certain, 2.0**-1000)
    # Large losses that are rare make the variance large, and lie apart.
    return _power(min(width, max(_NARROW, mean / parts / _FROM_MEAN)))


def _smooth(kind: Release, count: int) -> float:
    """The variance of one loss; less if a few of many releases have lumps, which the grid must hit exactly."""
    variance = moments(kind)[1]
    return min(variance, (kind.losses()[1] / _FINE) ** 2 * count) if kind.lumps else variance


def epsilon_of(releases: Sequence[tuple[Release, int]], delta: float) -> float:
    """Epsilon of all releases, each a kind with its number; one at least. At most 0.1% too high."""
    with np.errstate(over="ignore"):  # where dp_accounting bounds tails of losses beyond 700
        return float(composed(releases).get_epsilon_for_delta(delta))


def composed(releases: Sequence[tuple[Release, int]]) -> Any:
    """The distribution of all releases, each a kind with its number; one at least.

    All but the last kind are remembered: noise that changes with every round adds one kind a round.
    """
    known = tuple(releases)
    mean = math.fsum(count * moments(kind)[0] for kind, count in known)
    width = grid(mean, math.fsum(count * _smooth(kind, 1) for kind, count in known), len(known))
    before, total = _BEFORE.pop(width, ((), None))
    if known[: len(before)] != before or len(before) >= len(known):
        before, total = (), None
    for number in range(len(before), len(known)):
        if number == len(known) - 1:
            while len(_BEFORE) >= 8:
                del _BEFORE[next(iter(_BEFORE))]
            _BEFORE[width] = known[:-1], total
        one = repeated(*known[number], width)
        total = one if total is None else total.compose(one)
    return total


_BEFORE: dict[float, tuple[tuple[tuple[Release, int], ...], Any]] = {}
"""By the width of a grid, releases that were composed last on it, and their distribution; a few are kept."""


@functools.lru_cache(maxsize=64)
def repeated(kind: Release, count: int, width: float) -> Any:
    """The distribution of `count` equal releases on a grid of that width, or on a wider one where one release's losses
    span too many points.
    """
    low, high = kind.losses()
    own = max(min(width, grid(moments(kind)[0], _smooth(kind, count), 1)), _power((high - low) / _MOST_POINTS))
    blocks, rest = divmod(count, _BLOCK)
    if not blocks:
        return coarser(_few(kind, rest, own), max(width, own))
    wide = max(own, min(width, own * 2.0 ** (math.log2(_BLOCK) // 2)))
    total = _blocks(kind, blocks, own, wide)
    if rest:
        total = total.compose(coarser(_few(kind, rest, own), wide))
    return coarser(total, max(width, own))


@functools.lru_cache(maxsize=16)
def _blocks(kind: Release, count: int, own: float, wide: float) -> Any:
    """Whole blocks, which stay for many rounds while the rest grows."""
    return coarser(_few(kind, _BLOCK, own), wide).self_compose(count)


@functools.lru_cache(maxsize=16)
def _few(kind: Release, count: int, width: float) -> Any:
    one = _one(kind, width)
    return one.self_compose(count) if count > 1 else one


@functools.lru_cache(maxsize=64)
def _one(kind: Release, width: float) -> Any:
    """The distribution of one release."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    low, high = kind.losses()
    numbers = np.arange(math.floor(low / width), max(math.ceil(high / width), math.floor(low / width) + 1) + 1)
    here, there = kind.below(numbers.astype(np.float64) * width)
    remove = _connected(here, there, numbers, width)
    if kind.symmetric:
        return PrivacyLossDistribution(remove)
    return PrivacyLossDistribution(remove, _connected(there[::-1], here[::-1], -numbers[::-1], width))


def _connected(here: NDArray[np.float64], there: NDArray[np.float64], numbers: NDArray[np.int64], width: float) -> Any:
    """Probabilities below, between and above neighbouring points, put onto the points so that both sums stay."""
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    inside, without = here[1:-1], there[1:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = np.log(inside) - np.log(without)  # between the two points, as far as it can be told
        left = np.clip(numbers[1:] * width - loss, 0.0, width)
    # w e^h + (1 - w) = e^left, without what could overflow.
    lower = np.expm1(-left) / math.expm1(-width) * np.exp(left - width)
    lower = np.where(np.isfinite(lower), lower, 0.0) * inside
    found = np.zeros(len(numbers))
    found[:-1] += lower
    found[1:] += inside - lower
    found[0] += here[0]  # no cheaper than it is
    return DensePLDPmf(width, int(numbers[0]), found, float(here[-1]), True)


def coarser(distribution: Any, width: float) -> Any:
    """The same distribution on a wider grid, no cheaper at any epsilon.

    What lies between two points of the wider grid is put onto both so that the sums of p and of p e^-loss stay: delta
    is the expectation under p of max(0, 1 - e^(epsilon - loss)), which is convex in e^-loss and so can only grow.

    Args:
        distribution: a `PrivacyLossDistribution`.
        width: a multiple of that of its grid.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    factor = round(width / width_of(distribution))
    if factor == 1:
        return distribution
    remove = _coarser(distribution._pmf_remove, factor, width)
    if distribution._symmetric:
        return PrivacyLossDistribution(remove)
    return PrivacyLossDistribution(remove, _coarser(distribution._pmf_add, factor, width))


def width_of(distribution: Any) -> float:
    """The width of a distribution's grid."""
    return float(distribution._pmf_remove._discretization)


def _coarser(pmf: Any, factor: int, width: float) -> Any:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    pmf = pmf.to_dense_pmf()
    probabilities = np.asarray(pmf._probs, np.float64)
    below, above = np.divmod(np.arange(len(probabilities)) + pmf._lower_loss, factor)
    # Between a and a + 1 wide steps, at the part t of one: w e^0 + (1 - w) e^-h = e^-th.
    lower = 1 - np.expm1(-above * (width / factor)) / math.expm1(-width)
    first = int(below[0])
    size = int(below[-1]) - first + 2
    found = np.bincount(below - first, probabilities * lower, size)
    found += np.bincount(below - first + 1, probabilities * (1 - lower), size)
    return DensePLDPmf(width, first, found, pmf._infinity_mass, pmf._pessimistic_estimate)


# -- numbers -----------------------------------------------------------------------------------------------------------


def _power(width: float) -> float:
    """The largest power of two up to a number > 0."""
    return 2.0 ** math.floor(math.log2(width))


def _log_mixture(rate: float, loss: float) -> float:
    """log(1 - q + q e^loss)."""
    if loss > 30:
        return loss + math.log(rate) + math.log1p((1 - rate) / rate * math.exp(-loss))
    return math.log1p(rate * math.expm1(loss)) if rate < 1 else loss


def _log_part(losses: NDArray[np.float64], rate: float) -> NDArray[np.float64]:
    """Inverse of `_log_mixture`; -infinity for what no loss gives."""
    if rate == 1:
        return losses
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        near = np.log1p(np.maximum(np.expm1(losses) / rate, -1.0))
        far = losses + np.log1p(-(1 - rate) * np.exp(-losses)) - math.log(rate)
    return np.where(losses > 30, far, near)


def _log_sinh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(sinh(x)) for x >= 0."""
    with np.errstate(divide="ignore"):
        return values + np.log(-np.expm1(-2 * values)) - math.log(2)


def _asinh_of_exp(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """asinh(e^x)."""
    small = np.arcsinh(np.exp(np.minimum(values, 20.0)))
    return np.where(values > 20, values + math.log(2), small)


def _normal_between(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal probabilities below the first of ascending points, between neighbours, and above the last."""
    from scipy.special import ndtr

    points = np.concatenate([[-np.inf], points, [np.inf]])
    # In the upper half from above, where nothing cancels.
    lower, upper = np.asarray(ndtr(points), np.float64), np.asarray(ndtr(-points), np.float64)
    return np.where(points[:-1] > 0, upper[:-1] - upper[1:], lower[1:] - lower[:-1])


def _laplace_between(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same of a Laplace distribution of scale 1."""
    points = np.concatenate([[-np.inf], points, [np.inf]])
    low, high = np.exp(np.minimum(points, 0.0)) / 2, np.exp(-np.maximum(points, 0.0)) / 2
    lower, upper = np.where(points <= 0, low, 1 - high), np.where(points > 0, high, 1 - low)
    return np.where(points[:-1] > 0, upper[:-1] - upper[1:], lower[1:] - lower[:-1])

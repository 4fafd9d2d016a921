"""Privacy loss distributions of many equal releases, on grids whose size does not grow with their number.

dp_accounting's distributions live on a grid of losses. Its "connect the dots" (Doroshenko et al. 2022) puts what lies
between two points onto both, so that probabilities keep their sum under either data set: the result is pessimistic, and
wrong by the square of the grid's width beside the variance. So the grid may be as wide as the distribution allows, and
may widen as that does; a fixed one has sqrt(n) times as many points after n releases.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

_FINE = 32.0
"""Points of the grid in a standard deviation: epsilon comes out at most about 0.1% too high."""
_BLOCK = 1024
"""Releases that are composed on the grid of a single one; from there on, blocks of them on a grid of their own."""
_MOST_POINTS = 1 << 17
_NARROWEST = 1e-9
"""Standard deviations of one release's losses below which rounding loses them."""
_TAILS = 16.6
"""Standard deviations from end to end of a composed distribution, beyond which 1e-15 of it lie."""


def variance(multiplier: float, rate: float) -> float:
    """About the variance of the privacy loss of one sampled Gaussian release: its Renyi DP of order 2."""
    return math.log1p(rate**2 * math.expm1(min((1 / multiplier) ** 2, 700.0)))


def fits(multiplier: float, rate: float) -> bool:
    """Whether the distribution of one such release has a grid of moderate size, whose width numbers can express."""
    std = math.sqrt(variance(multiplier, rate))
    largest = math.log1p(rate * math.expm1(min(_TAILS / 2 / multiplier + 0.5 / multiplier**2, 700.0)))
    return std >= _NARROWEST and largest / std * _FINE <= _MOST_POINTS


def width(variances: float) -> float:
    """The losses that a composed distribution spans, by the sum of its releases' variances."""
    return _TAILS * math.sqrt(variances)


@functools.lru_cache(maxsize=256)
def gaussian(multiplier: float, rate: float, relation: str, interval: float) -> Any:
    """The distribution of one Gaussian release.

    Args:
        multiplier: standard deviation over sensitivity; where one record replaces another, dp_accounting doubles the
            sensitivity itself.
        rate: of Poisson sampling, in (0, 1].
        relation: `ADD_OR_REMOVE_ONE`, `REPLACE_SPECIAL` (a contribution becomes zero) or `REPLACE_ONE`.
        interval: width of the grid.
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        multiplier,
        sampling_prob=rate,
        value_discretization_interval=interval,
        neighboring_relation=NeighboringRelation[relation],
    )


def many_gaussians(multiplier: float, rate: float, count: int, relation: str = "ADD_OR_REMOVE_ONE") -> Any:
    """The distribution of `count` equal Gaussian releases, on a grid that suits it; see `gaussian`."""
    if rate == 1:
        multiplier, count = multiplier / math.sqrt(count), 1
    interval = 2.0 ** math.floor(math.log2(math.sqrt(variance(multiplier, rate)) / _FINE))
    blocks, rest = divmod(count, _BLOCK)
    if not blocks:
        return _repeated(multiplier, rate, relation, interval, rest)
    coarse = interval * math.sqrt(_BLOCK)
    total = _blocks(multiplier, rate, relation, interval, blocks)
    if rest:
        total = total.compose(coarser(_repeated(multiplier, rate, relation, interval, rest), coarse))
    return total


@functools.lru_cache(maxsize=16)
def _blocks(multiplier: float, rate: float, relation: str, interval: float, count: int) -> Any:
    """Whole blocks, which stay for many rounds while the rest grows."""
    block = _repeated(multiplier, rate, relation, interval, _BLOCK)
    return coarser(block, interval * math.sqrt(_BLOCK)).self_compose(count)


@functools.lru_cache(maxsize=16)
def _repeated(multiplier: float, rate: float, relation: str, interval: float, count: int) -> Any:
    return gaussian(multiplier, rate, relation, interval).self_compose(count)


def together(distributions: list[Any]) -> Any:
    """The composition of distributions, on the coarsest of their grids; intervals differ by powers of two."""
    interval = max(interval_of(each) for each in distributions)
    first, *others = (coarser(each, interval) for each in distributions)
    for other in others:
        first = first.compose(other)
    return first


def interval_of(distribution: Any) -> float:
    """The width of a distribution's grid."""
    return float(distribution._pmf_remove._discretization)


def coarser(distribution: Any, interval: float) -> Any:
    """The same distribution on a wider grid, no cheaper at any epsilon.

    What lies between two points of the wider grid is put onto both so that the sums of p and of p e^-loss stay: delta
    is the expectation under p of max(0, 1 - e^(epsilon - loss)), which is convex in e^-loss and so can only grow.

    Args:
        distribution: a `PrivacyLossDistribution`.
        interval: a multiple of its interval.
    """
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    factor = round(interval / interval_of(distribution))
    if factor == 1:
        return distribution
    remove = _coarser(distribution._pmf_remove, factor, interval)
    if distribution._symmetric:
        return PrivacyLossDistribution(remove)
    return PrivacyLossDistribution(remove, _coarser(distribution._pmf_add, factor, interval))


def _coarser(pmf: Any, factor: int, interval: float) -> Any:
    from dp_accounting.pld.pld_pmf import DensePLDPmf

    pmf = pmf.to_dense_pmf()
    probabilities = np.asarray(pmf._probs, np.float64)
    below, above = np.divmod(np.arange(len(probabilities)) + pmf._lower_loss, factor)
    # Between a and a + 1 wide steps, at the part t of one: w e^0 + (1 - w) e^-h = e^-th.
    lower = 1 - np.expm1(-above * (interval / factor)) / math.expm1(-interval)
    first = int(below[0])
    size = int(below[-1]) - first + 2
    found = np.bincount(below - first, probabilities * lower, size)
    found += np.bincount(below - first + 1, probabilities * (1 - lower), size)
    return DensePLDPmf(interval, first, found, pmf._infinity_mass, pmf._pessimistic_estimate)

"""LDP-Fed's randomiser: the exponential mechanism on bounded integers, and its exact cost.

Ordinal-CLDP of Gursoy et al., "Secure and Utility-Aware Data Collection with Condensed Local Differential Privacy"
(IEEE TDSC 2019, arXiv:1905.06361): with the universe U = {-m, ..., m}, Pr[y | v] is proportional to
exp(-alpha |v - y| / 2) for y in U. That is a two-sided geometric distribution around v, cut off at both ends.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from fedplug_ledger.accounting import gaussian_epsilon

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST = 2**52
"""Largest m: float64 still tells neighbouring integers apart."""

_SHARP = 100.0
"""Epsilon of one value from which on `gaussian_cost` does not help: there mu^2 / 2 is about twice epsilon."""


def perturb(values: NDArray[np.int64], largest: int, alpha: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """One draw of the exponential mechanism for each value, by inversion: no candidate is enumerated.

    Args:
        values: v, int64 (n,), each in [-largest, largest].
        largest: m >= 1, the universe is -m to m.
        alpha: > 0, privacy parameter per step of the universe.
        generator: source of the uniform variates.

    Returns:
        y, int64 (n,), each in [-largest, largest].
    """
    decay = alpha / 2
    down, up = values + largest, largest - values  # number of candidates on either side of v
    left, right = _mass(decay, down), _mass(decay, up)
    side = generator.random(len(values)) * (1 + left + right)  # v itself has mass 1
    goes_left, stays = side < left, (side >= left) & (side < left + 1)
    count = np.where(goes_left, down, up)
    # Of the candidates 1, ..., count on that side, number k has probability exp(-decay k) / mass.
    steps = 1 + np.floor(np.log1p(generator.random(len(values)) * np.expm1(-decay * count)) / -decay)
    steps = np.where(stays, 0, np.minimum(steps, count)).astype(np.int64)  # rounding may step one beyond
    return values + np.where(goes_left, -steps, steps)


def zero_out_epsilon(alpha: float, largest: int) -> float:
    """The exact epsilon of local differential privacy of one coordinate: any v in the universe against 0.

    ln Pr[y | v] - ln Pr[y | 0] is largest at v = y = m: alpha m / 2 + ln(Z(0) / Z(m)), with Z(v) the sum of
    exp(-alpha |v - y| / 2) over the universe. It lies between alpha m / 2 and alpha m. Two values can be 2m apart, so
    replacing one by another costs alpha 2m / 2 = alpha m, at most twice as much.

    Args:
        alpha: > 0, privacy parameter per step of the universe.
        largest: m >= 1.
    """
    decay = alpha / 2
    middle, end = 1 + 2 * float(_mass(decay, largest)), 1 + float(_mass(decay, 2 * largest))
    return decay * largest + math.log(middle / end)


def gaussian_cost(alpha: float, largest: int) -> float:
    """The least mu for which a drawn value distinguishes v from 0 no better than N(mu, 1) distinguishes from N(0, 1).

    With this mu, n values cost no more than one Gaussian release with noise multiplier 1 / (mu sqrt(n)) (Dong,
    Roth and Su, Gaussian differential privacy, 2019: Theorem 2.10 and Corollary 3.3). For large n, that is far less
    than n times `zero_out_epsilon`: values that reveal much are as rare as values that mislead.

    The likelihood ratio of v > 0 against 0 grows with y, so the best tests ask whether y > t, and are strongest for
    v = m (monotone ratios: Karlin and Rubin). The ratio is constant up to y = 0, which leaves t = 0, ..., m - 1. A
    trade-off curve is straight between these tests and the curve of two Gaussians is convex. It therefore suffices to
    check that the Gaussian curve lies below at these tests.

    Args:
        alpha: > 0, privacy parameter per step of the universe.
        largest: m >= 1.

    Returns:
        mu; infinity where values are so sharp that adding up epsilons always gives less.
    """
    if zero_out_epsilon(alpha, largest) > _SHARP:
        return math.inf
    decay, quantile = alpha / 2, NormalDist().inv_cdf
    middle, end = 1 + 2 * float(_mass(decay, largest)), 1 + float(_mass(decay, 2 * largest))

    def needed(t: float) -> float:
        above = math.exp(-decay * t) * float(_mass(decay, largest - t)) / middle  # Pr[y > t | 0]
        below = math.exp(-decay * (largest - t - 1)) * float(_mass(decay, largest + t + 1)) / end  # Pr[y <= t | m]
        return -quantile(above) - quantile(below)

    grid = np.linspace(0, largest - 1, 65).tolist()
    best = max(range(65), key=lambda i: needed(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 64)]
    for _ in range(60):  # there is one maximum, between the neighbours of the best grid point
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if needed(left) < needed(right) else (low, right)
    return max(needed(low), needed(grid[best])) * (1 + 1e-6) + 1e-14  # margin for the search and for rounding


def cost_of(alpha: float, coordinates: int, largest: int, delta: float | None) -> tuple[float, float]:
    """Epsilon of that many values together, and mu of one value where that is the better account, else 0.

    Args:
        alpha: > 0, privacy parameter per step of the universe.
        coordinates: number of values that a client sends over all rounds, >= 1.
        largest: m >= 1.
        delta: failure probability at which they are accounted for; None adds up epsilons.
    """
    plain = coordinates * zero_out_epsilon(alpha, largest)
    if delta is None or math.isinf(mu := gaussian_cost(alpha, largest)):
        return plain, 0.0
    together = gaussian_epsilon(1 / (mu * math.sqrt(coordinates)), delta)
    return (together, mu) if together < plain else (plain, 0.0)


@functools.cache
def alpha_for(epsilon: float, coordinates: int, largest: int, delta: float | None = None) -> float:
    """The largest alpha with which that many coordinates together cost at most `epsilon` under zero-out.

    Args:
        epsilon: > 0, of all coordinates that a client sends, over all rounds.
        coordinates: number of those coordinates, >= 1.
        largest: m >= 1.
        delta: failure probability at which they are accounted for; None adds up epsilons.
    """
    low = high = epsilon / coordinates / largest  # sufficient if epsilons add up
    while cost_of(high, coordinates, largest, delta)[0] <= epsilon:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        enough = cost_of(middle, coordinates, largest, delta)[0] <= epsilon
        low, high = (middle, high) if enough else (low, middle)
    return low


def _mass(decay: float, count: float | NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of exp(-decay k) over k = 1, ..., count. Also right where decay is tiny or count is 0."""
    return np.asarray(np.expm1(-decay * np.asarray(count, np.float64)) / np.expm1(-decay) * math.exp(-decay))

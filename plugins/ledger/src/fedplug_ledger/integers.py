"""What noise in whole numbers costs in a sum of several clients: discrete Gaussian and Skellam noise on a public grid.

A sum of Gaussian variables is one, so the sum of n clients' noise is priced as n times the variance. Of discrete
Gaussian variables that holds but for a factor (Kairouz, Liu & Steinke, ICML 2021); of Skellam variables it holds, and
one of them costs a little more than Gaussian noise (Agarwal, Kairouz & Liu, NeurIPS 2021). Both are bounded here by
concentrated DP: Renyi DP of every whole order a >= 2 of at most a / (2 M^2), which is that of Gaussian noise of
multiplier M. It has no other property of Gaussian noise: epsilon follows from it by Renyi DP alone.

All sizes are in steps of the grid.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from fedplug.api.operations import INTEGER, IntegerNoise

from fedplug_ledger.accounting import composed_epsilon, first_that_holds, gaussian_noise_multiplier

_LEAST_STD = math.sqrt(0.5)
"""Below, in steps, nothing is known of sums of discrete Gaussian variables."""


@functools.lru_cache(maxsize=4096)
def sum_gap(std: float, clients: int) -> float:
    """tau: how far the law of a sum of discrete Gaussian variables lies from that of one of their summed variance.

    The logarithm of their quotient is at most tau at every whole number (Kairouz, Liu & Steinke, ICML 2021, Theorem
    1): tau = 10 sum over k from 1 to n - 1 of exp(-2 pi^2 std^2 k / (k + 1)).

    Args:
        std: sigma of one variable, in steps.
        clients: n.

    Returns:
        tau >= 0; infinite for several of std below sqrt(1/2), of which the theorem says nothing.
    """
    if clients < 2:
        return 0.0
    if std < _LEAST_STD:
        return math.inf
    k = np.arange(1, clients)
    return float(10 * np.exp(-2 * math.pi**2 * std**2 * k / (k + 1)).sum())


def sum_multiplier(mechanism: IntegerNoise, std: float, norm: float, size: float, clients: int) -> float:
    """The multiplier M of Gaussian noise whose Renyi DP is at least that of the sum of these clients' noise.

    discrete_gaussian_sum: 1 / M = min{ sqrt(D2^2 / (n std^2) + tau d), D2 / (sqrt(n) std) + tau sqrt(d) } (Kairouz,
        Liu & Steinke 2021, Proposition 14, whose first bound on the Renyi DP is a D2^2 / (2 n std^2) + tau d. Their
        Theorem 1 has tau d / 2 here, which that does not give below a = 4; from 4 steps a std on tau is nothing).
    skellam_sum: with the variance mu = n std^2, RDP(a) <= a D2^2 / (2 mu) + min{ ((2 a - 1) D2^2 + 6 D1) / (4 mu^2),
        3 D1 / (2 mu) } for whole a >= 2 (Agarwal, Kairouz & Liu 2021, Theorem 3.5), with D1 = min(sqrt(d) D2, D2^2),
        since values are whole numbers. 1 / M^2 is what 2 / a times this is at most over all a >= 1.

    Args:
        mechanism: of the noise.
        std: of one client's noise, in steps, > 0.
        norm: D2, the L2 sensitivity, in steps.
        size: d, the most scalars that one client sends.
        clients: n, how many clients' noise counts.

    Returns:
        M >= 0: infinite for a sensitivity of 0; 0 where nothing is known.
    """
    if norm == 0:
        return math.inf
    if mechanism == "skellam_sum":
        variance = clients * std**2
        summed = min(math.sqrt(size) * norm, norm**2)
        more = min((2 * norm**2 + max(0.0, 6 * summed - norm**2)) / (2 * variance**2), 3 * summed / variance)
        return 1 / math.sqrt(norm**2 / variance + more)
    tau, alone = sum_gap(std, clients), norm / (math.sqrt(clients) * std)
    cost = min(math.sqrt(alone**2 + tau * size), alone + tau * math.sqrt(size))
    return 0.0 if math.isinf(cost) else 1 / cost


def std_of_sum(mechanism: IntegerNoise, multiplier: float, norm: float, size: float, clients: int) -> float:
    """The least standard deviation of one client's noise, in steps, with which a sum has a multiplier: the inverse of
    `sum_multiplier` in `std`.

    Args:
        mechanism: of the noise.
        multiplier: M > 0.
        norm, size, clients: as of `sum_multiplier`.

    Raises:
        ValueError: an unknown mechanism, or a multiplier that is not finite and > 0.
    """
    if mechanism not in INTEGER or not 0 < multiplier < math.inf:
        raise ValueError(f"mechanism={mechanism!r} must be one of {', '.join(INTEGER)}, and {multiplier=} finite, > 0")
    low = multiplier * norm / math.sqrt(clients)  # as of Gaussian noise, which costs least
    high = 2 * max(low, _LEAST_STD)
    while sum_multiplier(mechanism, high, norm, size, clients) < multiplier:
        high *= 2
    return first_that_holds(lambda std: sum_multiplier(mechanism, std, norm, size, clients) >= multiplier, low, high)


@functools.lru_cache(maxsize=256)
def concentrated_multiplier(epsilon: float, delta: float) -> float:
    """The least M with which one release of concentrated DP, RDP(a) <= a / (2 M^2), is (epsilon, delta)-DP.

    Args:
        epsilon: privacy loss, > 0 and finite.
        delta: failure probability, 0 < delta < 1.

    Raises:
        ValueError: an argument out of range.
    """
    low = gaussian_noise_multiplier(epsilon, delta)  # of which it is some percent more
    high = 2 * low

    def holds(multiplier: float) -> bool:
        return composed_epsilon(1 / multiplier**2, (), delta, concentrated=True) <= epsilon

    while not holds(high):
        high *= 2
    return first_that_holds(holds, low, high)

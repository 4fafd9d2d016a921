"""Privacy loss of Gaussian noise: exact curves, calibration and composition.

A noise multiplier is the standard deviation of the noise over the clipping norm. The clipping norm is the L2
sensitivity under zero-out adjacency (one client's contribution replaced by zero); replacing one contribution by another
has twice that sensitivity, so its multiplier is half as large. Multiplier 0 means no noise (epsilon is infinite),
multiplier infinity means that nothing was released (epsilon is 0).

Sources: B. Balle and Y.-X. Wang, Improving the Gaussian mechanism for differential privacy, ICML 2018 (analytic
Gaussian); J. Dong, A. Roth and W. Su, Gaussian differential privacy, 2019 (composition). `renyi` has Renyi DP, and what
composes Gaussian noise with other mechanisms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.operations import OF_EPSILON, Curve

if TYPE_CHECKING:
    from numpy.typing import NDArray


_CLOSE = 2.0**-8
"""A sensitivity, in standard deviations, below which the two terms of a Gaussian's delta cancel."""
_BISECTIONS = 100
"""Halvings of a bracket: more than float64 can resolve, so that solutions are exact to the last bits."""


def gaussian_delta(epsilon: float, noise_multiplier: float) -> float:
    """Smallest delta for which one Gaussian release is (epsilon, delta)-DP.

    Balle & Wang 2018, Theorem 8: Phi(1/2s - eps s) - e^eps Phi(-1/2s - eps s) for multiplier s. It is evaluated through
    Mills ratios, which keeps its relative accuracy where the two terms nearly cancel, to about 1e-12 at any multiplier.

    Args:
        epsilon: privacy loss, >= 0.
        noise_multiplier: standard deviation over L2 sensitivity, >= 0.

    Returns:
        delta, in [0, 1].

    Raises:
        ValueError: epsilon or noise_multiplier out of range.
    """
    check_multiplier(noise_multiplier)
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon} must be >= 0")
    if math.isinf(noise_multiplier) or math.isinf(epsilon):
        return 1.0 if noise_multiplier == 0 else 0.0
    if noise_multiplier < 1e-150:  # 1 / noise_multiplier**2 would overflow
        return 1.0
    mean = 1 / noise_multiplier
    upper, lower = mean / 2 - epsilon * noise_multiplier, -mean / 2 - epsilon * noise_multiplier
    density = math.exp(-upper * upper / 2) / math.sqrt(2 * math.pi)
    # e^eps * phi(lower) equals phi(upper), so the subtrahend is phi(upper) * Phi(lower) / phi(lower).
    if mean < _CLOSE:  # Gauss' rule of two points for the integral of the Mills ratio's slope between both places
        middle, apart = epsilon * noise_multiplier, mean / math.sqrt(12)
        return density * mean * (_mills_slope(middle - apart) + _mills_slope(middle + apart)) / 2
    if upper > 0:
        return max(0.0, math.erfc(-upper / math.sqrt(2)) / 2 - density * _mills(-lower))
    return max(0.0, density * (_mills(-upper) - _mills(-lower)))


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Smallest epsilon for which one Gaussian release is (epsilon, delta)-DP; the inverse of `gaussian_delta`.

    Args:
        noise_multiplier: standard deviation over L2 sensitivity, >= 0; of several releases, `effective_multiplier`.
        delta: failure probability, 0 < delta < 1.

    Raises:
        ValueError: an argument out of range.
    """
    check_multiplier(noise_multiplier)
    check_delta(delta)
    if noise_multiplier < 1e-150:
        return math.inf
    if gaussian_delta(0.0, noise_multiplier) <= delta:
        return 0.0
    # Concentrated DP gives a bound above the solution, so the bracket needs no search.
    bound = (1 / noise_multiplier) ** 2 / 2 + math.sqrt(2 * math.log(1 / delta)) / noise_multiplier
    bound = 1.001 * bound + 1e-300
    return first_that_holds(lambda epsilon: gaussian_delta(epsilon, noise_multiplier) <= delta, 0.0, bound)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Smallest noise multiplier that makes one Gaussian release (epsilon, delta)-DP, for every epsilon > 0.

    For T equal releases that are to be (epsilon, delta)-DP together, multiply by sqrt(T).

    Args:
        epsilon: privacy loss, > 0; infinity gives 0.
        delta: failure probability, 0 < delta < 1.

    Raises:
        ValueError: an argument out of range.
    """
    check_delta(delta)
    if not epsilon > 0:
        raise ValueError(f"epsilon={epsilon} must be > 0; for no noise use epsilon=inf")
    if math.isinf(epsilon):
        return 0.0
    enough = 1.0
    while gaussian_delta(epsilon, enough) > delta:
        enough *= 2
    while enough > 1e-150 and gaussian_delta(epsilon, enough / 2) <= delta:
        enough /= 2
    return first_that_holds(lambda multiplier: gaussian_delta(epsilon, multiplier) <= delta, enough / 2, enough)


def epsilon_with_slack(epsilon_at: Callable[[float], float], delta: float, slack: float) -> float:
    """Epsilon at a delta of which a mechanism itself takes a part: delta = delta' + (1 + e^epsilon) slack.

    An approximate mechanism that is within total variation `slack` of one whose curve is known is (epsilon, delta' +
    (1 + e^epsilon) slack)-DP wherever that one is (epsilon, delta')-DP.

    Args:
        epsilon_at: epsilon of the mechanism whose curve is known, at a delta; falls as delta grows.
        delta: what is stated, 0 < delta < 1.
        slack: total variation over the whole run, >= 0.

    Returns:
        The least epsilon that holds at `delta`; infinity where the slack alone exceeds it.
    """
    if slack == 0:
        return epsilon_at(delta)
    if 2 * slack >= delta:
        return math.inf

    def holds(epsilon: float) -> bool:
        left = delta - (1 + math.exp(min(epsilon, 700.0))) * slack
        return left > 0 and epsilon_at(left) <= epsilon

    # Both terms move: a larger epsilon is easier to meet, and leaves less delta to meet it with.
    largest = math.log(delta / slack - 1)
    grid = np.linspace(0.0, largest, 200)[:-1]
    first = next((float(epsilon) for epsilon in grid if holds(float(epsilon))), None)
    if first is None:
        return math.inf
    return first_that_holds(holds, max(0.0, first - float(grid[1])), first) if first > 0 else 0.0


def effective_multiplier(multipliers: Iterable[float]) -> float:
    """The multiplier of the one Gaussian release that costs exactly as much as all of these together (no sampling).

    (sum of 1/s^2)^(-1/2), over rounds, layers or zones alike; adaptive composition is covered (Dong et al. 2019).
    No release at all gives infinity, a single noiseless one gives 0.
    """
    inverse = [math.inf if multiplier == 0 else 1 / multiplier for multiplier in multipliers]
    norm = math.hypot(*inverse)
    return math.inf if norm == 0 else 1 / norm


def _mills(x: float) -> float:
    """Phi(-x) / phi(x) for x >= 0, or a little less."""
    if x < 6:
        return math.sqrt(math.pi / 2) * math.exp(x * x / 2) * math.erfc(x / math.sqrt(2))
    return 1 / (x + _fraction(x))


def _mills_slope(x: float) -> float:
    """How fast that falls: 1 - x Phi(-x) / phi(x)."""
    return 1 - x * _mills(x) if x < 6 else (tail := _fraction(x)) / (x + tail)


def _fraction(x: float) -> float:
    """Laplace's continued fraction, of which 1 / (x + it) is the Mills ratio; from x = 6 on, 60 levels are exact to
    float64, and nothing underflows.
    """
    tail = 0.0
    for level in range(60, 0, -1):
        tail = level / (x + tail)
    return tail


def first_that_holds(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least x in [low, high] for which a condition that stays true once true holds; errs upwards."""
    for _ in range(_BISECTIONS):
        # The geometric mean finds small solutions in a wide bracket as fast as the arithmetic one finds large ones.
        middle = math.sqrt(low) * math.sqrt(high) if low > 0 and high > 4 * low else (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def check_multiplier(noise_multiplier: float) -> None:
    if not noise_multiplier >= 0:
        raise ValueError(f"noise_multiplier={noise_multiplier} must be >= 0")


def check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must lie between 0 and 1; choose it below 1 / number of clients")


ORDERS: NDArray[np.float64] = np.union1d(1 + np.logspace(-4, 6, 2001), [*range(2, 258), 2**9, 2**11, 2**13, 2**16])
"""Renyi orders, ascending, at which curves are kept."""
_CONVERTED: NDArray[np.float64] = np.log1p(-1 / ORDERS)
_WHOLE: NDArray[np.bool_] = (np.rint(ORDERS) == ORDERS) & (ORDERS >= 2)


def rdp_to_epsilon(order: float, rdp: float, delta: float) -> float:
    """Epsilon that Renyi DP of one order gives: rdp + log((a-1)/a) - (log delta + log a)/(a-1).

    Balle et al. 2020, Theorem 21; the formula of Opacus and of SelectiveShield's Lemma 2. May be negative for large
    noise, where 0 holds as well.
    """
    return rdp + math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)


def gaussian_rdp_epsilon(noise_multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian release by Renyi DP, at the best of all real orders: an upper bound on the exact value.

    For T equal releases pass multiplier / sqrt(T); the RDP of order a is then T a / (2 s^2) (SelectiveShield, Lemma 2).

    Raises:
        ValueError: an argument out of range.
    """
    check_multiplier(noise_multiplier)
    check_delta(delta)
    if noise_multiplier < 1e-150:
        return math.inf
    slope = (1 / noise_multiplier) ** 2 / 2
    # The derivative in the order a vanishes where slope * (a-1)^2 = -log(a * delta); the left side grows, the right
    # side falls, so there is one minimum, and it lies between 1 and 1/delta. Every order gives a valid epsilon, so an
    # order that float64 cannot tell from 1 may be replaced by a slightly larger one.
    most = 1 / max(delta, 1e-300)
    best = first_that_holds(lambda excess: slope * excess**2 + math.log1p(excess) >= -math.log(delta), 1e-6, most)
    return max(0.0, rdp_to_epsilon(1 + best, slope * (1 + best), delta))


def laplace_rdp(order: Any, noise_multiplier: float) -> Any:
    """Renyi DP of one Laplace release (Mironov 2017, Proposition 6), for one order > 1 or an array of them.

    It holds for vectors with a bounded L1 norm too: the overlap of two log-concave densities is log-concave in the
    shift between them (Prekopa), so that every divergence is largest where the whole norm lies in one coordinate.

    Args:
        order: Renyi order or orders, > 1.
        noise_multiplier: scale over L1 sensitivity, > 0.
    """
    a, loss = np.asarray(order, np.float64), 1 / noise_multiplier
    up = np.log(a / (2 * a - 1)) + (a - 1) * loss
    down = np.log((a - 1) / (2 * a - 1)) - a * loss
    x = np.minimum(a * loss, _SMALL)
    close = np.log1p((a * _beyond_linear(x - x / a) + (a - 1) * _beyond_linear(-x)) / (2 * a - 1))
    return np.where(a * loss < _SMALL, close, np.logaddexp(up, down)) / (a - 1)


def pure_rdp(order: Any, epsilon: float) -> Any:
    """The largest Renyi divergence of any (epsilon, 0)-DP mechanism: that of randomised response.

    Args:
        order: Renyi order or orders, > 1.
        epsilon: privacy loss, >= 0.
    """
    a = np.asarray(order, np.float64)
    stay, leave = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    x = np.minimum(a * epsilon, _SMALL) / 2
    close = np.log1p(2 * np.sinh(x) * np.sinh(x - x / a) / np.cosh(x / a))
    return np.where(
        a * epsilon < _SMALL, close, np.logaddexp(a * stay + (1 - a) * leave, a * leave + (1 - a) * stay)
    ) / (a - 1)


_SMALL = 2.0**-6
"""An order times a loss below which the logarithm of a moment is far below one, and needs another formula."""


def _beyond_linear(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """e^x - 1 - x for |x| up to `_SMALL`."""
    series = np.ones_like(x)
    for term in range(9, 2, -1):
        series = 1 + series * x / term
    return x * x / 2 * series


def composed_epsilon(
    gaussian: float,
    others: Iterable[tuple[str, float, int]],
    delta: float,
    curves: Mapping[str, Curve] | None = None,
    concentrated: bool = False,
) -> float:
    """Epsilon of Gaussian, Laplace and pure releases together: Renyi DP at the best order, or the plain sum if smaller.

    Args:
        gaussian: sum of 1 / noise_multiplier^2 of the Gaussian releases.
        others: (mechanism, noise_multiplier, count), the mechanism `laplace`, `pure`, or one of `curves`.
        delta: failure probability, 0 < delta < 1.
        curves: Renyi DP of further mechanisms, by name.
        concentrated: some of the releases that count as Gaussian have only the Renyi DP of these, of whole orders.

    Raises:
        ValueError: an unknown mechanism, or an argument out of range.
    """
    check_delta(delta)
    others, known = [*others], {*OF_EPSILON, *(curves or ())}
    if unknown := [mechanism for mechanism, _, _ in others if mechanism not in known]:
        raise ValueError(f"mechanism={unknown[0]!r} must be {' or '.join(OF_EPSILON)}, or have a curve")
    if math.isinf(gaussian) or any(multiplier < 1e-150 for _, multiplier, _ in others):
        return math.inf
    by_order = renyi_epsilon(renyi(gaussian, others, curves), delta, concentrated)
    # A curve is of Renyi DP alone: there is no epsilon without delta to add up.
    if concentrated or any(mechanism in (curves or ()) for mechanism, _, _ in others):
        return by_order
    exact = gaussian_epsilon(math.inf if gaussian == 0 else 1 / math.sqrt(gaussian), delta)
    return min(by_order, exact + sum(count / multiplier for _, multiplier, count in others))


def renyi(
    gaussian: float, others: Iterable[tuple[str, float, int]], curves: Mapping[str, Curve] | None = None
) -> NDArray[np.float64]:
    """Renyi DP of releases together, at each of `ORDERS`. Arguments as in `composed_epsilon`."""
    each = (n * (curves[m].rdp(ORDERS, s) if curves and m in curves else _known(m, s)) for m, s, n in others)
    return np.asarray(sum(each, ORDERS * gaussian / 2), np.float64)


def renyi_epsilon(rdp: NDArray[np.float64], delta: float, whole: bool = False) -> float:
    """Epsilon of Renyi DP at each of `ORDERS`, by the best order, `whole`: of the whole ones; see `rdp_to_epsilon`."""
    by_order = (rdp + _CONVERTED - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1))[_WHOLE if whole else slice(None)]
    return math.inf if np.isnan(by_order).all() else max(0.0, float(np.nanmin(by_order)))


@functools.lru_cache(maxsize=4096)  # a run asks for the same ones every round
def _known(mechanism: str, multiplier: float) -> NDArray[np.float64]:
    """Renyi DP of one Laplace or pure release at each of `ORDERS`."""
    curve = laplace_rdp(ORDERS, multiplier) if mechanism == "laplace" else pure_rdp(ORDERS, 1 / multiplier)
    curve.setflags(write=False)
    return np.asarray(curve, np.float64)

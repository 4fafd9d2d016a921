"""Renyi DP of Gaussian, Laplace and pure releases, and what it makes of all of them together.

Sources: B. Balle et al., Hypothesis testing interpretations and Renyi differential privacy, AISTATS 2020 (RDP to
epsilon); I. Mironov, Renyi differential privacy, CSF 2017 (Laplace). Multipliers are those of `accounting`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.operations import OF_EPSILON
from fedplug.privacy.accounting import check_delta, check_multiplier, first_that_holds, gaussian_epsilon

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.operations import Curve

_ORDERS: NDArray[np.float64] = 1 + np.logspace(-4, 6, 2001)
_CONVERTED: NDArray[np.float64] = np.log1p(-1 / _ORDERS)


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
    return np.logaddexp(up, down) / (a - 1)


def pure_rdp(order: Any, epsilon: float) -> Any:
    """The largest Renyi divergence of any (epsilon, 0)-DP mechanism: that of randomised response.

    Args:
        order: Renyi order or orders, > 1.
        epsilon: privacy loss, >= 0.
    """
    a = np.asarray(order, np.float64)
    stay, leave = -np.logaddexp(0, -epsilon), -np.logaddexp(0, epsilon)
    return np.logaddexp(a * stay + (1 - a) * leave, a * leave + (1 - a) * stay) / (a - 1)


def composed_epsilon(
    gaussian: float,
    others: Iterable[tuple[str, float, int]],
    delta: float,
    curves: Mapping[str, Curve] | None = None,
) -> float:
    """Epsilon of Gaussian, Laplace and pure releases together: Renyi DP at the best order, or the plain sum if smaller.

    Args:
        gaussian: sum of 1 / noise_multiplier^2 of the Gaussian releases.
        others: (mechanism, noise_multiplier, count), the mechanism `laplace`, `pure`, or one of `curves`.
        delta: failure probability, 0 < delta < 1.
        curves: Renyi DP of further mechanisms, by name.

    Raises:
        ValueError: an unknown mechanism, or an argument out of range.
    """
    check_delta(delta)
    rdp, plain = _ORDERS * gaussian / 2, 0.0
    for mechanism, multiplier, count in others:
        if mechanism not in (*OF_EPSILON, *(curves or ())):
            raise ValueError(f"mechanism={mechanism!r} must be {' or '.join(OF_EPSILON)}, or have a curve")
        if multiplier < 1e-150 or math.isinf(gaussian):
            return math.inf
        if curves and mechanism in curves:
            # A curve is of Renyi DP alone: there is no epsilon without delta to add up.
            one, most = np.asarray(curves[mechanism].rdp(_ORDERS, multiplier), np.float64), math.inf
        else:
            one, most = _known(mechanism, multiplier), 1 / multiplier
        rdp, plain = rdp + count * one, plain + count * most
    if math.isinf(gaussian):
        return math.inf
    by_order = rdp + _CONVERTED - (math.log(delta) + np.log(_ORDERS)) / (_ORDERS - 1)
    if np.isnan(by_order).all():
        return math.inf
    exact = gaussian_epsilon(math.inf if gaussian == 0 else 1 / math.sqrt(gaussian), delta)
    return max(0.0, min(float(np.nanmin(by_order)), plain + exact))


@functools.lru_cache(maxsize=4096)  # a run asks for the same ones every round
def _known(mechanism: str, multiplier: float) -> NDArray[np.float64]:
    """Renyi DP of one Laplace or pure release at each of `_ORDERS`."""
    curve = laplace_rdp(_ORDERS, multiplier) if mechanism == "laplace" else pure_rdp(_ORDERS, 1 / multiplier)
    curve.setflags(write=False)
    return np.asarray(curve, np.float64)

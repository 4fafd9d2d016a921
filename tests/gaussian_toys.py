"""Epsilon of Gaussian noise by its definition, apart from the ledger's own."""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.optimize import brentq
from scipy.stats import norm


def gaussian(multiplier: float, delta: float) -> float:
    """Epsilon of one Gaussian release by Balle and Wang's Theorem 8, with scipy."""
    def off(epsilon: float) -> float:
        mean, shift = 1 / (2 * multiplier), epsilon * multiplier
        return float(norm.cdf(mean - shift) - math.exp(epsilon) * norm.cdf(-mean - shift) - delta)

    return float(brentq(off, 0, 100))


def gaussian_together(multipliers: Iterable[float], delta: float) -> float:
    """Epsilon of several releases together, whose noise is one of a multiplier that follows from theirs."""
    return gaussian(1 / math.sqrt(sum(1 / each**2 for each in multipliers)), delta)

"""Epsilon of Gaussian, Laplace and pure releases: privacy loss distributions, with Renyi DP for comparison."""

from __future__ import annotations

import collections
import functools
import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug_ledger.accounting import gaussian_epsilon, laplace_rdp, pure_rdp

from fedplug_std import loss_distributions as losses

if TYPE_CHECKING:
    from numpy.typing import NDArray

Release = tuple[str, float, float]
"""(mechanism, noise multiplier, Poisson rate)"""

_ORDERS = (
    [1 + k / 10 for k in range(1, 100)] + list(range(11, 64)) + list(range(64, 256, 8)) + list(range(256, 2049, 128))
)
"""Renyi orders: those of Opacus, and larger ones without which small epsilons come out too large (0.111 for 0.051 at
multiplier 200, 10 rounds, delta 1e-5)."""
_MECHANISMS = ("gaussian", "laplace", "pure")
_NOTHING = 1e-150
"""Multipliers up to here count as no noise."""
_ROUNDING = 2.0**-40
"""By how much Opacus' logarithm of a moment of a sampled Gaussian may be off, relative to one and to itself."""


class Pld(fedplug.Accountant):
    """Account for Gaussian, Laplace and pure releases with privacy loss distributions, and with RDP for comparison.

    The PLD (Koskela et al. 2020; Doroshenko et al. 2022) is discretised pessimistically, and what rounding may do is
    added to delta, so epsilon is an upper bound at every delta. However many releases there are, it is at most 0.1%
    above the true one, as long as delta is at least 1e-9 and rates are at least 1e-5; beyond, it may be further above,
    and is never above RDP. RDP is the sampled Gaussian mechanism of Mironov et al. 2019 as in Opacus, and the closed
    forms of `fedplug_ledger.accounting`.
    """

    def compose(self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str) -> dict[str, float]:
        """Epsilon of releases of several mechanisms together.

        Args:
            releases: (mechanism, noise_multiplier, sampling_rate, count). Multipliers are those of zero-out, whichever
                the adjacency: of `gaussian` the standard deviation over the L2 sensitivity, of `laplace` the scale over
                the L1 sensitivity, of `pure` 1 / epsilon. Poisson rates in [0, 1]; `count` equal releases, >= 1, are
                composed at once, so that long runs cost no more than short ones.
            delta: failure probability, 0 < delta < 1.
            adjacency: `zero_out` or `replace_one`, under which a pure mechanism has twice its epsilon.

        Returns:
            `{"pld": ..., "rdp": ...}`; without `rdp` if no closed form is known: sampled Laplace releases, and
            sampled Gaussian ones under replace-one.

        Raises:
            ValueError: an argument out of range.
        """
        if adjacency not in ("zero_out", "replace_one"):
            raise ValueError(f"adjacency={adjacency!r} must be zero_out or replace_one")
        counts: collections.Counter[Release] = collections.Counter()
        for mechanism, multiplier, rate, count in releases:
            if mechanism not in _MECHANISMS:
                raise ValueError(f"mechanism={mechanism!r} must be one of {', '.join(_MECHANISMS)}")
            if not multiplier >= 0 or not 0 <= rate <= 1:
                raise ValueError(f"multiplier={multiplier} must be >= 0 and sampling rate={rate} in [0, 1]")
            if not count >= 1:
                raise ValueError(f"count={count} must be at least 1")
            if rate > 0 and math.isfinite(multiplier):
                counts[_simplest(mechanism, multiplier, rate, adjacency)] += count
        if not counts:
            return {"pld": 0.0, "rdp": 0.0}
        if any(multiplier <= _NOTHING for _, multiplier, _ in counts):
            return {"pld": math.inf, "rdp": math.inf}
        pld, rdp = _pld(counts, delta, adjacency), _rdp(counts, delta, adjacency)
        return {"pld": pld} if rdp is None else {"pld": min(pld, rdp), "rdp": rdp}


def _pld(counts: collections.Counter[Release], delta: float, adjacency: str) -> float:
    """Epsilon by the composed distribution, or the sum of the pure releases' largest costs if that is less."""
    gaussian = {release: count for release, count in counts.items() if release[0] == "gaussian"}
    pure = {release: count for release, count in counts.items() if release not in gaussian}
    together = _composed(counts, delta, adjacency)
    return min(together, _composed(gaussian, delta, adjacency) + _sum_of_losses(pure)) if pure else together


def _composed(counts: Mapping[Release, int], delta: float, adjacency: str) -> float:
    kinds: list[tuple[losses.Release, int]] = []
    precision = 0.0  # Gaussian releases without sampling combine to a single one
    for (mechanism, multiplier, rate), count in counts.items():
        if mechanism == "gaussian" and rate == 1:
            precision += count / multiplier / multiplier
        elif mechanism == "gaussian":
            kinds.append((losses.Gaussian(multiplier, rate, adjacency == "replace_one"), count))
        elif mechanism == "laplace":
            kinds.append((losses.Laplace(multiplier, rate), count))
        else:
            kinds.append((losses.Pure(1 / multiplier), count))
    if precision:
        multiplier = 1 / math.sqrt(precision) / (2 if adjacency == "replace_one" else 1)
        if not kinds:
            return gaussian_epsilon(multiplier, delta)
        kinds.append((losses.Gaussian(multiplier), 1))
    return losses.epsilon_of(kinds, delta) if kinds else 0.0


def _simplest(mechanism: str, multiplier: float, rate: float, adjacency: str) -> Release:
    """The release with its adjacency and sampling put into the multiplier, if there is a closed form.

    Under replace-one, Laplace and pure releases have half their multiplier. Sampling with rate q turns the epsilon of a
    pure mechanism into log(1 + q (e^epsilon - 1)) under zero-out (Balle et al. 2018, Theorem 8), and twice that under
    replace-one, which is two zero-outs. Sampled Laplace releases have no known pair of distributions under replace-one.
    Sampling never increases the loss, so such a release counts without it. Gaussian releases stay as they are.
    """
    doubled = adjacency == "replace_one" and mechanism != "gaussian"
    if mechanism == "pure" and multiplier > _NOTHING and rate < 1:
        # log(1 + q (e^x - 1)) = x + log1p((1 - q) (e^-x - 1)), which does not overflow
        loss = 1 / multiplier + math.log1p((1 - rate) * math.expm1(-1 / multiplier))
        multiplier, rate = (1 / loss if loss > 0 else math.inf), 1.0
    if doubled:
        multiplier, rate = multiplier / 2, 1.0
    return mechanism, multiplier, rate


def _sum_of_losses(counts: Mapping[Release, int]) -> float:
    """Epsilon of Laplace and pure releases by plain composition; sampled ones count as not sampled."""
    return math.fsum(count / multiplier for (_, multiplier, _), count in counts.items())


def _rdp(counts: collections.Counter[Release], delta: float, adjacency: str) -> float | None:
    """Renyi accounting, Gaussian releases by Opacus, at orders that also suit small epsilons; None if none is known.

    Opacus knows sampling under zero-out only (its add-remove relation).
    """
    from opacus.accountants.analysis import rdp as opacus_rdp

    orders = np.array(_ORDERS, np.float64)
    total: NDArray[np.float64] = np.zeros(len(orders))
    for (mechanism, multiplier, rate), count in counts.items():
        if rate < 1 and (mechanism == "laplace" or adjacency == "replace_one"):
            return None
        if mechanism == "gaussian":
            # RDP knows multipliers only and leaves the doubled sensitivity to its caller; PLD doubles it itself.
            halved = multiplier if adjacency == "zero_out" else multiplier / 2
            total += count * _rdp_of_one(halved, rate)
        else:
            one = laplace_rdp(orders, multiplier) if mechanism == "laplace" else pure_rdp(orders, 1 / multiplier)
            total += count * one
    with warnings.catch_warnings():
        # Opacus warns when the best order is the first or the last; every order gives a valid bound all the same.
        warnings.simplefilter("ignore", UserWarning)
        epsilon, _ = opacus_rdp.get_privacy_spent(orders=_ORDERS, rdp=total, delta=delta)
    return max(0.0, float(epsilon))


@functools.lru_cache(maxsize=1024)
def _rdp_of_one(multiplier: float, rate: float) -> NDArray[np.float64]:
    """Renyi DP of one sampled Gaussian release at each of `_ORDERS`, rounded up.

    Opacus adds up to 2049 logarithms of moments, and ends a series where its terms are below e^-30.
    """
    from opacus.accountants.analysis import rdp as opacus_rdp

    found = opacus_rdp.compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=_ORDERS)
    found, excess = np.asarray(found, np.float64), np.array(_ORDERS) - 1
    return found if rate == 1 else found + _ROUNDING * (1 / excess + found)

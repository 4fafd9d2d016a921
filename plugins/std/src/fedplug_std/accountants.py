"""Epsilon of Gaussian, Laplace and pure releases: privacy loss distributions, with Renyi DP beside them."""

from __future__ import annotations

import collections
import functools
import math
import warnings
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Field
from fedplug.privacy.renyi import laplace_rdp, pure_rdp

from fedplug_std.loss_distributions import gaussian, variance, width

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
_LARGEST = 500.0
"""Largest loss of one Laplace or pure release that goes into a distribution: dp_accounting loses itself in exp(709)."""
_POINTS = 1e6
"""About how many points the grid of a composed distribution may have where Laplace and pure releases shape it."""
_POINTS_OF_BELLS = 2**14
"""The same of Gaussian releases. Their error falls with the square of the grid's width, so that this many leave it
below 0.1% of epsilon; a round of a long run then costs no more than one of a short run."""


class Pld(fedplug.Accountant):
    """Account for Gaussian, Laplace and pure releases with privacy loss distributions, and with RDP beside them.

    The PLD of dp_accounting (Koskela et al. 2020; Doroshenko et al. 2022) is discretised pessimistically, so epsilon is
    an upper bound. RDP is the sampled Gaussian mechanism of Mironov et al. 2019 as Opacus has it, and the closed forms
    of `fedplug.privacy.renyi`.
    """

    class Options(fedplug.Options):
        """Options of `std.pld`."""

        interval: float = Field(
            1e-3, ge=1e-6, le=1e-2, description="width of the grid of privacy losses; smaller is tighter and slower"
        )

    name: str

    def __init__(self, options: Options) -> None:
        self.options: Pld.Options = options

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
            `{"pld": ..., "rdp": ...}`; without `rdp` where no closed form is known: sampled Laplace releases, and
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
        found = {"pld": self._pld(counts, delta, adjacency)}
        rdp = _rdp(counts, delta, adjacency)
        return found if rdp is None else {**found, "rdp": rdp}

    def _pld(self, counts: collections.Counter[Release], delta: float, adjacency: str) -> float:
        """Epsilon by the composed distribution, or by adding up what pure releases cost at most, if that is less."""
        pure = {release: count for release, count in counts.items() if release[0] != "gaussian"}
        # Costlier ones go on top by plain composition; there the two hardly differ.
        large = {release: count for release, count in pure.items() if 1 / release[1] > _LARGEST}
        gaussian = collections.Counter({release: n for release, n in counts.items() if release not in pure})
        rest = collections.Counter({release: n for release, n in counts.items() if release not in large})
        bounds = [self._composed(rest, delta, adjacency) + _sum_of_losses(large)]
        if pure:
            bounds.append(self._composed(gaussian, delta, adjacency) + _sum_of_losses(pure))
        return min(bounds)

    def _composed(self, counts: collections.Counter[Release], delta: float, adjacency: str) -> float:

        if not counts:
            return 0.0
        losses = _sum_of_losses({release: count for release, count in counts.items() if release[0] != "gaussian"})
        interval = max(self.options.interval, losses / _POINTS)
        if losses == 0:
            interval *= self._widening(counts, adjacency)
        return float(_folded(tuple(counts.items()), adjacency, interval).get_epsilon_for_delta(delta))

    def _widening(self, counts: collections.Counter[Release], adjacency: str) -> int:
        """By how much the grid of Gaussian releases may be wider than the options say; a power of two."""
        sensitivity = 1 if adjacency == "zero_out" else 2
        variances = math.fsum(count * variance(multiplier, rate) for (_, multiplier, rate), count in counts.items())
        points = sensitivity * width(variances) / self.options.interval
        return 1 << max(0, math.ceil(math.log2(points / _POINTS_OF_BELLS)))


_BEFORE: dict[tuple[str, float], tuple[tuple[tuple[Release, int], ...], Any]] = {}
"""Releases that were composed last on a grid, and their distribution; a few are kept."""


def _folded(releases: tuple[tuple[Release, int], ...], adjacency: str, interval: float) -> Any:
    """All releases composed, in order. All but the last kind are remembered: noise that changes with every round adds
    one kind a round.
    """
    known, total = _BEFORE.pop((adjacency, interval), ((), None))
    if releases[: len(known)] != known or len(known) >= len(releases):
        known, total = (), None
    for release, count in releases[len(known) :]:
        if (known := releases[: len(known) + 1]) == releases:
            while len(_BEFORE) >= 8:
                del _BEFORE[next(iter(_BEFORE))]
            _BEFORE[adjacency, interval] = releases[:-1], total
        one = _distribution(release, count, adjacency, interval)
        total = one if total is None else total.compose(one)
    return total


def _simplest(mechanism: str, multiplier: float, rate: float, adjacency: str) -> Release:
    """The release with what its adjacency and sampling do put into the multiplier, where that is a closed form.

    Under replace-one, Laplace and pure releases have half their multiplier. Sampling with rate q turns the epsilon of a
    pure mechanism into log(1 + q (e^epsilon - 1)) under zero-out (Balle et al. 2018, Theorem 8), and twice that under
    replace-one, which is two zero-outs. What sampling does to a Laplace release under replace-one, dp_accounting does
    not know; it does no harm, so the release counts without it. Gaussian releases stay as they are.
    """
    doubled = adjacency == "replace_one" and mechanism != "gaussian"
    if mechanism == "pure" and multiplier > _NOTHING and rate < 1:
        # log(1 + q (e^x - 1)) = x + log1p((1 - q) (e^-x - 1)), which does not overflow
        loss = 1 / multiplier + math.log1p((1 - rate) * math.expm1(-1 / multiplier))
        multiplier, rate = (1 / loss if loss > 0 else math.inf), 1.0
    if doubled:
        multiplier, rate = multiplier / 2, 1.0
    return mechanism, multiplier, rate


def _distribution(release: Release, count: int, adjacency: str, interval: float) -> Any:
    """The privacy loss distribution of `count` equal releases."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    mechanism, multiplier, rate = release
    if mechanism == "pure":
        parameters = common.DifferentialPrivacyParameters(1 / multiplier, 0)
        return pld.from_privacy_parameters(parameters, value_discretization_interval=interval).self_compose(count)
    if mechanism == "laplace":
        # Its sensitivity is in the multiplier. For vectors it is worst to have the whole L1 norm in one coordinate.
        one = pld.from_laplace_mechanism(multiplier, value_discretization_interval=interval, sampling_prob=rate)
        return one.self_compose(count)
    # Multipliers are passed as they are: under REPLACE_ONE dp_accounting doubles the sensitivity itself.
    relation = "REPLACE_SPECIAL" if adjacency == "zero_out" else "REPLACE_ONE"
    if rate == 1:
        return gaussian(multiplier / math.sqrt(count), 1.0, relation, interval)
    return gaussian(multiplier, rate, relation, interval).self_compose(count)


def _sum_of_losses(counts: dict[Release, int]) -> float:
    """Epsilon of Laplace and pure releases by plain composition; sampled ones count as not sampled."""
    return math.fsum(count / multiplier for (_, multiplier, _), count in counts.items())


def _rdp(counts: collections.Counter[Release], delta: float, adjacency: str) -> float | None:
    """Renyi accounting, Gaussian releases by Opacus, at orders that suit small epsilons too; None where none is known.

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
    """Renyi DP of one sampled Gaussian release at each of `_ORDERS`."""
    from opacus.accountants.analysis import rdp as opacus_rdp

    return np.asarray(opacus_rdp.compute_rdp(q=rate, noise_multiplier=multiplier, steps=1, orders=_ORDERS), np.float64)

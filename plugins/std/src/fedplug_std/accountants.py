"""Epsilon of Gaussian releases of sampled clients (q < 1): privacy loss distributions, with Renyi DP beside it."""

from __future__ import annotations

import collections
import math
import warnings

import fedplug
from fedplug import Field
from fedplug.accounting import replace_one_multiplier

_ORDERS = (
    [1 + k / 10 for k in range(1, 100)] + list(range(11, 64)) + list(range(64, 256, 8)) + list(range(256, 2049, 128))
)
"""Renyi orders: those of Opacus, and larger ones without which small epsilons come out too large (0.111 for 0.051 at
multiplier 200, 10 rounds, delta 1e-5)."""


class Pld:
    """Account for Poisson-sampled Gaussian releases with privacy loss distributions, and with Opacus' RDP beside it.

    The PLD of dp_accounting (Koskela et al. 2020; Doroshenko et al. 2022) is discretised pessimistically, so epsilon is
    an upper bound. RDP is the sampled Gaussian mechanism of Mironov et al. 2019 as Opacus has it.
    """

    class Options(fedplug.Options):
        """Options of `std.pld`."""

        interval: float = Field(
            1e-3, ge=1e-6, le=1e-2, description="width of the grid of privacy losses; smaller is tighter and slower"
        )

    name: str

    def __init__(self, options: Options) -> None:
        self.options: Pld.Options = options

    def epsilon(self, releases: list[tuple[float, float]], delta: float, adjacency: str) -> dict[str, float]:
        """Epsilon of a list of releases, one (noise_multiplier, sampling_rate) a round.

        Args:
            releases: noise multipliers relative to the clipping norm, whichever the adjacency, and Poisson rates q in
                [0, 1]. Equal pairs are composed at once, so long runs cost no more than short ones.
            delta: failure probability, 0 < delta < 1.
            adjacency: `zero_out` or `replace_one`.

        Returns:
            `{"pld": ..., "rdp": ...}`; without `rdp` for sampled releases under replace-one,
            which Opacus does not know.

        Raises:
            ValueError: an argument out of range.
        """
        if adjacency not in ("zero_out", "replace_one"):
            raise ValueError(f"adjacency={adjacency!r} must be zero_out or replace_one")
        for multiplier, rate in releases:
            if not multiplier >= 0 or not 0 <= rate <= 1:
                raise ValueError(f"multiplier={multiplier} must be >= 0 and sampling rate={rate} in [0, 1]")
        counts = collections.Counter((m, q) for m, q in releases if q > 0 and math.isfinite(m))
        if not counts:
            return {"pld": 0.0, "rdp": 0.0}
        if any(multiplier == 0 for multiplier, _ in counts):
            return {"pld": math.inf, "rdp": math.inf}
        found = {"pld": self._pld(counts, delta, adjacency)}
        if adjacency == "zero_out":
            found["rdp"] = _rdp(counts, delta)
        elif all(rate == 1 for _, rate in counts):
            # RDP knows multipliers only and leaves the doubled sensitivity to its caller; PLD doubles it itself.
            halved = collections.Counter({(replace_one_multiplier(m), 1.0): count for (m, _), count in counts.items()})
            found["rdp"] = _rdp(halved, delta)
        return found

    def _pld(self, counts: collections.Counter[tuple[float, float]], delta: float, adjacency: str) -> float:
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        # dp_accounting doubles the sensitivity itself under REPLACE_ONE, so multipliers are passed as they are.
        # REPLACE_SPECIAL is zero-out: a contribution is replaced by the zero vector.
        relation = dp_accounting.NeighboringRelation
        neighbours = relation.REPLACE_SPECIAL if adjacency == "zero_out" else relation.REPLACE_ONE
        accountant = PLDAccountant(neighbours, self.options.interval)
        for (multiplier, rate), count in counts.items():
            event = dp_accounting.GaussianDpEvent(multiplier)
            accountant.compose(event if rate == 1 else dp_accounting.PoissonSampledDpEvent(rate, event), count)
        return float(accountant.get_epsilon(delta))


def _rdp(counts: collections.Counter[tuple[float, float]], delta: float) -> float:
    """Opacus' Renyi accountant under zero-out (its add-remove relation), at orders that suit small epsilons too."""
    from opacus.accountants.analysis import rdp as opacus_rdp

    total = sum(
        opacus_rdp.compute_rdp(q=rate, noise_multiplier=multiplier, steps=count, orders=_ORDERS)
        for (multiplier, rate), count in counts.items()
    )
    with warnings.catch_warnings():
        # Opacus warns when the best order is the first or the last; every order gives a valid bound all the same.
        warnings.simplefilter("ignore", UserWarning)
        epsilon, _ = opacus_rdp.get_privacy_spent(orders=_ORDERS, rdp=total, delta=delta)
    return max(0.0, float(epsilon))

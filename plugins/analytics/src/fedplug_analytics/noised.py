"""Sums of a client's records with Gaussian noise of the client's own, which protects single records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import fedplug
from fedplug import Account, Field
from fedplug.api.grids import finest
from fedplug_std.options import Calibrated

from fedplug_analytics.local import LocalSums
from fedplug_analytics.statistics import own_records, statistics_of

if TYPE_CHECKING:
    import numpy as np
    from fedplug import Client, Facts
    from numpy.typing import NDArray

_ROUNDING = 1 + 2.0**-20
"""Sums are added in float64, whose rounding moves them by less than this says, for up to 2^32 records."""


class NoisedSums(NamedTuple):
    """The sums of one client with Gaussian noise.

    Attributes:
        noise_multiplier: standard deviation over the L2 norm of what one record adds.
        records: of the client.
    """

    noise_multiplier: float
    records: int


class Noised(LocalSums, fedplug.AccountKeeper):
    """Take a client's sums, and add Gaussian noise at the client that protects each single record.

    The unit is one record of one client, added or removed: it moves the sums of `analytics.statistics` by at most the
    norm that follows from their public bounds, which is the sensitivity. `epsilon` and `delta` give the noise by the
    analytic Gaussian mechanism (Balle & Wang 2018). Every party that sees the client's sums sees them with the noise. A
    sum over K clients has K times its variance. The number of a client's records is public.
    """

    class Options(Calibrated):
        """The size and the source of the noise."""

        epsilon: float | None = Field(
            None, gt=0, allow_inf_nan=False, description="privacy loss of a record; with delta"
        )
        noise_multiplier: float | None = Field(
            None, gt=0, allow_inf_nan=False,
            description="standard deviation over the norm of one record; instead of epsilon and delta",
        )  # fmt: skip
        source: Literal["secure", "reproducible"] = Field(
            "secure", description="secure: AES-256 keyed by the system; reproducible: the recipe's seed, no protection"
        )

    account = Account(
        level="record",
        release=NoisedSums,
        unit="one record of a client, added or removed",
        trust="local: the noise is added at the client",
        covers="the sums of every client, for every party; not its number of records, ballots or metrics",
    )

    unsaid = ""

    def multiplier(self, facts: Facts) -> float:
        """Standard deviation of a round's noise over the norm of one record."""
        options = self.options
        if options.noise_multiplier is not None:
            return float(options.noise_multiplier)
        from fedplug import gaussian_noise_multiplier

        # Validation leaves neither None here.
        total = gaussian_noise_multiplier(options.epsilon or math.nan, options.delta or math.nan)
        return math.sqrt(facts.rounds) * total

    def std(self, facts: Facts) -> float:
        """Standard deviation of a client's noise on each sum."""
        return self.multiplier(facts) * statistics_of(facts).record_norm(2) * _ROUNDING

    def made(self, sums: NDArray[np.float64], client: Client, facts: Facts) -> NDArray[np.floating]:
        """The sums with noise."""
        # Here, as below: checks of recipes do without numpy.
        from fedplug.mechanisms.noise import add_noise

        std = self.std(facts)
        grid = finest(statistics_of(facts).record_norm(2) * _count(client), std)
        values: Any = sums  # in float64 until the noise is on them: rounding before it would add to the sensitivity
        return add_noise(values, std, grid, self.options.source, client.rng(self, "noise"))

    def round_release(self, client: Client, facts: Facts) -> NoisedSums:
        """The noise, and the number of records."""
        return NoisedSums(self.multiplier(facts), _count(client))

    def release_problem(self, release: NoisedSums) -> str:
        """The noise must be that of the recipe, if it gives one."""
        given = self.options.noise_multiplier
        if given is not None and release.noise_multiplier != given:
            return f"noise_multiplier={release.noise_multiplier:g} must be {given:g}, as the recipe says"
        return ""

    def units(self, release: NoisedSums) -> float:
        """The number of records."""
        return float(max(1, release.records))

    def epsilon_of(self, releases: Sequence[NoisedSums], delta: float) -> dict[str, float]:
        """Epsilon of one record, exact for Gaussian noise; infinite where the noise follows from the seed."""
        from fedplug_ledger.accounting import effective_multiplier, gaussian_epsilon

        if self.options.source == "reproducible" and releases:
            return {"epsilon_gaussian": math.inf}
        total = effective_multiplier(release.noise_multiplier for release in releases)
        return {"epsilon_gaussian": gaussian_epsilon(total, delta) if math.isfinite(total) else 0.0}

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        return f"sums with Gaussian noise, record level: {options.amount}, {options.source} source"


def _count(client: Client) -> int:
    return max(1, sum(map(len, own_records(client.data))))

"""Noise that is shared among many clients: enough in their sum, but too little in any upload.

`DistributedGaussian` rounds Gaussian noise to a much finer grid; `DistributedSkellam` and
`DistributedDiscreteGaussian` add whole numbers on a coarse one, so that a sum takes few bits.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, ClassVar, Literal

import fedplug
from fedplug import Facts, Field, Known, Noise, Operations, Round
from fedplug.api import norms
from fedplug.api.errors import ProtectionError
from fedplug.api.operations import IntegerNoise
from fedplug_ledger.integers import concentrated_multiplier, std_of_sum

from fedplug_std.gaussian import CLIP_FIRST, NoiseOptions, local_noise
from fedplug_std.options import PowerOfTwo, Source
from fedplug_std.schedules import geometric_schedule

if TYPE_CHECKING:
    from fedplug import Recipe


class SharedOptions(NoiseOptions):
    """The size of the noise, and the number of clients that add it."""

    colluders: int = Field(
        0, ge=0, description="number of clients that may collude, also with the server: they know their noise, so it "
        "does not count",
    )  # fmt: skip
    shared_by: int | None = Field(
        None, ge=1,
        description="number of clients whose noise together gives epsilon; default: those of the smallest sum "
        "(min_clients) without the colluders, and without one at least, since a client knows its own noise",
    )  # fmt: skip

    def sharing(self, min_clients: int) -> int:
        """The number of clients that share the noise."""
        return self.shared_by or max(1, min_clients - max(1, self.colluders))

    def problems(self, recipe: Recipe) -> list[str]:
        """Problems with this number of clients sharing the noise."""
        counted = recipe.min_clients - self.colluders
        if self.shared_by is None and counted < 2:
            return [
                f"min_clients: {recipe.min_clients} leaves no client whose "
                "noise counts; raise min_clients, or lower colluders"
            ]
        if self.shared_by is not None and self.shared_by > counted:
            return [
                f"shared_by={self.shared_by} exceeds the number of clients in the smallest sum without colluders, "
                f"{counted}; raise min_clients, or lower shared_by"
            ]
        return []

    def share(self, multiplier: float, sharing: int) -> str:
        """The share of one client, for the ledger."""
        return f"the share of one client; {sharing} together have noise multiplier {multiplier:.4g}"

    def among(self) -> str:
        """Who shares it."""
        return "the clients of a sum" if self.shared_by is None else f"{self.shared_by} clients"


class DistributedGaussian(fedplug.Protector):
    """Add a share of Gaussian noise at each client, so that the sum of a round has the noise for epsilon.

    Each client adds noise of std norm * sigma / sqrt(shared_by), so that the noise of `shared_by` clients together has
    the multiplier sigma (Dwork et al., EUROCRYPT 2006, with Gaussian shares). Only the sum is private to that degree: a
    later link must seal the zone so that nobody opens an upload, as `secagg.plus`, `baselines.lwe` and `std.bfv` do.
    Values and noise are on a public grid. If the sum is in whole numbers, as there, it is a sum of those.
    """

    class Options(SharedOptions):
        """Options of `std.distributed_gaussian`."""

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """One client's share of the noise.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, or they are encrypted.
            ProtectionError: no such schedule exists.
        """
        options, sharing = self.options, self.options.sharing(facts.min_clients)
        note = options.share(options.multiplier(facts.turn(known.zone), facts.times(known.zone)), sharing)
        root = 1 / math.sqrt(sharing)
        return (local_noise(options, known, facts, root, "distributed", note=note, colluders=options.colluders),)

    def check(self, recipe: Recipe) -> list[str]:
        """Problems with this number of clients sharing the noise."""
        return self.options.problems(recipe)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"Gaussian noise shared out among {self.options.among()}, {self.options.words()}"


class StepsOptions(SharedOptions):
    """The same for noise in whole steps of a grid."""

    source: Source = "secure"
    grid: PowerOfTwo = Field(
        None, gt=0, lt=math.inf,
        description="the step, a power of two; default: the coarsest that costs a percent or two of accuracy",
    )  # fmt: skip
    beta: float = Field(
        math.exp(-0.5), gt=0, lt=1,
        description="chance that a rounding is drawn again; smaller values give a larger norm for the noise",
    )  # fmt: skip

    def multiplier(self, round: int, rounds: int) -> float:
        """The noise multiplier of a round's sum, 0-based: of Gaussian noise with as much Renyi DP.

        Raises:
            ProtectionError: no schedule of that decay and length exists in float64.
        """
        if self.epsilon is None or self.delta is None:
            return super().multiplier(round, rounds)
        try:
            total = concentrated_multiplier(self.epsilon, self.delta)
            if self.decay == 1:
                return math.sqrt(rounds) * total
            return geometric_schedule(total, rounds, self.decay)[0] * self.decay**round
        except ValueError as error:
            raise ProtectionError(str(error)) from error


class _InSteps(fedplug.Protector):
    """Shared code of the two kinds of noise in whole numbers."""

    mechanism: ClassVar[IntegerNoise]
    words: ClassVar[str]
    options: StepsOptions

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Rounding at random to the grid, and one client's share of the noise on it.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, or they are encrypted.
            ProtectionError: no such schedule exists, or the grid does not suit.
        """
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", "noise is added to plain values; put it before the encryption")
        options, sharing = self.options, self.options.sharing(facts.min_clients)
        clipped = known.need_norm(CLIP_FIRST)
        multiplier = options.multiplier(facts.turn(known.zone), facts.times(known.zone))
        grid = options.grid or coarsest(clipped, multiplier * clipped / math.sqrt(sharing), known.size, options.beta)
        rounding = Round(grid, beta=options.beta)
        norm = known.after(rounding).need_norm(CLIP_FIRST)
        std = multiplier * norm / math.sqrt(sharing)
        if options.epsilon is not None and math.isfinite(norm):
            std = grid * _least_std(self.mechanism, multiplier, norm / grid, float(known.size), sharing)
        return (
            rounding,
            Noise.integer(
                self.mechanism, std, grid=grid, source=options.source, colluders=options.colluders,
                calibrated_delta=options.delta if std else None, note=options.share(multiplier, sharing),
            ),
        )  # fmt: skip

    def check(self, recipe: Recipe) -> list[str]:
        """Problems with this number of clients sharing the noise."""
        return self.options.problems(recipe)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"{self.words} noise shared out among {self.options.among()}, {self.options.words()}"


class DistributedSkellam(_InSteps):
    """Add a share of Skellam noise at each client: whole numbers, whose sums are Skellam noise again.

    Values are rounded at random to a coarse public grid, with a new bound of the norm (Kairouz, Liu & Steinke, ICML
    2021). Noise is the difference of two Poisson variables (Agarwal, Kairouz & Liu, NeurIPS 2021, Theorem 3.5). So a
    sum takes few bits, for example `bits: 16` of `secagg.plus` with `wraps`. A later link must seal the zone so that
    nobody opens an upload, and all clients must have the same weight.
    """

    class Options(StepsOptions):
        """Options of `std.distributed_skellam`."""

    mechanism: ClassVar[IntegerNoise] = "skellam_sum"
    words: ClassVar[str] = "Skellam"

    options: Options


class DistributedDiscreteGaussian(_InSteps):
    """Add a share of discrete Gaussian noise at each client; a sum of it is nearly discrete Gaussian noise.

    The distributed discrete Gaussian mechanism (Kairouz, Liu & Steinke, ICML 2021, Theorem 1): values are rounded at
    random to a coarse public grid, and the price covers the difference between a sum of the noise and noise of one
    draw. It is similar to `std.distributed_skellam`, which costs as little and has a simpler price.
    """

    class Options(StepsOptions):
        """Options of `std.distributed_discrete_gaussian`."""

        source: Literal["secure", "exact", "reproducible"] = Field(  # type: ignore[assignment]
            "secure", description="secure: AES-256 keyed by the system; exact: OpenDP's sampler, hundreds of times as "
            "slow; reproducible: from the recipe's seed, which protects nobody",
        )  # fmt: skip

    mechanism: ClassVar[IntegerNoise] = "discrete_gaussian_sum"
    words: ClassVar[str] = "discrete Gaussian"

    options: Options


_least_std = functools.lru_cache(maxsize=256)(std_of_sum)
_GROWTH = 1 + 2.0**-7
"""Largest factor by which rounding may increase the norm for the noise."""
_STEPS_PER_STD = 4.0
"""Rounding adds at most 1/64 of the noise's variance, and the extra cost of sums of discrete Gaussian noise
vanishes."""


def coarsest(norm: float, std: float, size: int, beta: float) -> float:
    """The largest power of two that is a good grid.

    Args:
        norm: L2 norm before rounding, in units of the update.
        std: of one client's noise, in the same units.
        size: scalars; 0 while no model is known.
        beta: as of `Round`.
    """
    if not 0 < norm < math.inf:
        return 1.0
    grid = 2.0 ** math.floor(math.log2(std / _STEPS_PER_STD if std > 0 else norm))
    while size and norms.rounded(norm, grid, size, beta) > _GROWTH * norm:
        grid /= 2
    return grid

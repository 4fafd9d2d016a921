"""Gaussian noise that is correlated over rounds (DP-FTRL), so that little of it is in the sum of all rounds so far."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Context, Field, Known, Misplaced, Noise, Operations, hookimpl
from fedplug.privacy.accounting import gaussian_noise_multiplier

from fedplug_std.factors import LARGEST_TREE, Factor, factor
from fedplug_std.gaussian import NoiseAmount, grid_of, require_bound

if TYPE_CHECKING:
    from fedplug import Recipe


class CorrelatedGaussian(fedplug.Opener):
    """Add Gaussian noise to the sum, at the trusted server, that takes back some of that of earlier rounds (DP-FTRL).

    The model is the sum of all rounds so far, and that gets the noise B z where each round alone gets C^-1 z (Kairouz
    et al. 2021; Denisov et al. 2022): for cohorts that cannot be sampled, where each client takes part in few rounds,
    far apart. The noise is calibrated for a client that takes part `participations` times, `separation` rounds apart;
    the ledger charges each client for the rounds in which it was asked, whatever was planned. Nothing is gained where
    all clients take part in every round.
    """

    class Options(NoiseAmount):
        """Options of `std.correlated_gaussian`."""

        norm: float = Field(gt=0, lt=math.inf, description="L2 norm to which the zone's clip bounds each client")
        noise_multiplier: float | None = Field(
            None, ge=0, lt=math.inf,
            description="of the whole run: standard deviation of z over the sensitivity of C; instead of epsilon and "
            "delta",
        )  # fmt: skip
        source: Literal["secure", "reproducible"] = Field(
            "secure",
            description="secure: AES-256 keyed by the system; reproducible: from the recipe's seed, which "
            "protects nobody",
        )
        factor: Literal["square_root", "tree", "identity"] = Field(
            "square_root",
            description="C: the square root of the prefix sums, banded; the binary tree with Honaker's estimate; or "
            "independent noise",
        )
        bands: int | None = Field(
            None, ge=1, strict=True,
            description="diagonals of the square root that are kept, and rounds whose noise the server remembers; "
            "default: separation",
        )  # fmt: skip
        separation: int = Field(
            1, ge=1, strict=True, description="the fewest rounds from one participation of a client to its next"
        )
        participations: int | None = Field(
            None, ge=1, strict=True,
            description="the most rounds in which a client takes part; default: all that `separation` leaves",
        )  # fmt: skip

    name: str
    site = "server"

    def __init__(self, options: Options) -> None:
        self.options: CorrelatedGaussian.Options = options

    def factor(self, rounds: int) -> Factor:
        """C of a run of so many rounds."""
        return factor(self.options.factor, rounds, min(rounds, self.options.bands or self.options.separation))

    def std(self, rounds: int) -> float:
        """Standard deviation of z over the clipping norm, in a run of so many rounds."""
        options = self.options
        total = options.noise_multiplier
        if total is None:
            # Validation leaves neither None nor 0 here.
            total = _multiplier(options.epsilon or math.nan, options.delta or math.nan)
        return total * _sensitivity(self.factor(rounds), options.participations or rounds, options.separation)

    @hookimpl
    def postprocess(self, known: Known, ctx: Context) -> Operations:
        """This round's row of C^-1 z, as what it draws anew and what it takes back.

        Raises:
            Misplaced: nothing bounds what one client adds to the sum, or by more than `norm`; it is encrypted; or there
                is no such factor.
        """
        norm = require_bound(self.options.norm, known)
        if self.options.factor == "tree" and ctx.rounds > LARGEST_TREE:
            raise Misplaced(
                f"{self.name}: rounds={ctx.rounds} is more than a tree of {LARGEST_TREE} has; write factor: square_root"
            )
        made = self.factor(ctx.rounds)
        z, row = self.std(ctx.rounds) * norm, made.row(ctx.round)
        std = z / float(row[0])
        grid = grid_of(self.options, norm * ctx.num_clients, z * made.spread(ctx.round)) if std else None
        return (
            Noise.gaussian(
                std, source=self.options.source, grid=grid, calibrated_delta=self.options.delta,
                takes_back=tuple((row[1:] / row[0]).tolist()),
            ),
        )  # fmt: skip

    def check(self, recipe: Recipe) -> list[str]:
        """What stands against the participations that the noise is calibrated for."""
        options, rounds, sampling = self.options, recipe.rounds, recipe.sampling
        problems = []
        if options.factor != "square_root" and options.bands is not None:
            what = f"bands={options.bands} is of the square root, and factor is {options.factor}"
            problems.append(f"{what}; leave it out")
        turns = sampling.turns if sampling else 1
        if options.separation > turns:
            remedy = f"write sampling: {{scheme: cyclic, rate: {1 / options.separation:.4g}}}"
            problems.append(
                f"separation={options.separation} is more than the {turns} from one round of a client to its next; "
                f"{remedy}, or separation: {turns}"
            )
        times = math.ceil(rounds / max(turns, 1))
        if options.participations is not None and options.participations < times:
            problems.append(
                f"participations={options.participations} is less than the {times} of {rounds} rounds in which a "
                f"client may take part; write participations: {times}, or leave it out"
            )
        return problems

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        bands = f" of {options.bands or options.separation} bands" if options.factor == "square_root" else ""
        return (
            f"Gaussian noise at the server, correlated over rounds by the {options.factor.replace('_', ' ')}{bands}, "
            f"{options.words()}"
        )


# Links are asked at every client, in every round.
_multiplier = functools.lru_cache(gaussian_noise_multiplier)
_sensitivity = functools.lru_cache(maxsize=16)(Factor.sensitivity)

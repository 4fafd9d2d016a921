"""Gaussian noise that is correlated over rounds (DP-FTRL), so that the sum of all rounds so far has little of it."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Facts, Field, Known, Misplaced, Noise, Operations
from fedplug_ledger.accounting import gaussian_noise_multiplier

from fedplug_std.factors import LARGEST, Factor, Kind, blt, factor
from fedplug_std.gaussian import CLIP_FIRST, NoiseAmount, grid_of, require_bound
from fedplug_std.options import Source

if TYPE_CHECKING:
    from fedplug import Recipe


BANDED = ("square_root", "banded")
"""Factors with a number of diagonals."""
BUFFERS = 3
"""Of a BLT: more hardly lower the error of a few thousand rounds."""


class CorrelatedOptions(NoiseAmount):
    """The size of the noise, its correlation over rounds, and its calibration; shared by both components."""

    noise_multiplier: float | None = Field(
        None, ge=0, lt=math.inf,
        description="noise multiplier of the whole run: standard deviation of z over the sensitivity of C; instead of "
        "epsilon and delta",
    )  # fmt: skip
    source: Source = "secure"
    factor: Kind | Literal["blt"] = Field(
        "square_root",
        description="C: the square root of the prefix sums, banded; the banded matrix with the least error (BandMF); "
        "the buffered linear Toeplitz matrix with the least error (BLT), which remembers a few arrays in long runs; "
        "the binary tree with Honaker's estimate; or independent noise",
    )
    bands: int | None = Field(
        None, ge=1, strict=True,
        description="diagonals of the square root that are kept, or of the banded matrix; the noise of one round fewer "
        "is remembered; default: separation",
    )  # fmt: skip
    buffers: int | None = Field(
        None, ge=1, le=8, strict=True, description=f"arrays that a BLT remembers; default: {BUFFERS}"
    )
    separation: int = Field(
        1, ge=1, strict=True, description="the fewest rounds from one participation of a client to its next"
    )
    participations: int | None = Field(
        None, ge=1, strict=True,
        description="the most rounds in which a client takes part; default: all that `separation` leaves",
    )  # fmt: skip

    def made(self, rounds: int) -> Factor:
        """C of a run with this number of rounds."""
        if self.factor == "blt":
            return blt(rounds, self.buffers or BUFFERS, self.participations or rounds, self.separation)
        return factor(self.factor, rounds, min(rounds, self.bands or self.separation))

    def std(self, rounds: int) -> float:
        """Standard deviation of z over the clipping norm, in a run with this number of rounds."""
        total = self.noise_multiplier
        if total is None:
            # Validation leaves neither None nor 0 here.
            total = _multiplier(self.epsilon or math.nan, self.delta or math.nan)
        return total * _sensitivity(self.made(rounds), self.participations or rounds, self.separation)

    def noise(
        self, norm: float, known: Known, facts: Facts, share: float = 1.0,
        trust: Literal["local", "distributed"] = "local", note: str = "",
    ) -> Noise:  # fmt: skip
        """This round's row of C^-1 z: fresh noise, minus some noise of earlier rounds.

        Args:
            norm: the bound of one client's values.
            known: the facts known before the noise.
            facts: the round.
            share: factor on its size.
            trust: `distributed` if clients add it; on a sum it is always the server's.
            note: one sentence for the ledger.

        Raises:
            Misplaced: there is no such factor.
        """
        if self.factor in ("tree", "banded") and facts.rounds > LARGEST:
            raise Misplaced(
                f"{known.link}: rounds={facts.rounds} is more than the {LARGEST} of factor {self.factor}; write "
                "factor: square_root"
            )
        made = self.made(facts.rounds)
        z, row, spread = share * self.std(facts.rounds) * norm, made.row(facts.round), made.spread(facts.round)
        std = z / float(row[0])
        said = f"correlated over rounds by the {self._named}: it subtracts noise of earlier rounds"
        # The grid must hold the sum of all clients, whatever their number, which it must not reveal.
        reach = norm * (facts.num_clients if known.summed else 1)
        return Noise.gaussian(
            std, source=self.source, grid=grid_of(self, reach, z * spread) if std else None, trust=trust,
            note=f"{said}; {note}" if note else said,
            calibrated_delta=self.delta if std else None,
            takes_back=made.takes_back(facts.round), spread=max(1.0, spread * float(row[0])),
        )  # fmt: skip

    def problems(self, recipe: Recipe) -> list[str]:
        """Problems with the participations that the noise is calibrated for."""
        problems, rounds = [], recipe.rounds
        if self.factor not in BANDED and self.bands is not None:
            what = f"bands={self.bands} belongs to {' and '.join(BANDED)}, but factor is {self.factor}"
            problems.append(f"{what}; leave it out")
        if self.factor != "blt" and self.buffers is not None:
            problems.append(f"buffers={self.buffers} belongs to blt, but factor is {self.factor}; leave it out")
        turns = recipe.sampling.turns if recipe.sampling else 1
        if self.separation > turns:
            remedy = f"write sampling: {{scheme: cyclic, rate: {1 / self.separation:.4g}}}"
            if recipe.sampling and recipe.sampling.scheme == "poisson":
                remedy = f"write separation: {self.separation} in sampling"
            problems.append(
                f"separation={self.separation} is more than the {turns} from one round of a client to its next; "
                f"{remedy}, or separation: {turns}"
            )
        times = math.ceil(rounds / turns)
        if self.participations is not None and self.participations < times:
            problems.append(
                f"participations={self.participations} is less than the {times} of {rounds} rounds in which a "
                f"client may take part; write participations: {times}, or leave it out"
            )
        return problems

    def words(self) -> str:
        """The options in a few words."""
        parts = f" of {self.bands or self.separation} bands" if self.factor in BANDED else ""
        parts = f" of {self.buffers or BUFFERS} buffers" if self.factor == "blt" else parts
        return f"correlated over rounds by the {self._named}{parts}, {super().words()}"

    @property
    def _named(self) -> str:
        return "BLT" if self.factor == "blt" else self.factor.replace("_", " ")


class CorrelatedGaussian(fedplug.Opener):
    """Add Gaussian noise to the sum, at the trusted server, and subtract some of that of earlier rounds (DP-FTRL).

    The model is the sum of all rounds so far, which gets the noise B z, while each round alone gets C^-1 z (Kairouz et
    al. 2021; Denisov et al. 2022): for cohorts that cannot be sampled, where each client takes part in few rounds, far
    apart. The noise is calibrated for a client that takes part `participations` times, `separation` rounds apart; the
    ledger charges each client for the rounds in which it was asked, whatever the plan. There is no gain if all clients
    take part in every round.
    """

    class Options(CorrelatedOptions):
        """Options of `std.correlated_gaussian`."""

        norm: float = Field(gt=0, lt=math.inf, description="L2 norm to which the zone's clip bounds each client")

    site = "server"

    options: Options

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """This round's noise.

        Raises:
            Misplaced: one client's contribution to the sum has no bound, or one above `norm`; it is encrypted; or there
                is no such factor.
        """
        return (self.options.noise(require_bound(self.options.norm, known), known, facts),)

    def check(self, recipe: Recipe) -> list[str]:
        """Problems with the participations that the noise is calibrated for."""
        return self.options.problems(recipe)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"Gaussian noise at the server, {self.options.words()}"


class DistributedCorrelatedGaussian(fedplug.Protector):
    """Add a share of Gaussian noise at each client, and subtract some of its noise of earlier rounds (DP-FTRL).

    It works like `std.correlated_gaussian`, but the noise is shared among clients as in `std.distributed_gaussian`:
    only the sum has enough noise, so nobody may open an upload. Only the client that added noise can subtract it, so
    all clients must be in every round, most of them with noise alone (`sampling: {scheme: cyclic, rate: 0.1, resting:
    noise}`). The noise of a client that is missing from one round's sum does not count, before and after. The ledger
    charges for that.
    """

    class Options(CorrelatedOptions):
        """Options of `std.distributed_correlated_gaussian`."""

        shared_by: int | None = Field(
            None, ge=1,
            description="number of clients whose noise together gives epsilon: those that are in the sums of all "
            "rounds, without those that know each other's noise; default: one fewer than min_clients",
        )  # fmt: skip

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """One client's share of this round's noise.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, they are encrypted, or there is no such
                factor.
        """
        known.before("encryption", "noise is added to plain values; put it before the encryption")
        shared_by = self.options.shared_by or max(1, facts.min_clients - 1)
        note = f"the share of one client; {shared_by} clients that are in all sums have the whole"
        norm = known.need_norm(CLIP_FIRST)
        return (self.options.noise(norm, known, facts, 1 / math.sqrt(shared_by), "distributed", note),)

    def check(self, recipe: Recipe) -> list[str]:
        """Problems with the participations, and with the number of clients that share the noise."""
        problems, options = self.options.problems(recipe), self.options
        if recipe.sampling and recipe.sampling.resting != "noise":
            problems.append(
                "only the client that added noise can subtract it, but not all are in every round; write sampling: "
                f"{{scheme: cyclic, rate: {recipe.sampling.rate:g}, resting: noise}}, or leave sampling out"
            )
        if options.shared_by is not None and options.shared_by > recipe.clients:
            problems.append(
                f"shared_by={options.shared_by} exceeds the number of clients, {recipe.clients}; lower it"
            )
        return problems

    def describe(self) -> str:
        """One line for the plan of the run."""
        among = "the clients" if self.options.shared_by is None else f"{self.options.shared_by} clients"
        return f"Gaussian noise shared out among {among}, {self.options.words()}"


# Links are asked at every client, in every round.
_multiplier = functools.lru_cache(gaussian_noise_multiplier)
_sensitivity = functools.lru_cache(maxsize=16)(Factor.sensitivity)

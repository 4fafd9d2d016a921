"""Gaussian noise for differential privacy, added by each client (`Gaussian`) or once to the sum (`CentralGaussian`)."""

from __future__ import annotations

import functools
import math
from typing import Literal

import fedplug
from fedplug import Facts, Field, Known, Misplaced, Noise, Operations
from fedplug.api.errors import ProtectionError
from fedplug.api.grids import finest, too_fine
from fedplug.api.norms import Bound
from fedplug_ledger.accounting import gaussian_noise_multiplier

from fedplug_std.options import Calibrated, ExactSource, PowerOfTwo, Source
from fedplug_std.schedules import geometric_schedule

CLIP_FIRST = "noise is scaled to a clipping norm; put {use: std.clip, norm: 1.0} before it"


class NoiseAmount(Calibrated):
    """The size and the source of the noise; shared by all components."""

    epsilon: float | None = Field(
        None, gt=0, description="privacy loss of all rounds together in which the zone is sent, at q=1; with delta",
        json_schema_extra={"remedy": "to switch the noise off, write noised: []"},
    )  # fmt: skip
    noise_multiplier: float | None = Field(
        None,
        ge=0,
        lt=math.inf,
        description="standard deviation over clipping norm of the first round; instead of epsilon and delta",
    )
    source: ExactSource = "secure"
    grid: PowerOfTwo = Field(
        None,
        gt=0,
        lt=math.inf,
        description="public rounding grid, a power of two; default: the finest that float32 can hold",
    )

    def words(self) -> str:
        """The options in a few words."""
        return f"{self.amount}, {self.source} source"


class NoiseOptions(NoiseAmount):
    """The same for noise that is independent between rounds."""

    decay: float = Field(1.0, gt=0, le=1, description="factor from one round's noise to the next")

    def multiplier(self, round: int, rounds: int) -> float:
        """The noise multiplier of the round, 0-based, of `rounds` in which the zone is sent.

        Raises:
            ProtectionError: no schedule of that decay and length exists in float64.
        """
        try:
            first = self.noise_multiplier
            if first is None:
                # Validation leaves neither None nor 0 here.
                first = _first_multiplier(self.epsilon or math.nan, self.delta or math.nan, rounds, self.decay)
            return first * self.decay**round
        except ValueError as error:
            raise ProtectionError(str(error)) from error

    def words(self) -> str:
        """The options in a few words."""
        return super().words() + ("" if self.decay == 1 else f", times {self.decay:g} each round")


@functools.cache
def _first_multiplier(epsilon: float, delta: float, rounds: int, decay: float) -> float:
    """The first round's multiplier of a schedule that costs (epsilon, delta) in all."""
    total = gaussian_noise_multiplier(epsilon, delta)
    return math.sqrt(rounds) * total if decay == 1 else geometric_schedule(total, rounds, decay)[0]


class Gaussian(fedplug.Protector):
    """Add Gaussian noise to one client's clipped values, at the client (local differential privacy).

    Analytic calibration (Balle & Wang 2018) for all rounds together, valid for every epsilon. The standard deviation
    is noise_multiplier * clipping norm, the sensitivity to zeroing the client's values; the ledger also states
    replace-one, which is twice as sensitive. With `decay` the noise shrinks geometrically at equal total cost (Yuan et
    al.). The result lies on a public grid (see `fedplug.api.grids`).
    """

    class Options(NoiseOptions):
        """Options of `std.gaussian`."""

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Noise of this round's standard deviation, scaled to the clip before it.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, they are encrypted, or the grid does not suit.
        """
        return (local_noise(self.options, known, facts),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"Gaussian noise at the client, {self.options.words()}"


class CentralGaussian(fedplug.Opener):
    """Add Gaussian noise once to the sum, at the aggregation server, which is trusted with the clients' plain values.

    Weights lie in (0, 1], so one client moves the weighted sum by at most the clipping norm: the standard deviation is
    noise_multiplier * norm (McMahan et al. 2018). Denominators, which depend on weights and plans, get no noise and are
    not covered. With Poisson-sampled clients the protocol divides by the expected weight, a constant. `epsilon` is
    calibrated without sampling; with Poisson-sampled clients the ledger states less.
    """

    class Options(NoiseOptions):
        """Options of `std.central_gaussian`."""

        norm: float = Field(gt=0, lt=math.inf, description="L2 norm to which the zone's clip bounds each client")
        # No `exact`: its proof needs a sensitivity in whole grid steps, which a sum of weighted floats does not have.
        source: Source = "secure"

    site = "server"

    options: Options

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Noise on the sum, with a standard deviation from `norm`; its price follows from the actual bound.

        Raises:
            Misplaced: one client's contribution to the sum has no bound, or one above `norm`; or it is encrypted.
        """
        norm = require_bound(self.options.norm, known)
        std = self.options.multiplier(facts.turn(known.zone), facts.times(known.zone)) * norm
        # The grid must hold the sum of all clients, whatever their number, which it must not reveal.
        grid = grid_of(self.options, norm * facts.num_clients, std) if std else None
        return (Noise.gaussian(std, source=self.options.source, grid=grid, calibrated_delta=self.options.delta),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"Gaussian noise at the server, {self.options.words()}"


def require_bound(norm: float, known: Known) -> float:
    """The norm for noise on a sum, after a check that no client moves the sum by more.

    Raises:
        Misplaced: one client's contribution to the sum has no bound, or one above `norm`; or it is encrypted.
    """
    known.before(
        "encryption",
        "it is encrypted at the server; add noise at the clients instead: put std.gaussian before the encryption",
    )  # fmt: skip
    write = f"write {{use: std.clip, norm: {norm:g}}} in protect.{known.zone}"
    bound = known.need_norm(f"its noise is scaled to norm={norm:g}; {write}", central=True)
    clips = [(_whole(clip.bound, known), clip) for clip in known.clips if clip.bound.order == 2]
    clipped, clip = min(clips, key=lambda found: found[0], default=(bound, None))
    if clipped > norm:
        if clip and clip.bound.per == "layer":
            write = f"write norm: {clipped!r} here, or let {clip.link} clip all layers together to {norm:g}"
        raise Misplaced(
            f"{known.link}: zone {known.zone} is clipped to {clipped:g}, but its noise is scaled to norm={norm:g}; "
            f"{write}"
        )
    if clip and (moved := clipped * abs(known.factor / clip.factor if clip.factor else math.inf)) > norm:
        raise Misplaced(
            f"{known.link}: zone {known.zone} is clipped to {clipped:g} and then multiplied, by "
            f"{known.factor / clip.factor:g}, so one client moves the sum by up to {moved:g}, but its noise is "
            f"scaled to norm={norm:g}; write norm: {moved:g} here"
        )
    return norm


def grid_of(options: NoiseAmount, reach: float, std: float) -> float:
    """The grid of the options, or the finest that float32 can hold.

    Raises:
        ProtectionError: that of the options is finer.
    """
    least = finest(reach, std)
    if options.grid is not None and options.grid < least:
        raise too_fine(options.grid, least)
    return options.grid or least


def _whole(bound: Bound, known: Known) -> float:
    """The norm of the update that a clip leaves; that of single layers is not a norm of it."""
    if isinstance(bound.norm, tuple):
        return math.hypot(*bound.norm)
    return bound.norm * (math.sqrt(max(1, len(known.layers))) if bound.per == "layer" else 1)


def local_noise(
    options: NoiseOptions, known: Known, facts: Facts, factor: float = 1.0,
    trust: Literal["local", "distributed"] = "local", *, as_published: bool = False, note: str = "", colluders: int = 0,
) -> Noise:  # fmt: skip
    """Noise at the client, scaled to the bound of the L2 norm that is known before it.

    Args:
        options: how much noise.
        known: the facts known before it.
        facts: the round.
        factor: on the multiplier of the options.
        trust: `distributed` if it is calibrated for the sum.
        as_published: whether to use the paper's formula, which does not give the claimed guarantee.
        note: one sentence for the ledger.
        colluders: clients whose noise does not count in a sum.

    Raises:
        Misplaced: nothing bounds the values, there is noise already, or they are encrypted.
        ProtectionError: no such schedule exists.
    """
    known.before("noise", "this zone has noise already; keep one noise component in the chain")
    known.before("encryption", "noise is added to plain values; put it before the encryption")
    multiplier = options.multiplier(facts.turn(known.zone), facts.times(known.zone))
    std = factor * multiplier * known.need_norm(CLIP_FIRST)
    return Noise.gaussian(
        std, source=options.source, grid=options.grid, trust=trust, as_published=as_published, note=note,
        calibrated_delta=options.delta if std else None, colluders=colluders,
    )  # fmt: skip

"""SelectiveShield's noise (Sec. 4.4), with the standard deviation as printed and as it has to be."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, ClassVar, Literal

import fedplug
from fedplug import Block, Client, Context, Field, Release, hookimpl
from fedplug.accounting import gaussian_noise_multiplier, gaussian_rdp_epsilon, geometric_schedule
from fedplug.errors import ProtectionError
from fedplug_std.gaussian import CLIP_FIRST, Gaussian, NoiseOptions
from pydantic import model_validator


class Noise(fedplug.Protector):
    """Add Gaussian noise to one client's clipped values (SelectiveShield, eq. 21), in one of three amounts.

    sigma is the multiplier for which eq. 22 states the cost. With clipping norm C and K clients in a round,

    * `local` adds std C sigma. Eq. 22 then is the cost of each client's upload.
    * `distributed` adds C sigma / sqrt(K), so that the sum has C sigma. Only the sum is private to that degree, so the
      zone must be encrypted afterwards.
    * `literal_K` adds C sigma sqrt(K), as eq. 21 prints. Uploads then cost a K-th of what eq. 22 says in Renyi DP, and
      the mean has noise of C sigma: as if a single client had added it.

    The ledger states what the noise really gives. Everything else is as with `std.gaussian`.
    """

    name: str
    provides = frozenset({"noise"})
    requires: ClassVar[dict[str, str]] = {"l2_bound": CLIP_FIRST}
    forbids_before: ClassVar[dict[str, str]] = Gaussian.forbids_before

    class Options(NoiseOptions):
        """How much noise, for how many clients."""

        choice: Literal["local", "distributed", "literal_K"] = Field(
            "local", description="std C sigma; C sigma / sqrt(K), for sums under encryption; or C sigma sqrt(K), eq. 21"
        )
        calibration: Literal["exact", "rdp"] = Field(
            "exact", description="sigma from epsilon: analytic Gaussian, or the Renyi bound of Lemma 2 (needs more)"
        )
        participants: int | None = Field(
            None, ge=1, description="K of eq. 21, the clients of a round; default: all clients of the recipe"
        )

        @model_validator(mode="after")
        def _say_only_what_counts(self) -> Noise.Options:
            if self.calibration == "rdp" and self.epsilon is None:
                raise ValueError("calibration: rdp needs epsilon and delta; a noise_multiplier is not calibrated")
            if self.participants is not None and self.choice == "local":
                raise ValueError(f"participants={self.participants} has no effect with choice: local; leave it out")
            return self

        def multiplier(self, round: int, rounds: int) -> float:
            """sigma of a round, 0-based, of a run of `rounds`.

            Raises:
                ProtectionError: no schedule of that decay and length exists in float64.
            """
            if self.calibration == "exact":
                return super().multiplier(round, rounds)
            total = lemma_2_multiplier(self.epsilon or math.nan, self.delta or math.nan)  # validation leaves no None
            try:
                return geometric_schedule(total, rounds, self.decay)[round]
            except ValueError as error:
                raise ProtectionError(str(error)) from error

    def __init__(self, options: Options) -> None:
        self.options: Noise.Options = options

    def check(self, recipe: Any) -> list[str]:
        """Complains about noise for sums where single uploads are visible, about a wrong K, and about grids."""
        choice, complaints = self.options.choice, []
        for zone, chain in recipe.protect.items():
            names = [use.name for use in chain]
            if choice != "distributed" or self.name not in names:
                continue
            opened = {use.name for use in recipe.postprocess.get(zone, ())}
            if not opened & set(names[names.index(self.name) + 1 :]):
                complaints.append(
                    f"choice: distributed is enough noise for a sum, not for an upload, and uploads of zone {zone} are "
                    "visible; encrypt the zone after the noise, or write choice: local"
                )
        if choice != "local" and recipe.sampling is not None and self.options.participants is None:
            expected = max(1, int(recipe.sampling.rate * recipe.clients + 0.5))
            complaints.append(f"choice: {choice} needs to know the clients of a round; write participants: {expected}")
        if (self.options.participants or 0) > recipe.clients:
            complaints.append(f"participants={self.options.participants} must be <= data.clients={recipe.clients}")
        try:
            return [*complaints, *self._gaussian(recipe.rounds - 1, recipe.rounds, recipe.clients).check(recipe)]
        except ProtectionError as error:
            return [*complaints, str(error)]

    def multiplier(self, round: int, rounds: int, num_clients: int) -> float:
        """What is really added to one upload: standard deviation over clipping norm.

        Args:
            round: 0-based.
            rounds: T.
            num_clients: K, unless `participants` says otherwise.
        """
        root = math.sqrt(self.options.participants or num_clients)
        factor = {"local": 1.0, "distributed": 1 / root, "literal_K": root}[self.options.choice]
        return self.options.multiplier(round, rounds) * factor

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Eq. 21, with the std of `choice`. The result has no L2 bound any more.

        Raises:
            ProtectionError: the block has no finite L2 bound, or the grid does not suit it.
        """
        return self._gaussian(ctx.round, ctx.rounds, ctx.num_clients).protect(block, client, ctx)

    def release(self, round: int, ctx: Context) -> Release:
        """What one upload of that round costs: the true multiplier, whatever sigma claims."""
        found = self._gaussian(round, ctx.rounds, ctx.num_clients).release(round, ctx)
        sigma = self.options.multiplier(round, ctx.rounds)
        note = {
            "local": found.note,
            "distributed": f"enough noise for sigma={sigma:.4g} in the sum of all; {found.note}",
            "literal_K": f"eq. 21 as printed; eq. 22 states the cost of sigma={sigma:.4g}, K times the true one; "
            f"{found.note}",
        }[self.options.choice]
        trust = "distributed" if self.options.choice == "distributed" else "local"
        return dataclasses.replace(found, trust=trust, literal=self.options.choice == "literal_K", note=note)

    def describe(self) -> str:
        """One line for the plan of the run."""
        std = {"local": "C sigma", "distributed": "C sigma / sqrt(K)", "literal_K": "C sigma sqrt(K) (literal)"}
        lemma = ", sigma by Lemma 2" if self.options.calibration == "rdp" else ""
        return f"Gaussian noise of std {std[self.options.choice]} at the client, {self.options.words()}{lemma}"

    def _gaussian(self, round: int, rounds: int, num_clients: int) -> Gaussian:
        """`std.gaussian` with this round's true multiplier, under this component's name, which keys its stream."""
        multiplier = self.multiplier(round, rounds, num_clients)
        options, source, grid = Gaussian.Options, self.options.source, self.options.grid
        gaussian = Gaussian(options(noise_multiplier=multiplier, source=source, grid=grid))
        gaussian.name = self.name
        return gaussian


@functools.cache
def lemma_2_multiplier(epsilon: float, delta: float) -> float:
    """The noise multiplier whose Renyi bound, at the best order, is (epsilon, delta) (Lemma 2); for T rounds, times
    sqrt(T).

    Args:
        epsilon: privacy loss, > 0.
        delta: failure probability, 0 < delta < 1.
    """
    low = gaussian_noise_multiplier(epsilon, delta)  # exact, so never more than the bound needs
    high = 2 * low
    while gaussian_rdp_epsilon(high, delta) > epsilon:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_rdp_epsilon(middle, delta) <= epsilon else (middle, high)
    return high

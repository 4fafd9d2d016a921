"""SelectiveShield's noise (Sec. 4.4), with the standard deviation as printed and as it has to be."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import fedplug
from fedplug import Block, Client, Context, Effects, Field, Known, hookimpl
from fedplug.api.errors import ProtectionError
from fedplug.privacy.accounting import gaussian_noise_multiplier, geometric_schedule
from fedplug.privacy.renyi import gaussian_rdp_epsilon
from fedplug_std.gaussian import Gaussian, NoiseOptions, local_noise
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
        """Complains about a wrong K."""
        choice, complaints = self.options.choice, []
        if choice != "local" and recipe.sampling is not None and self.options.participants is None:
            expected = max(1, int(recipe.sampling.rate * recipe.clients + 0.5))
            complaints.append(f"choice: {choice} needs to know the clients of a round; write participants: {expected}")
        if (self.options.participants or 0) > recipe.clients:
            complaints.append(f"participants={self.options.participants} must be <= data.clients={recipe.clients}")
        return complaints

    def factor(self, num_clients: int) -> float:
        """What sigma is multiplied by to give the noise of one upload.

        Args:
            num_clients: K, unless `participants` says otherwise.
        """
        root = math.sqrt(self.options.participants or num_clients)
        return {"local": 1.0, "distributed": 1 / root, "literal_K": root}[self.options.choice]

    def effects(self, known: Known, ctx: Context) -> Effects:
        """What one upload of the round really carries, whatever sigma claims, scaled to the clip before it.

        Noise for the sum must be encrypted later in the chain, which the check of a recipe asks for.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, or they are encrypted.
            ProtectionError: no such schedule exists, or the grid does not suit the bound.
        """
        options = self.options
        trust: Literal["local", "distributed"] = "distributed" if options.choice == "distributed" else "local"
        found = local_noise(options, known, ctx, self.factor(ctx.num_clients), trust)
        sigma = options.multiplier(ctx.round, ctx.rounds)
        note = {
            "local": found.note,
            "distributed": f"enough noise for sigma={sigma:.4g} in the sum of all; {found.note}",
            "literal_K": f"eq. 21 as printed; eq. 22 states the cost of sigma={sigma:.4g}, K times the true one; "
            f"{found.note}",
        }[options.choice]
        return (dataclasses.replace(found, literal=options.choice == "literal_K", note=note),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Eq. 21, with the std of `choice`.

        Raises:
            ProtectionError: nothing bounds the values, or the grid does not suit them.
        """
        multiplier = self.options.multiplier(ctx.round, ctx.rounds) * self.factor(ctx.num_clients)
        options, source, grid = Gaussian.Options, self.options.source, self.options.grid
        gaussian = Gaussian(options(noise_multiplier=multiplier, source=source, grid=grid))
        gaussian.name = self.name  # which keys its stream
        return gaussian.protect(block, client, ctx)

    def describe(self) -> str:
        """One line for the plan of the run."""
        std = {"local": "C sigma", "distributed": "C sigma / sqrt(K)", "literal_K": "C sigma sqrt(K) (literal)"}
        lemma = ", sigma by Lemma 2" if self.options.calibration == "rdp" else ""
        return f"Gaussian noise of std {std[self.options.choice]} at the client, {self.options.words()}{lemma}"


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

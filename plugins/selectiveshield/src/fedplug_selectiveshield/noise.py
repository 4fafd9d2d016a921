"""SelectiveShield's noise (Sec. 4.4), with the standard deviation as printed and a correct one."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

import fedplug
from fedplug import Clip, Facts, Field, Known, Misplaced, Operations
from fedplug.api.errors import ProtectionError
from fedplug_ledger.accounting import (
    effective_multiplier,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    gaussian_rdp_epsilon,
)
from fedplug_std.gaussian import CLIP_FIRST, NoiseOptions, local_noise
from fedplug_std.schedules import geometric_schedule
from pydantic import model_validator


class Own(fedplug.Options):
    """C_n and sigma_n of one client, where they differ from the common ones."""

    client: int = Field(ge=0, description="number of the client; clients count from 0")
    norm: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="C_n, to which this client clips further; default: that of all"
    )
    epsilon: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="of this client, with the delta of all; where all have an epsilon"
    )
    noise_multiplier: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="sigma_n of the first round; where all have a noise_multiplier"
    )


class Noise(fedplug.Protector):
    """Add Gaussian noise to one client's clipped values (SelectiveShield, eq. 21), in one of three amounts.

    sigma is the multiplier for which eq. 22 states the cost. With clipping norm C and K clients in a round:

    * `local` adds std C sigma. Eq. 22 is then the cost of each client's upload.
    * `distributed` adds C sigma / sqrt(K), so that the sum has C sigma. Only the sum is private to that degree, so the
      zone must be encrypted afterwards.
    * `as_published` adds C sigma sqrt(K), as eq. 21 prints. In Renyi DP, uploads then cost a K-th of the value of
      eq. 22. The mean has noise of C sigma, as if a single client had added it.

    `own` gives single clients their own clipping norm C_n and sigma_n, as Sec. 4.4 allows and the paper's analysis
    leaves out. They are options, hence public: if they were chosen from a client's data, they would reveal something
    about it. The ledger charges all clients the cost of the client with the least noise, and notes the cost of each.

    The ledger states the true cost of the noise. Everything else is as with `std.gaussian`.
    """

    class Options(NoiseOptions):
        """How much noise, for how many clients."""

        choice: Literal["local", "distributed", "as_published"] = Field(
            "local", json_schema_extra={"renamed": {"literal_K": "as_published"}},
            description="std C sigma; C sigma / sqrt(K), for sums under encryption; or C sigma sqrt(K), eq. 21",
        )  # fmt: skip
        calibration: Literal["exact", "rdp"] = Field(
            "exact", description="sigma from epsilon: analytic Gaussian, or the Renyi bound of Lemma 2 (needs more)"
        )
        participants: int | None = Field(
            None, ge=1, description="K of eq. 21, the clients of a round; default: all clients of the recipe"
        )

        own: tuple[Own, ...] = Field(
            (), description="norm and epsilon (or noise_multiplier) of single clients: [{client: 3, epsilon: 4}]"
        )

        @model_validator(mode="after")
        def _own_noise_is_given_as_that_of_all(self) -> Noise.Options:
            wrong, right = "epsilon", "noise_multiplier"
            if self.epsilon is not None:
                wrong, right = right, wrong
            seen: set[int] = set()
            for own in self.own:
                if getattr(own, wrong) is not None:
                    raise ValueError(f"client {own.client}: {wrong} does not go with the {right} of all; write {right}")
                if own.norm is None and getattr(own, right) is None:
                    raise ValueError(f"client {own.client}: give it its own norm or {right}, or remove it")
                if own.client in seen:
                    raise ValueError(f"client {own.client} is there twice; keep one of them")
                seen.add(own.client)
            if self.own and self.choice == "distributed":
                raise ValueError("choice: distributed adds up noise that is alike at all clients; remove own")
            return self

        @model_validator(mode="after")
        def _say_only_what_counts(self) -> Noise.Options:
            if self.calibration == "rdp" and self.epsilon is None:
                raise ValueError("calibration: rdp needs epsilon and delta; a noise_multiplier is not calibrated")
            if self.participants is not None and self.choice == "local":
                raise ValueError(f"participants={self.participants} has no effect with choice: local; leave it out")
            return self

        def multiplier(self, round: int, rounds: int) -> float:
            """sigma of a round, 0-based, of `rounds` in which the zone is sent.

            Raises:
                ProtectionError: no schedule of that decay and length exists in float64.
            """
            if self.calibration == "exact":
                return super().multiplier(round, rounds)
            total = lemma_2_multiplier(self.epsilon or math.nan, self.delta or math.nan)  # validation leaves no None
            try:
                # Of a zone that is not sent any more, what its noise would be is asked for all the same.
                return geometric_schedule(total, rounds, self.decay)[min(round, rounds - 1)]
            except ValueError as error:
                raise ProtectionError(str(error)) from error

        def said_of(self, client_id: int | None) -> Own | None:
            """The entry of `own` for one client; None for None."""
            return next((own for own in self.own if own.client == client_id), None)

        def of_client(self, client_id: int | None) -> Noise.Options:
            """The noise of one client; for None, that of clients without their own."""
            own = self.said_of(client_id)
            changed = own.model_dump(exclude_none=True, include={"epsilon", "noise_multiplier"}) if own else {}
            return self.model_copy(update={**changed, "own": ()})

    options: Options

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
        """Factor by which sigma is multiplied to give the noise of one upload.

        Args:
            num_clients: K, unless `participants` says otherwise.
        """
        root = math.sqrt(self.options.participants or num_clients)
        return {"local": 1.0, "distributed": 1 / root, "as_published": root}[self.options.choice]

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Eq. 21, with the std of `choice`: the noise that one upload really carries, whatever sigma claims.

        Noise for the sum must be encrypted later in the chain. The check of a recipe requires it.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, or they are encrypted.
            ProtectionError: no such schedule exists, or the grid does not suit the bound.
        """
        options = self.options
        if options.own:
            return self._of_each(known, facts)
        trust: Literal["local", "distributed"] = "distributed" if options.choice == "distributed" else "local"
        sigma = options.multiplier(facts.turn(known.zone), facts.times(known.zone))
        note = {
            "local": "",
            "distributed": f"enough noise for sigma={sigma:.4g} in the sum of all",
            "as_published": f"eq. 21 as printed; eq. 22 states the cost of sigma={sigma:.4g}, K times the true one",
        }[options.choice]
        factor, as_published = self.factor(facts.num_clients), options.choice == "as_published"
        return (local_noise(options, known, facts, factor, trust, as_published=as_published, note=note),)

    def _of_each(self, known: Known, facts: Facts) -> Operations:
        """Eqs. 20 and 21 where clients differ: each clips to its C_n and adds C_n sigma_n. All pay as the least noisy.

        Raises:
            Misplaced: as `protect`; or a client's norm is above the bound of the zone.
        """
        options, factor = self.options, self.factor(facts.num_clients)
        bound = known.need_norm(CLIP_FIRST)
        for own in options.own:
            if own.norm is not None and own.norm > bound:
                raise Misplaced(
                    f"{self.name}: norm={own.norm:g} of client {own.client} must be <= {bound:g}, to which the zone is "
                    "clipped before; raise the norm of std.clip, or lower this one"
                )
        given = [own.client for own in options.own]
        own_norms = {own.client: own.norm for own in options.own if own.norm is not None}
        turn, times = facts.turn(known.zone), facts.times(known.zone)
        norms = {c: own_norms.get(c, bound) for c in given}  # C_n
        stds = {c: factor * options.of_client(c).multiplier(turn, times) * norms[c] for c in given}  # C_n sigma_n
        # Where each client has its own, the numbers of all others are those of nobody, and cost nobody anything.
        rest = None if len(given) < facts.num_clients else max(given, key=lambda c: stds[c] / norms[c])
        others = local_noise(
            options.of_client(rest), known, facts, factor, as_published=options.choice == "as_published",
            note=f"the least of any client; {self._paid(given, known.zone, facts)}",
        )  # fmt: skip
        assert isinstance(others.std, int | float)  # Gaussian noise of one size
        return Clip(norms, others=bound), dataclasses.replace(others, std=stds, others=others.std)

    def _paid(self, given: list[int], zone: str, facts: Facts) -> str:
        """The cost of each client that takes part in every round, in words."""
        factor, delta, times = self.factor(facts.num_clients), self.options.delta, facts.times(zone)
        paid: dict[str, list[str]] = {}
        for number in [*given, *([None] if len(given) < facts.num_clients else [])]:
            options = self.options.of_client(number)
            total = factor * effective_multiplier(options.multiplier(turn, times) for turn in range(times))
            cost = f"a multiplier of {total:.4g}" if delta is None else f"epsilon {gaussian_epsilon(total, delta):.4g}"
            paid.setdefault(cost, []).append("the others" if number is None else f"client {number}")
        return "over all rounds " + ", ".join(f"{cost} at {' and '.join(who)}" for cost, who in paid.items())

    def describe(self) -> str:
        """One line for the plan of the run."""
        std = {"local": "C sigma", "distributed": "C sigma / sqrt(K)", "as_published": "C sigma sqrt(K) (as published)"}
        lemma = ", sigma by Lemma 2" if self.options.calibration == "rdp" else ""
        own = f", {len(self.options.own)} clients with their own" if self.options.own else ""
        return f"Gaussian noise of std {std[self.options.choice]} at the client, {self.options.words()}{lemma}{own}"


@functools.cache
def lemma_2_multiplier(epsilon: float, delta: float) -> float:
    """The noise multiplier whose Renyi bound, at the best order, is (epsilon, delta) (Lemma 2). For T rounds, multiply
    by sqrt(T).

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

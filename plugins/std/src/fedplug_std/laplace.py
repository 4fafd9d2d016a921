"""Laplace noise for differential privacy, added by each client to values of bounded L1 norm."""

from __future__ import annotations

import functools
import math
import sys

import fedplug
from fedplug import Facts, Field, Known, Noise, Operations
from fedplug_ledger.accounting import composed_epsilon
from pydantic import model_validator

from fedplug_std.options import PowerOfTwo, Source

CLIP_FIRST = "noise is scaled to a bound of the L1 norm; put {use: std.clip_l1, norm: 1.0} before it"


class Laplace(fedplug.Protector):
    """Add Laplace noise to one client's L1-clipped values, at the client (local differential privacy).

    Every scalar gets noise of scale b = noise_multiplier * C1, for an L1 bound C1 of the client's values. A round is
    then C1 / b = 1 / noise_multiplier differentially private under zero-out adjacency, whose sensitivity is C1, and
    twice that under replace-one, whose sensitivity is 2 C1 (Dwork et al. 2006). So FAS's b = 2 C1 / epsilon is one
    round's epsilon under replace-one. To calibrate for that, give half the epsilon.

    `epsilon` alone is for all T rounds together by pure composition, b = C1 T / epsilon; with `delta` it is the Renyi
    composition of T rounds, which needs less noise over many rounds (`accountant: {use: std.pld}` then gives slightly
    less than epsilon). The ledger's curves are those of one scalar, but hold for a whole vector: the overlap of two
    log-concave densities is log-concave in the shift between them (Prekopa), so the hockey-stick divergence is
    quasi-convex in the shift, and over the L1 ball it is largest at a vertex, where the norm is in one scalar. The
    result is on a public grid (see `fedplug.api.grids`).
    """

    class Options(fedplug.Options):
        """The size and the source of the noise."""

        epsilon: float | None = Field(
            None, gt=0, description="privacy loss of all rounds together, zero-out",
            json_schema_extra={"remedy": "to switch the noise off, leave std.laplace out"},
        )  # fmt: skip
        delta: float | None = Field(
            None, gt=0, lt=1, description="failure probability that epsilon is calibrated for; without it, none (pure)"
        )
        noise_multiplier: float | None = Field(
            None, ge=0, lt=math.inf, description="scale b over L1 bound, in every round; instead of epsilon"
        )
        source: Source = "secure"
        grid: PowerOfTwo = Field(
            None, gt=0, lt=math.inf,
            description="public rounding grid, a power of two; default: the finest that float32 can hold",
        )  # fmt: skip

        @model_validator(mode="after")
        def _one_way_to_say_how_much(self) -> Laplace.Options:
            if (self.epsilon is None) == (self.noise_multiplier is None):
                given = "neither" if self.epsilon is None else "both"
                raise ValueError(f"{given} of epsilon and noise_multiplier given; write one of them")
            if self.epsilon is None and self.delta is not None:
                raise ValueError(
                    "delta belongs to epsilon: write epsilon: 8, delta: 1.0e-5; with noise_multiplier the ledger "
                    "states epsilon at its own delta"
                )
            return self

        def multiplier(self, rounds: int) -> float:
            """Scale over L1 bound, in each of that many rounds."""
            if self.noise_multiplier is not None:
                return self.noise_multiplier
            return _calibrated(self.epsilon or math.nan, self.delta, rounds)  # validation leaves neither None nor 0

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Noise of this round's scale, relative to the bound of the L1 norm before it.

        Raises:
            Misplaced: nothing bounds the values, there is noise already, or they are encrypted.
        """
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", "noise is added to plain values; put it before the encryption")
        options = self.options
        scale = options.multiplier(facts.times(known.zone)) * known.need_norm(CLIP_FIRST, order=1)
        delta = options.delta if scale else None
        return (Noise.laplace(scale, source=options.source, grid=options.grid, calibrated_delta=delta),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        if options.noise_multiplier is not None:
            amount = f"noise multiplier {options.noise_multiplier:g}"
        else:
            amount = f"epsilon {options.epsilon:g}, "
            amount += f"delta {options.delta:g} over all rounds" if options.delta else "pure, over all rounds"
        return f"Laplace noise at the client, {amount}, {options.source} source"


@functools.cache
def _calibrated(epsilon: float, delta: float | None, rounds: int) -> float:
    """The least multiplier with which that many rounds together cost epsilon, at delta or without one."""
    pure = rounds / epsilon
    if delta is None or pure == 0:  # an infinite epsilon needs no noise
        return pure
    low = high = min(pure, sys.float_info.max)
    while composed_epsilon(0.0, [("laplace", low / 2, rounds)], delta) <= epsilon:
        low = high = low / 2
    low /= 2
    for _ in range(60):
        middle = (low + high) / 2
        enough = composed_epsilon(0.0, [("laplace", middle, rounds)], delta) <= epsilon
        low, high = (low, middle) if enough else (middle, high)
    return high

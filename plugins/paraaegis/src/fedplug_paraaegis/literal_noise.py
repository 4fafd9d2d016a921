"""The noise of ParaAegis' Remark 1 as printed. It is kept for comparison, because its claimed epsilon does not hold."""

from __future__ import annotations

import math
from typing import Any

import fedplug
from fedplug import (
    Client,
    Cohort,
    Facts,
    Field,
    KeyServerLine,
    Known,
    Noise,
    Operations,
    Reveals,
    at_client,
)
from fedplug_std.replies import valid

_CLIP_FIRST = "its scale is relative to a clipping norm; put {use: std.clip, norm: 1.0} before it"


class LiteralNoise(fedplug.Protector):
    """Gaussian noise scaled as in the paper's Remark 1 (as published; far weaker than its epsilon says).

    std = s * sqrt(2 q T ln(1/delta)) / epsilon with s = 2 C / |D_k|. The sensitivity 2C/|D_k| is that of an average
    over records. An update clipped as a whole has sensitivity C, so the true client-level epsilon is larger by orders
    of magnitude. The ledger states the true one. The noise is always reproducible: it follows from the recipe's seed,
    so any party that knows the seed can subtract it. `std.gaussian` is the correct mechanism.
    """

    class Options(fedplug.Options):
        epsilon: float = Field(gt=0, description="the epsilon that the paper claims for all rounds")
        delta: float = Field(1e-5, gt=0, lt=1, description="the delta that the paper claims")
        sampling_rate: float = Field(1.0, gt=0, le=1, description="q of Remark 1")

    options: Options

    def stddev(self, clipping_norm: float, num_examples: int, rounds: int) -> float:
        """Remark 1; in units of the update."""
        sensitivity = 2 * clipping_norm / num_examples
        spread = math.sqrt(2 * self.options.sampling_rate * rounds * math.log(1 / self.options.delta))
        return sensitivity * spread / self.options.epsilon

    def setup(self, cohort: Cohort, key_server: KeyServerLine, facts: Facts) -> None:
        """The scale depends on the size of each data set. The account charges all clients as the largest."""
        told = valid(cohort, cohort.ask(self.count), count_problem)
        # Told to all, so that each knows what the noise of the worst client is worth.
        cohort.publish(self, {"largest": max(told.values(), default=1)})

    @at_client
    def count(self, client: Client) -> int:
        """The number of this client's examples."""
        return client.num_examples

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Noise with a different scale at each client. All are charged as the worst; the clipping norm cancels.

        Raises:
            Misplaced: nothing bounds the values.
        """
        bound, rounds, largest = known.need_norm(_CLIP_FIRST), facts.rounds, facts.of(self).get("largest")
        note = "Remark 1 as printed: sensitivity 2C/|D_k| holds for an average over records, not for a clipped update"
        return (
            Noise.by(
                lambda num_examples: self.stddev(bound, num_examples, rounds), reads="num_examples",
                at_least=0.0 if largest is None else self.stddev(1.0, largest, rounds), source="reproducible",
                as_published=True, note=note,
            ),
        )  # fmt: skip

    def reveals(self, facts: Facts) -> list[Reveals]:
        """The scale of the noise needs the number of examples."""
        note = "sent once, in the clear, for the ledger"
        return [Reveals("number of examples", ("server",), asked=("count",), note=note)]

    def describe(self) -> str:
        claimed = f"{self.options.epsilon:g} (as published, reproducible from the seed)"
        return f"Remark 1 noise for a claimed epsilon of {claimed}"


def count_problem(count: Any) -> str:
    """Why this is not a number of examples; empty if it is."""
    if type(count) is int and count > 0:
        return ""
    return f"its number of examples is a {type(count).__name__}, not a whole number > 0"

"""The noise of ParaAegis' Remark 1, as printed; kept for comparison, because it does not give what it claims."""

from __future__ import annotations

import math
from typing import ClassVar

import fedplug
import numpy as np
from fedplug import Block, Client, Cohort, Context, Field, KeyServer, Release, Reveals, at_client, hookimpl
from fedplug.errors import ProtectionError


class LiteralNoise(fedplug.Protector):
    """Gaussian noise scaled as in the paper's Remark 1 (literal; far weaker than its epsilon says).

    std = s * sqrt(2 q T ln(1/delta)) / epsilon with s = 2 C / |D_k|. The sensitivity 2C/|D_k| is that of an average
    over records; an update clipped as a whole has sensitivity C, so the true client-level epsilon is larger by orders
    of magnitude. The ledger states the true one. The noise is always reproducible: it follows from the recipe's seed,
    and whoever knows that can subtract it. `std.gaussian` is the correct mechanism.
    """

    name: str
    provides = frozenset({"noise"})
    requires: ClassVar[dict[str, str]] = {
        "l2_bound": "its scale is relative to a clipping norm; put {use: std.clip, norm: 1.0} before it"
    }

    class Options(fedplug.Options):
        epsilon: float = Field(gt=0, description="the epsilon that the paper claims for all rounds")
        delta: float = Field(1e-5, gt=0, lt=1, description="the delta that the paper claims")
        sampling_rate: float = Field(1.0, gt=0, le=1, description="q of Remark 1")

    def __init__(self, options: Options) -> None:
        self.options = options

    def stddev(self, clipping_norm: float, num_examples: int, rounds: int) -> float:
        """Remark 1; in units of the update."""
        sensitivity = 2 * clipping_norm / num_examples
        spread = math.sqrt(2 * self.options.sampling_rate * rounds * math.log(1 / self.options.delta))
        return sensitivity * spread / self.options.epsilon

    def setup(self, cohort: Cohort, key_server: KeyServer, ctx: Context) -> None:
        """The scale depends on the size of each data set; the ledger needs the largest (and the clipping norm)."""
        told = cohort.ask(self.count)
        for client_id, count in list(told.items()):
            if type(count) is not int or count < 1:
                cohort.drop(client_id, f"its number of examples is a {type(count).__name__}, not a whole number > 0")
                del told[client_id]
        ctx.party.memory(self)["largest"] = max(told.values(), default=1)

    @at_client
    def count(self, client: Client) -> int:
        """The number of this client's examples."""
        return client.num_examples

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Adds reproducible noise of the printed scale."""
        if block.l2_bound is None:
            raise ProtectionError("paraaegis.literal_noise needs a clip before it: {use: std.clip, norm: 1.0}")
        std = self.stddev(block.l2_bound, client.num_examples, ctx.rounds)
        noise = client.rng(self, block.zone).normal(0.0, std, block.size)
        return block.replace(values=(block.plain() + noise).astype(np.float32))

    def release(self, round: int, ctx: Context) -> Release:
        """The worst client's true multiplier: printed std over the clipping norm, which cancels."""
        multiplier = self.stddev(1.0, ctx.party.memory(self)["largest"], ctx.rounds)
        note = "Remark 1 as printed: sensitivity 2C/|D_k| holds for an average over records, not for a clipped update"
        return Release("gaussian", multiplier, 1.0, source="reproducible", literal=True, note=note)

    def reveals(self, ctx: Context) -> list[Reveals]:
        """The scale of the noise needs the number of examples."""
        return [Reveals("num_examples", ("aggregator",), note="sent once, in the clear, for the ledger")]

    def describe(self) -> str:
        return f"Remark 1 noise for a claimed epsilon of {self.options.epsilon:g} (literal, reproducible from the seed)"

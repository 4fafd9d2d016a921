"""SecAgg+ (Bell et al., CCS 2020): every client exchanges masks with the neighbours of a sparse random graph."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedplug import Field

from fedplug_secagg import graph
from fedplug_secagg.graph import Parameters
from fedplug_secagg.masked import Masked, MaskOptions

if TYPE_CHECKING:
    from fedplug import Recipe

_OF_DELTA = 1e-3
"""Largest share of delta for the probability that a graph falls apart, which the ledger leaves out."""


class SecAggPlus(Masked):
    """Mask updates with O(log n) neighbours each, so that masks cancel in the sum and no party holds a key (SecAgg+).

    The number of neighbours, and of their shares that open, follows from two shares of clients: those that collude with
    the server, and those that drop out. Both failure probabilities are computed and printed. Holds against an
    honest-but-curious server; `secagg.bonawitz` offers signed keys.
    """

    # Signatures are not offered here. With a server that lies after the keys are exchanged ("semi-malicious"), the
    # paper proves less: the opened sums are each over a stated share of the clients, and there may be several. The
    # ledger charges one sum. And t would have to exceed half of the neighbours by far.

    class Options(MaskOptions):
        """Options of `secagg.plus`."""

        corrupt: float = Field(
            0.05, ge=0, lt=1, description="gamma: the share of clients that may collude with the server"
        )
        dropped: float = Field(0.1, ge=0, lt=1, description="delta: the share of clients that may drop out in a round")
        sigma: float = Field(
            40.0, gt=0, description="bits of statistical security: an upload can be opened with at most 2^-sigma"
        )
        eta: float = Field(30.0, gt=0, description="bits of correctness: a sum cannot be opened with at most 2^-eta")

    options: Options

    def parameters(self, clients: int) -> Parameters:
        """The smallest graph that is secure and correct by the exact tails; see `fedplug_secagg.graph`.

        Raises:
            ProtectionError: no such graph exists.
        """
        options = self.options
        corrupt = max(options.corrupt, 1 / clients)  # a small share of few clients is none, but one is always possible
        return graph.smallest(clients, corrupt, options.dropped, options.sigma, options.eta)

    def check(self, recipe: Recipe) -> list[str]:
        """Obstacles, including a probability of failure that delta would have to cover."""
        if problems := super().check(recipe):
            return problems
        sizes = {max(3, recipe.min_clients), recipe.clients}
        chance = recipe.rounds * max(2.0 ** self.parameters(size).log2_insecure for size in sizes)
        if chance > _OF_DELTA * recipe.delta:
            return [
                f"sigma={self.options.sigma:g}: an upload is open in some round with probability {chance:.1g}, which "
                f"no epsilon covers; it may be at most {_OF_DELTA:g} x delta={recipe.delta:g}; raise sigma, to 40 "
                "for instance"
            ]
        return []

    def may_drop(self, size: int) -> int:
        """The number by `dropped`. The graph of the remaining clients is then connected but for 2^-sigma."""
        return math.floor(self.options.dropped * size + 1e-9)

    def describe(self) -> str:
        """One line for the plan of a run."""
        options = self.options
        return (
            f"SecAgg+: masks with a few neighbours each, modulo 2^{options.bits}, for up to {options.corrupt:.0%} of "
            f"the clients corrupt and {options.dropped:.0%} gone"
        )

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
"""How much of delta the chance may be that a graph falls apart, which the ledger leaves out."""


class SecAggPlus(Masked):
    """Mask updates with O(log n) neighbours each, so that masks cancel in the sum and nobody holds a key (SecAgg+).

    How many neighbours, and how many of their shares open, follows from what may go wrong: the share of clients that
    collude with the server, and the share that drops out. Both failure probabilities are computed and printed. Holds
    against an honest-but-curious server; for signed keys there is `secagg.bonawitz`.
    """

    # Signatures are not offered here. With a server that lies after the keys are exchanged ("semi-malicious"), the
    # paper proves less: that what is opened are sums over a stated share of the clients each, maybe several of them.
    # The ledger charges one sum. And t would have to exceed half of the neighbours by far (`double_asking` in `graph`).

    class Options(MaskOptions):
        """Options of `secagg.plus`."""

        corrupt: float = Field(
            0.05, ge=0, lt=1, description="gamma: the share of clients that may collude with the server"
        )
        dropped: float = Field(0.1, ge=0, lt=1, description="delta: the share of clients that may drop out in a round")
        sigma: float = Field(
            40.0, gt=0, description="bits of statistical security: an upload is open with at most 2^-sigma"
        )
        eta: float = Field(30.0, gt=0, description="bits of correctness: a sum cannot be opened with at most 2^-eta")

    options: Options

    def parameters(self, clients: int) -> Parameters:
        """The smallest graph that is secure and correct by the exact tails; see `fedplug_secagg.graph`.

        Raises:
            ProtectionError: there is none.
        """
        options = self.options
        corrupt = max(options.corrupt, 1 / clients)  # of a few clients a small share is none; one is always thinkable
        return graph.smallest(clients, corrupt, options.dropped, options.sigma, options.eta)

    def check(self, recipe: Recipe) -> list[str]:
        """What stands against it, a chance of failing among it that a delta would have to hold."""
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
        """As many as `dropped` says: for these the graph of those left is connected but for 2^-sigma."""
        return math.floor(self.options.dropped * size + 1e-9)

    def describe(self) -> str:
        """One line for the plan of a run."""
        options = self.options
        return (
            f"SecAgg+: masks with a few neighbours each, modulo 2^{options.bits}, for up to {options.corrupt:.0%} of "
            f"the clients corrupt and {options.dropped:.0%} gone"
        )

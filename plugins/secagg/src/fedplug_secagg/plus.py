"""SecAgg+ (Bell et al., CCS 2020): every client exchanges masks with the neighbours of a sparse random graph."""

from __future__ import annotations

import math

from fedplug import Field

from fedplug_secagg import graph
from fedplug_secagg.graph import Parameters
from fedplug_secagg.masked import Masked, MaskOptions


class SecAggPlus(Masked):
    """Mask updates with O(log n) neighbours each, so that masks cancel in the sum and nobody holds a key (SecAgg+).

    How many neighbours, and how many of their shares open, follows from what may go wrong: the share of clients that
    collude with the server, and the share that drops out. Both failure probabilities are computed and printed.
    """

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

"""The weighted mean of federated averaging."""

from __future__ import annotations

from typing import Literal

import fedplug
from fedplug import Adds, Block, Context, Effects, Field, Known, Wants, add_blocks, hookimpl


class Mean(fedplug.Aggregator):
    """Average the clients' updates (FedAvg).

    Every position is divided by the weight of those clients that sent it. `examples` weighs a client by its share of
    the training examples, as in McMahan et al. 2017 (the server learns how many examples each client has); `uniform`
    weighs all alike, which is what client-level differential privacy in the central model assumes.
    """

    class Options(fedplug.Options):
        weighting: Literal["examples", "uniform"] = Field("examples", description="weight of a client in the mean")

    def __init__(self, options: Options) -> None:
        self.options = options

    @property
    def wants(self) -> Wants:
        """Clients must tell how many examples they hold, where weights follow from that."""
        adds = type(self).aggregate is Mean.aggregate  # what another rule gives of some clients says nothing of all
        return Wants(num_examples=self.options.weighting == "examples", pieces=adds)

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """Weight of a client, in (0, 1]: relative to the largest data set."""
        return num_examples / max_examples

    def sums(self, known: Known, ctx: Context) -> Effects:
        """A weighted sum, weights in (0, 1]."""
        return (Adds(),)

    @hookimpl
    def aggregate(self, blocks: dict[int, Block], weights: dict[int, float], ctx: Context) -> Block:
        """Weighted sum, with its divisor."""
        return add_blocks(blocks, weights, ctx)

    def describe(self) -> str:
        return f"weighted mean, weights: {self.options.weighting}"

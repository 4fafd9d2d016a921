"""The weighted mean of federated averaging."""

from __future__ import annotations

from typing import Literal

import fedplug
from fedplug import Context, Field, Known, Operations, Wants, WeightedSum, hookimpl


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
        return Wants(num_examples=self.options.weighting == "examples")

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """Weight of a client, in (0, 1]: relative to the largest data set."""
        return num_examples / max_examples

    @hookimpl
    def aggregate(self, known: Known, ctx: Context) -> Operations:
        """The weighted sum, with the total weight at each position as its divisor."""
        return (WeightedSum(),)

    def describe(self) -> str:
        return f"weighted mean, weights: {self.options.weighting}"

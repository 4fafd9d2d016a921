"""The weighted mean of federated averaging."""

from __future__ import annotations

from typing import Literal

import fedplug
from fedplug import Facts, Field, Known, Operations, Wants, WeightedSum


class Mean(fedplug.Aggregator):
    """Average the clients' updates (FedAvg).

    Every position is divided by the weight of those clients that sent it. `examples` weights a client by its share of
    the training examples, as in McMahan et al. 2017 (the server learns the number of each client's examples); `uniform`
    gives all the same weight, as client-level differential privacy in the central model assumes.
    """

    class Options(fedplug.Options):
        weighting: Literal["examples", "uniform"] = Field("examples", description="weight of a client in the mean")

    @property
    def wants(self) -> Wants:
        """Clients must send their number of examples if weights follow from it."""
        return Wants(num_examples=self.options.weighting == "examples")

    def client_weight(self, num_examples: int, max_examples: int) -> float:
        """Weight of a client, in (0, 1]: relative to the largest data set."""
        return num_examples / max_examples

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """The weighted sum, with the total weight at each position as its divisor."""
        return (WeightedSum(),)

    def describe(self) -> str:
        return f"weighted mean, weights: {self.options.weighting}"

"""Scorers that need only the update: its magnitude, and random scores as a control."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Field

if TYPE_CHECKING:
    from fedplug import Client, Facts
    from fedplug.api.blocks import Scores


class Magnitude(fedplug.Scorer):
    """Score a scalar by how far local training moved it: |update|."""

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """|local minus global model|, (P,), in units of the parameters."""
        if client.update is None:
            raise ValueError("magnitude scores need an update; the client has not trained in this round")
        return np.abs(client.update)


class Random(fedplug.Scorer):
    """Score every scalar at random: the control that a selection by importance must beat."""

    class Options(fedplug.Options):
        """The draw of the scores."""

        shared: bool = Field(
            False,
            description="one draw a round for all clients, from the recipe's seed: a mask from it is public and does "
            "not depend on data; false: every client draws its own",
        )

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Independent uniform values in [0, 1), (P,); the same for equal seeds, new in every round."""
        rng = facts.rng(self.name) if self.options.shared else client.rng(self)
        return rng.random(facts.layout.size, dtype=np.float32)

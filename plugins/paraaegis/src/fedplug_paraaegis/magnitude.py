"""ParaAegis' scores: how large a scalar's update is, or an alternative of the ablation (paper, Sec. 3 and Table 2)."""

from __future__ import annotations

from typing import Literal

import fedplug
import numpy as np
from fedplug import Client, Facts, Field
from fedplug.api.blocks import Scores


class Magnitude(fedplug.Scorer):
    """Score each scalar by the size of its update (ParaAegis, Sec. 3).

    The clients nominate the highest scores. `max` is the paper's choice; `min` and `random` are the ablation of
    Table 2. The paper speaks of the norm of a parameter without saying which. `element` takes each scalar's magnitude.
    `tensor`, the other reading of the text, gives every scalar the L2 norm of its tensor.
    """

    class Options(fedplug.Options):
        strategy: Literal["max", "min", "random"] = Field("max", description="which updates score highest")
        granularity: Literal["element", "tensor"] = Field(
            "element", description="norm of a scalar or of its tensor; no effect where strategy is random"
        )

    options: Options

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """float32 (P,); the highest are nominated."""
        if client.update is None:
            raise ValueError("scores are taken after training")
        if self.options.strategy == "random":
            return client.rng(self).random(facts.layout.size, np.float32)
        norms = np.abs(client.update)
        if self.options.granularity == "tensor":
            for parameter in facts.layout.parameters:
                norms[parameter.slice] = np.linalg.norm(client.update[parameter.slice])
        return norms if self.options.strategy == "max" else -norms

    def describe(self) -> str:
        if self.options.strategy == "random":
            return "random scores, whatever the update"
        return f"{self.options.strategy} |update|, per {self.options.granularity}"

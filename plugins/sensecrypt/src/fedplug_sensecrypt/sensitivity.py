"""SenseCrypt's sensitivity of a scalar: how much the loss would change if it were zero, to first order (Eq. 2)."""

from __future__ import annotations

import fedplug
import numpy as np
from fedplug import Client, Facts, Scoring
from fedplug.api.blocks import Scores
from fedplug_std.per_sample import mean_gradient


class Sensitivity(fedplug.Scorer):
    """Score each scalar by |w * gradient|, the first-order change of the loss if it were zeroed (SenseCrypt, Eq. 2).

    w is the local model after training. The gradient is that of its mean cross entropy over all of the client's
    examples (Alg. 3 writes W_i^e after the local training). The paper writes a product of two vectors. A score for each
    scalar needs the terms of that product.
    """

    scoring = Scoring(per="scalar")

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Gamma_i of Alg. 1, lines 1 and 8: float32 (P,), >= 0."""
        if client.update is None:
            raise ValueError("sensitivities are taken after training")
        scores: Scores = np.abs(client.local * mean_gradient(client.model, client.data.train, client.data))
        return scores

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "|w * gradient| of the local model over all of the client's examples"

"""SelectiveShield's scores: the Fisher information of each scalar, scaled to [0, 1] within its tensor (Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import fedplug
import numpy as np
from fedplug import Client, Facts, Field, Layout, Reveals
from fedplug_std.per_sample import mean_gradient, mean_squared_gradients
from fedplug_std.scores import require_finite

from fedplug_selectiveshield.pictures import fisher_pictures

if TYPE_CHECKING:
    from fedplug.api.blocks import Scores
    from numpy.typing import NDArray


class Fisher(fedplug.Scorer):
    """Score each scalar by its Fisher information, scaled to [0, 1] (SelectiveShield, Sec. 4.1).

    The information is estimated on all training examples of the client. `per_sample` is the mean of the squared
    gradients of single examples (eq. 3). Eq. 12 prints another quantity, the square of one gradient over all examples.
    It vanishes where the gradients of examples cancel, however large each is. That is `batch_sq` (as published). Scores
    are min-max scaled (eq. 13), so a tensor whose values are all equal, such as one of a single scalar, scores 0.

    Batch norm is in evaluation mode, with the running statistics that the client has after training.
    """

    class Options(fedplug.Options):
        kind: Literal["per_sample", "batch_sq"] = Field(
            "per_sample", description="mean of squared gradients of examples (eq. 3), or squared mean gradient (eq. 12)"
        )
        at: Literal["after", "before"] = Field(
            "after",
            description="local training: after it, as in Alg. 1, or before it, as in Sec. 4.1",
        )
        normalise: Literal["tensor", "layer"] = Field(
            "tensor", description="unit that is scaled to [0, 1]: each tensor, or a layer's weight and bias together"
        )
        figure_client: int | None = Field(
            None,
            ge=0,
            description="this client sends pictures of its values, as in Fig. 5 to 7, in its first round; null: none",
        )

    options: Options

    def check(self, recipe: Any) -> list[str]:
        """The client whose values are drawn must exist."""
        chosen = self.options.figure_client
        if chosen is None or chosen < recipe.clients:
            return []
        return [f"figure_client={chosen} must be < data.clients={recipe.clients}; clients count from 0"]

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Eq. 13 of this client's Fisher information.

        Returns:
            float32 (P,), in [0, 1].

        Raises:
            ProtectionError: the model has diverged, so that its gradients are not finite.
            SetupError: the model is not a torch model.
        """
        information = self.information(client)
        scores = normalised(information, _groups(facts.layout, self.options.normalise))
        memory = client.memory(self)
        if client.client_id == self.options.figure_client and not memory.get("drawn"):
            memory["drawn"] = True
            client.figures.update(fisher_pictures(information, scores, client, facts))
        return scores

    def information(self, client: Client) -> NDArray[np.float64]:
        """Eq. 3 (or eq. 12) at the client's model: (P,), none negative.

        Raises:
            ProtectionError: the information is not finite.
        """
        train, vector = client.data.train, client.local if self.options.at == "after" else client.start
        with client.operation("fisher information", len(train)):
            if self.options.kind == "per_sample":
                found = mean_squared_gradients(client.model, train, client.data, vector=vector).astype(np.float64)
            else:
                found = np.square(mean_gradient(client.model, train, client.data, vector=vector), dtype=np.float64)
        require_finite(found, client, "the Fisher information of scalars")
        return found

    def reveals(self, facts: Facts) -> list[Reveals]:
        """The pictures, where a client sends them."""
        if self.options.figure_client is None:
            return []
        note = f"of client {self.options.figure_client}, once, in the clear; figure_client: null avoids it"
        return [Reveals("distribution of Fisher information", ("server",), note=note)]

    def describe(self) -> str:
        kind = "mean squared per-sample gradient" if self.options.kind == "per_sample" else "squared batch gradient"
        kind += "" if self.options.kind == "per_sample" else " (as published)"
        return f"Fisher information: {kind} {self.options.at} training, min-max per {self.options.normalise}"


def normalised(values: NDArray[Any], groups: Iterable[Sequence[slice]]) -> NDArray[np.float32]:
    """Eq. 13: (value - min) / (max - min) within each group of slices; 0 where all values of a group are equal.

    Args:
        values: (P,), finite.
        groups: the slices of each tensor or layer; they cover all of `values`.

    Returns:
        float32 (P,), in [0, 1].
    """
    values = values.astype(np.float64)  # here the difference of two float32 can neither overflow nor vanish
    scores = np.zeros(len(values), np.float32)
    for slices in groups:
        low = min(float(values[part].min(initial=np.inf)) for part in slices)
        high = max(float(values[part].max(initial=-np.inf)) for part in slices)
        if high > low:
            for part in slices:
                scores[part] = (values[part] - low) / (high - low)
    return scores


def _groups(layout: Layout, by: str) -> list[list[slice]]:
    if by == "layer":
        return list(layout.layer_slices().values())
    return [[parameter.slice] for parameter in layout.parameters]

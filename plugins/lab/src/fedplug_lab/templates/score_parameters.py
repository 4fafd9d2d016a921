"""Sketch: a scorer."""

import fedplug
import numpy as np
from fedplug import Client, Facts, Field
from fedplug.api.blocks import Scores


class Thing(fedplug.Scorer):
    """Score a scalar by how far it moved relative to its size."""

    class Options(fedplug.Options):
        floor: float = Field(0.001, gt=0, description="added to the size, so that scalars near 0 do not win by that")

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Runs at the client after training; the scores stay there."""
        assert client.update is not None, "scores are taken after training"
        moved = np.abs(client.update) / (np.abs(client.start) + np.float32(self.options.floor))
        return moved.astype(np.float32)

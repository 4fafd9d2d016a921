"""Small components for recipes of the kit: cheap data, a cheap model and trainer, and plans that move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug.api import roles
from fedplug.api.blocks import Plan
from fedplug.api.data import Dataset, Examples
from fedplug.api.operations import Operations, WeightedSum
from fedplug_std.scorers import Magnitude

if TYPE_CHECKING:
    from fedplug.api.blocks import Scores
    from fedplug.api.data import Model
    from fedplug.api.facts import Facts
    from fedplug.api.known import Known
    from fedplug.api.parties import Client

SHAPE, CLASSES = (1, 8, 8), 4


class Images(roles.DataSource):
    """Random grey images with random labels."""

    declares = roles.Declares(shape=SHAPE, num_classes=CLASSES)

    class Options(fedplug.Options):
        """Which ones."""

        draw: int = 0

    def load(self, root: str | None) -> Dataset:
        """160 for training, 40 for testing. How many there are of each class depends on the draw too."""
        rng = np.random.default_rng(self.options.draw)
        often = rng.dirichlet(np.full(CLASSES, 20.0))

        def split(count: int) -> Examples:
            inputs = rng.integers(0, 256, (count, *SHAPE), np.uint8)
            return Examples(inputs, rng.choice(CLASSES, count, p=often))

        return Dataset(split(160), split(40), classes=tuple("abcd"), mean=(0.5,), std=(0.3,))


class TwoLayers(roles.ModelSource):
    """Two fully connected layers."""

    class Options(fedplug.Options):
        """How large."""

        hidden: int = 64

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """Number of hidden units."""
        import torch
        from fedplug_std.torch_model import TorchModel, seeded

        inputs = int(np.prod(shape))
        with seeded(seed):
            hidden = self.options.hidden
            layers = torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, num_classes)
            return TorchModel(torch.nn.Sequential(torch.nn.Flatten(), *layers), device)


class Push(roles.Trainer):
    """Moves the model at random, far enough for any clip to act, instead of training it."""

    class Options(fedplug.Options):
        """How far."""

        scale: float = 0.05

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """A move with a few large values, of this client, round and data."""
        rng = client.rng(self, int(client.data.train.inputs.sum()))
        move = self.options.scale * rng.standard_t(3, facts.layout.size)
        client.model.set_vector(client.start + move.astype(np.float32))
        return {"loss": 0.0}


class LayerScores(roles.Scorer):
    """How far each layer moved."""

    scoring = roles.Scoring(per="layer")

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Mean |update|."""
        assert client.update is not None
        slices = facts.layout.layer_slices().values()
        return np.array([np.mean([np.abs(client.update[s]).mean() for s in parts]) for parts in slices], np.float32)


class Still(roles.Aggregator):
    """Sums with means of zero, so that every round starts from the first model, which is public."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """A weighted sum, divided by more than float32 can hold."""
        return (WeightedSum(rate=1e-300),)


class Alternating(roles.PublicPlan):
    """Sends two of three scalars in a zone, then another two of three, and then one of three."""

    class Options(fedplug.Options):
        """Which zone moves, and which has the rest."""

        zone: str = "clear"
        rest: str = "rest"

    @property
    def plans(self) -> roles.Plans:
        """Both zones."""
        return roles.Plans(zones=frozenset({self.options.zone, self.options.rest}))

    def plan(self, facts: Facts) -> Plan:
        """Zones of the first two rounds have as many scalars, and half of these in common."""
        where = np.arange(facts.layout.size)
        held = (where % 3 != 0, where % 3 != 1, where % 3 == 0)[facts.round % 3] & (where < len(where) // 3 * 3)
        return Plan.of(facts, self.options.rest, **{self.options.zone: held})


PARTS: dict[str, dict[str, type]] = {
    "dataset": {"kit.images": Images},
    "model": {"kit.two_layers": TwoLayers},
    "trainer": {"kit.push": Push},
    "score_parameters": {"kit.scores": Magnitude, "kit.layer_scores": LayerScores},
    "negotiate_mask": {"kit.alternating": Alternating},
    "aggregate": {"kit.still": Still},
}
"""The kit's components by group and name, as in a catalog."""

"""Small components for recipes of the kit: cheap data, a cheap model and trainer, and a spy on every link."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from fedplug.api import operations
from fedplug.api.component import Options, hookimpl
from fedplug.api.data import Dataset, Examples
from fedplug.api.known import Known
from fedplug.api.operations import Operations, WeightedSum
from fedplug.api.parties import Client, KeyServer
from fedplug.api.roles import (
    Aggregator,
    DataSource,
    Declares,
    Extension,
    ModelSource,
    Partition,
    Protector,
    Scorer,
    Scoring,
    Trainer,
)
from fedplug_std.single_zone import SingleZone

if TYPE_CHECKING:
    from fedplug.api.blocks import Scores
    from fedplug.api.data import Model
    from fedplug.api.facts import Facts
    from numpy.typing import NDArray

SHAPE, CLASSES = (1, 8, 8), 4
SERVER = "the server"


class Images(DataSource):
    """Random grey images with random labels."""

    declares = Declares(shape=SHAPE, num_classes=CLASSES)

    class Options(Options):
        """Which ones."""

        draw: int = 0

    def load(self, root: str | None) -> Dataset:
        """160 for training, 40 for testing."""
        rng = np.random.default_rng(self.options.draw)

        def split(count: int) -> Examples:
            inputs = rng.integers(0, 256, (count, *SHAPE), np.uint8)
            return Examples(inputs, np.arange(count) % CLASSES)

        return Dataset(split(160), split(40), classes=tuple("abcd"), mean=(0.5,), std=(0.3,))


class InOrder(Partition):
    """Equal shares, in order."""

    def assign(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """The examples cut into `num_clients` parts."""
        return [np.asarray(part, np.int64) for part in np.array_split(np.arange(len(labels)), num_clients)]


class TwoLayers(ModelSource):
    """Two fully connected layers."""

    class Options(Options):
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


class Push(Trainer):
    """Moves the model at random, far enough for any clip to act, instead of training it."""

    class Options(Options):
        """How far."""

        scale: float = 0.05

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """A move with a few large values, of this client, round and data."""
        rng = client.rng(self, int(client.data.train.inputs.sum()))
        move = self.options.scale * rng.standard_t(3, facts.layout.size)
        client.model.set_vector(client.start + move.astype(np.float32))
        return {"loss": 0.0}


class UpdateScores(Scorer):
    """How far each scalar moved."""

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """|update|."""
        assert client.update is not None
        return np.abs(client.update)


class LayerScores(Scorer):
    """How far each layer moved."""

    scoring = Scoring(per="layer")

    def score_parameters(self, client: Client, facts: Facts) -> Scores:
        """Mean |update|."""
        assert client.update is not None
        slices = facts.layout.layer_slices().values()
        return np.array([np.mean([np.abs(client.update[s]).mean() for s in parts]) for parts in slices], np.float32)


class Clip(Protector):
    """Scales a zone down to a norm."""

    class Options(Options):
        """The norm."""

        norm: float = 1.0
        order: int = 2

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip."""
        return (operations.Clip(self.options.norm, order=self.options.order),)


class Sum(Aggregator):
    """The unweighted mean of all."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """A weighted sum."""
        return (WeightedSum(),)


class Still(Aggregator):
    """Sums with means of zero, so that every round starts from the first model, which is public."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """A weighted sum, divided by more than float32 can hold."""
        return (WeightedSum(rate=1e-300),)


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
    """The operations that a link gave when it was asked.

    Attributes:
        hook, zone, link: place of the link.
        round: 0-based.
        party: the party that was asked, such as `client 2`.
        known: the known facts about the values before it.
        given: the operations.
    """

    hook: str
    zone: str
    link: str
    round: int
    party: str
    known: Known
    given: Any


class Spy(Extension):
    """Notes the operations of every link, at every party."""

    seen: ClassVar[list[Seen]] = []

    @hookimpl(wrapper=True)
    def protect(self, known: Known, facts: Facts) -> Generator[None, Any, Any]:
        """A protector's operations."""
        return (yield from self._note("protect", known, facts))

    @hookimpl(wrapper=True)
    def aggregate(self, known: Known, facts: Facts) -> Generator[None, Any, Any]:
        """An aggregator's."""
        return (yield from self._note("aggregate", known, facts))

    @hookimpl(wrapper=True)
    def postprocess(self, known: Known, facts: Facts) -> Generator[None, Any, Any]:
        """An opener's."""
        return (yield from self._note("postprocess", known, facts))

    def _note(self, hook: str, known: Known, facts: Facts) -> Generator[None, Any, Any]:
        given = yield
        self.seen.append(Seen(hook, known.zone, known.link, facts.round, party_of(facts), known, given))
        return given


def party_of(facts: Facts) -> str:
    """The party of a context in words. It does not read the attribute, because a component that reads it is taken to
    depend on it."""
    party = vars(facts)["party"]
    match party:
        case Client(client_id=number):
            return f"client {number}"
        case KeyServer():
            return "the key server"
    return SERVER


PARTS: dict[str, dict[str, type]] = {
    "dataset": {"kit.images": Images},
    "partition": {"kit.in_order": InOrder},
    "model": {"kit.two_layers": TwoLayers},
    "trainer": {"kit.push": Push},
    "score_parameters": {"kit.scores": UpdateScores, "kit.layer_scores": LayerScores},
    "negotiate_mask": {"kit.one_zone": SingleZone},
    "protect": {"kit.clip": Clip},
    "aggregate": {"kit.sum": Sum, "kit.still": Still},
    "extension": {"kit.spy": Spy},
}
"""The kit's components by group and name, as in a catalog."""

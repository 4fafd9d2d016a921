"""What the core needs of a model: a flat vector in, a flat vector out, buffers apart, and an evaluation.

The core never imports torch; `fedplug.torch_model.TorchModel` implements this for any `torch.nn.Module`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedplug.types import ClientData, Examples, Layout


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of one evaluation: `correct` and `count` of examples, or of pixels, and their summed `loss` (nats).

    Attributes:
        correct, count, loss: as said.
        pixels: of a segmentation, how many pixels were rightly and wrongly taken for foreground (any class but the
            first), and how many of it were missed: `true_positives`, `false_positives`, `false_negatives`.
    """

    correct: int
    count: int
    loss: float
    pixels: dict[str, int] = dataclasses.field(default_factory=dict)


class Model(Protocol):
    """A model as the core handles it."""

    layout: Layout

    def get_vector(self) -> NDArray[np.float32]:
        """All trainable parameters as one flat copy, (P,)."""

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Overwrites all trainable parameters."""

    def get_buffers(self) -> dict[str, NDArray[Any]]:
        """Non-trainable state by name, such as batch-norm statistics; copies."""

    def set_buffers(self, buffers: dict[str, NDArray[Any]]) -> None:
        """Overwrites the named buffers."""

    def evaluate(self, examples: Examples, data: ClientData) -> Evaluation:
        """Counts correct predictions in evaluation mode."""


class ModelComponent(Protocol):
    """A component of the group `fedplug.model`."""

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """Builds the model with weights that depend on `seed` alone. `shape` is (C, H, W) of one example."""


class TrainerComponent(Protocol):
    """A component of the group `fedplug.trainer`."""

    def train(self, client: Any, ctx: Any) -> dict[str, float]:
        """Trains `client.model`, which holds `client.start`, on `client.data.train`.

        Returns numbers for the metrics; `loss` is the mean training loss of the last epoch. Randomness comes from
        `client.rng(self, ...)` alone, so that engines agree bit for bit.

        A trainer may also have `personalise(client, ctx)`, called before round 1 and whenever the global model
        `client.vector` has moved: it sets `client.personal`, the model of its own that this client starts from and
        uses. One that protects single records while it trains has `record_release(client, ctx)`, which gives
        (noise multiplier, sampling rate, steps) of the round, and `record_epsilon(releases, delta)`, which gives the
        epsilons of a list of those by method, the headline first.
        """


class DatasetComponent(Protocol):
    """A component of the group `fedplug.dataset`."""

    def load(self, root: str | None) -> Any:
        """Gives a `fedplug.Dataset`. `root` is the folder of data sets, or None where the user named none."""


class PartitionComponent(Protocol):
    """A component of the group `fedplug.partition`."""

    def assign(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """For each client, the indices of its examples: disjoint, and none empty."""


class GroupsComponent(Protocol):
    """A component of the group `fedplug.groups`: which clients share a model."""

    def form_groups(self, cohort: Any, ctx: Any) -> None:
        """Runs at the server in every round, after the clients were told to train and before the negotiation.

        May ask the clients and, in round 1, call `cohort.regroup({name: [client ids]})`, which stays in force. The
        negotiation then runs once a group.
        """


class AccountantComponent(Protocol):
    """A component of the group `fedplug.accountant`: epsilon of sampled Gaussian releases (q < 1)."""

    def epsilon(self, releases: list[tuple[float, float]], delta: float, adjacency: str) -> dict[str, float]:
        """Epsilon of a list of (noise_multiplier, sampling_rate), one pair a round.

        `adjacency` is `zero_out` or `replace_one`. Gives one value per method, the headline first, for instance
        `{"pld": 5.91, "rdp": 6.61}`.

        An accountant may also have `compose(releases, delta, adjacency)` for lists of (mechanism, noise_multiplier,
        sampling_rate, count), with the mechanisms of `fedplug.Release`; without it, Laplace noise and pure mechanisms
        are accounted by Renyi DP.
        """

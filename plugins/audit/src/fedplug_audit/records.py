"""Canary records: training examples that coins leave in or take out, for an account of single records.

A canary is a random example with a random class that replaces one of the data set's examples. If its coin says out, no
client has it. The client that would have had it has one record less, which is the adjacency of such accounts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from fedplug.api.data import Dataset, Examples
from fedplug.api.errors import SetupError
from fedplug.api.events import Event, Uploaded
from numpy.typing import NDArray

from fedplug_audit.canaries import Replaced, added, class_with, stream_of

if TYPE_CHECKING:
    from fedplug import Client, Facts
    from fedplug.api.blocks import Block, Plan
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.recipe import Recipe
STANDING_OUT = 1 / 16
"""Share of a canary's numbers that are the data set's smallest or largest; the others are its mean."""


@dataclasses.dataclass(eq=False)
class CanaryRecords:
    """The canary records of one run.

    Args:
        ids: their numbers, from 0.
        seed: seed of coins, places and examples; nobody in the run knows it.
        all_out: no client has a canary, whatever the coins say.

    Attributes:
        inside: (m,) bool, the coins, tossed before training.
    """

    ids: tuple[int, ...]
    seed: int
    all_out: bool = False
    hears: ClassVar[tuple[type[Event], ...]] = (Uploaded,)

    def __post_init__(self) -> None:
        self.inside = stream_of(self.seed, "coins").random(len(self.ids)) < 0.5
        self._places = np.zeros(0, np.int64)
        self._owners: dict[int, list[int]] = {}
        self._clients: dict[int, Any] = {}
        self._plans: dict[tuple[int, int], Plan | None] = {}
        self._starts: dict[tuple[int, int], NDArray[np.float32]] = {}
        self._first: NDArray[np.float32] | None = None
        self._examples: Examples | None = None

    def observe(self, event: Event) -> None:
        """Notes the positions of uploads in the model."""
        if isinstance(event, Uploaded):
            self._plans |= {(event.round, client_id): client.plan for client_id, client in self._clients.items()}

    def replaced(self, recipe: Recipe, catalog: Catalog) -> Replaced:
        """The data set with canaries, the partition without those that are out, and a trainer that reports who trains.

        Raises:
            SetupError: the recipe has no data set here to put canaries into.
        """
        partition = recipe.data.partition
        if partition is None or recipe.data.public:
            raise SetupError("records: an audit of records needs a data set that is split here, without data.public")
        data, parts, trainer = (
            catalog.groups[group][use].load()
            for group, use in (
                ("dataset", recipe.data.use), ("partition", partition.use), ("trainer", recipe.train.use),
            )
        )  # fmt: skip
        base: Any = data
        cut: Any = parts
        learner: Any = trainer
        canaries = self

        # Components are inspected: their methods must have the role's argument names.
        def load(self: Any, root: str | None) -> Dataset:
            return canaries.planted(base.load(self, root))

        def assign(
            self: Any, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator
        ) -> list[NDArray[np.int64]]:
            return canaries.split(cut.assign(self, labels, num_clients, rng))

        def train(self: Any, client: Client, facts: Facts) -> dict[str, float]:
            canaries.note(client, facts)
            numbers: dict[str, float] = learner.train(self, client, facts)
            return numbers

        return {
            ("dataset", recipe.data.use): class_with(base, load=load, declares=base.declares),
            ("partition", partition.use): class_with(cut, assign=assign),
            ("trainer", recipe.train.use): class_with(learner, train=train),
        }

    def planted(self, data: Dataset) -> Dataset:
        """A data set in which some training examples are canaries, whatever the coins say.

        Raises:
            SetupError: there are too few examples, or they have no classes.
        """
        train, count = data.train, len(self.ids)
        if train.targets is not None:
            raise SetupError("records: canaries are examples of a class, and the labels here are not classes")
        if count > len(train) // 2:
            raise SetupError(f"records={count} must be at most {len(train) // 2}, half of the training examples")
        stream = stream_of(self.seed, "records")
        self._places = stream.permutation(len(train))[:count]
        inputs, labels = train.inputs.copy(), train.labels.copy()
        # Few extreme numbers, so that the gradients of two canaries have little in common.
        lowest, mean, highest = np.array([inputs.min(), inputs.mean(), inputs.max()]).astype(inputs.dtype)
        drawn = stream.random((count, *train.shape))
        inputs[self._places] = np.where(drawn < STANDING_OUT / 2, lowest, np.where(drawn < STANDING_OUT, highest, mean))
        labels[self._places] = stream.integers(len(data.classes), size=count)
        self._examples = Examples(inputs[self._places], labels[self._places])
        return dataclasses.replace(data, train=Examples(inputs, labels, None, train.regions))

    def split(self, assignment: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """An assignment without the canaries that are out. It notes which client has, or would have, each of them."""
        out = self._places if self.all_out else self._places[~self.inside]
        self._owners = {
            client_id: np.flatnonzero(np.isin(self._places, part)).tolist() for client_id, part in enumerate(assignment)
        }
        return [np.asarray(part)[~np.isin(part, out)] for part in assignment]

    def note(self, client: Client, facts: Facts) -> None:
        """Notes the model that a client trains from in a round."""
        self._first = client.vector if self._first is None else self._first
        self._clients[client.client_id] = client
        self._starts[facts.round, client.client_id] = client.start

    def along_models(self) -> NDArray[np.float64]:
        """Decrease (m,) of each canary's loss from the first model to the last, in nats."""
        found = np.zeros(len(self.ids))
        for client_id, client in self._clients.items():
            numbers = self._owners.get(client_id, [])
            if numbers and self._first is not None:
                found[numbers] = self._losses(client, self._first, numbers) - self._losses(
                    client, client.vector, numbers
                )
        return found

    def along_server(self, uploads: Iterable[tuple[int, int, Mapping[str, Block]]]) -> NDArray[np.float64]:
        """Decrease (m,) of each canary's loss by all uploads of its client that the server can read."""
        found = np.zeros(len(self.ids))
        for round, client_id, blocks in uploads:
            numbers, start = self._owners.get(client_id, []), self._starts.get((round, client_id))
            if not numbers or start is None:
                continue
            moved = added(start, blocks, self._plans.get((round, client_id)))
            client = self._clients[client_id]
            found[numbers] += self._losses(client, start, numbers) - self._losses(client, moved, numbers)
        return found

    def along_sums(self, sealed: Set[str]) -> NDArray[np.float64]:
        """Zeros (m,): a sum over clients says too little about a single record."""
        return np.zeros(len(self.ids))

    def _losses(self, client: Any, vector: NDArray[np.float32], numbers: Sequence[int]) -> NDArray[np.float64]:
        """Losses of single canaries under a model."""
        assert self._examples is not None  # the data were loaded before anybody trained
        model = client.loaded(np.asarray(vector, np.float32))
        each = [self._examples.take(np.array([number])) for number in numbers]
        return np.array([found.loss for found in model.evaluate_each(each, client.data)], np.float64)

"""A plugin that needs nothing but the kernel: logistic regression on points in the plane, in numpy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import fedplug
import numpy as np
from fedplug.api.events import Asking, Event, Released, RoundClosed


class Points(fedplug.DataSource):
    """Two clouds of points."""

    def load(self, root: str | None) -> fedplug.Dataset:
        """400 to train on, 100 to test with."""
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 2, 500)
        points = (rng.standard_normal((500, 2)) + 2 * labels[:, None]).astype(np.float32)
        train, test = (fedplug.Examples(points[some], labels[some]) for some in (slice(400), slice(400, 500)))
        return fedplug.Dataset(train, test, classes=("low", "high"), mean=(), std=())


class Turns(fedplug.Partition):
    """One example for each client in turn."""

    def assign(self, labels: Any, num_clients: int, rng: np.random.Generator) -> list[Any]:
        """Every `num_clients`th example, from the client's number on."""
        return [np.arange(first, len(labels), num_clients) for first in range(num_clients)]


class Logistic:
    """Weights (2,) and an offset, which begin at zero."""

    layout = fedplug.Layout.of([("weights", (2,)), ("offset", (1,))])
    module = None

    def __init__(self) -> None:
        self.vector = np.zeros(3, np.float32)

    def get_vector(self) -> Any:
        return self.vector.copy()

    def moved_from(self, start: Any) -> Any:
        return self.vector - start

    def set_vector(self, vector: Any) -> None:
        self.vector = vector.copy()

    def get_buffers(self) -> dict[str, Any]:
        return {}

    def set_buffers(self, buffers: dict[str, Any]) -> None:
        pass

    def chances(self, points: Any) -> Any:
        return 1 / (1 + np.exp(-(points @ self.vector[:2] + self.vector[2])))

    def evaluate(self, examples: fedplug.Examples, data: fedplug.ClientData) -> fedplug.Evaluation:
        chances = self.chances(examples.inputs)
        right = int(((chances > 0.5) == examples.labels).sum())
        loss = -np.log(np.where(examples.labels == 1, chances, 1 - chances) + 1e-9).sum()
        return fedplug.Evaluation(correct=right, count=len(examples), loss=float(loss))

    def evaluate_each(self, sets: Any, data: fedplug.ClientData, kept: Any = None) -> list[fedplug.Evaluation]:
        return [self.evaluate(examples, data) for examples in sets]


class Linear(fedplug.ModelSource):
    """Logistic regression."""

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Any:
        """At zero."""
        return Logistic()


class Descent(fedplug.Trainer):
    """Full gradients."""

    class Options(fedplug.Options):
        """How far a step goes."""

        lr: float = fedplug.Field(0.5, gt=0, description="learning rate")

    def train(self, client: fedplug.Client, facts: fedplug.Facts) -> dict[str, float]:
        """Ten steps. What is right of its own examples before them is told."""
        model, train = client.model, client.data.train
        right = float(((model.chances(train.inputs) > 0.5) == train.labels).mean())
        for _ in range(10):
            error = model.chances(train.inputs) - train.labels
            gradient = np.append(train.inputs.T @ error, error.sum()) / len(train)
            model.set_vector((model.get_vector() - self.options.lr * gradient).astype(np.float32))
        return {"right": right}


class Whole(fedplug.PublicPlan):
    """Everything is clear."""

    plans = fedplug.Plans(zones=frozenset({"clear"}), fixed=True)

    def plan(self, facts: fedplug.Facts) -> str:
        """The zone that holds the model."""
        return "clear"


class Mean(fedplug.Aggregator):
    """The weighted mean."""

    def aggregate(self, known: fedplug.Known, facts: fedplug.Facts) -> fedplug.Operations:
        """Adds up."""
        return (fedplug.WeightedSum(),)


class Ledger(fedplug.Extension):
    """Counts the uploads of each client, and ends a run before one gives more than it may."""

    hears = (Asking, Released)

    class Options(fedplug.Options):
        """A budget."""

        uploads: int = fedplug.Field(ge=1, description="of each client, at most")

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.spent: Counter[int] = Counter()

    def observe(self, event: Event) -> list[str]:
        """Refuses at `Asking`, before anybody is asked; counts what was released."""
        if isinstance(event, Asking):
            spent = [client for client in event.clients if self.spent[client] >= self.options.uploads]
            if spent:
                had = f"clients {spent} have given {self.options.uploads} uploads"
                raise fedplug.FedplugError(f"{had}, and give no more")
        elif isinstance(event, Released):
            self.spent.update(event.charged)
        return []


class Console(fedplug.Extension):
    """A line a round."""

    hears = (RoundClosed,)

    def observe(self, event: Event) -> None:
        """Prints it."""
        assert isinstance(event, RoundClosed)
        print(f"round {event.round + 1}: {len(event.answered)} of {len(event.asked)} clients")

"""The roles around the rounds: data and model before, accounts, attacks and metrics after, and what looks on."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from fedplug.api.base import Component
from fedplug.api.role_records import Declares, Finds, Measures

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.context import Context
    from fedplug.api.data import Dataset
    from fedplug.api.events import Event
    from fedplug.api.model import Model


class DataSource(Component, role=True):
    """Loads a data set."""

    @property
    def declares(self) -> Declares:
        """What it is known to hold before it is loaded; by default nothing, so that only a run tells what fits."""
        return Declares()

    @abc.abstractmethod
    def load(self, root: str | None) -> Dataset:
        """The data set. `root` is the folder of data sets, or None where the user named none; with data at sites, the
        folder of one client's site.
        """


class Partition(Component, role=True):
    """Says which examples each client has."""

    @abc.abstractmethod
    def assign(self, labels: NDArray[np.int64], num_clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """For each client, the indices of its examples: disjoint, and none empty."""

    def categories(self, num_clients: int) -> Sequence[int] | None:
        """The true category of each client, for `Groups.assess`; None where clients have none."""
        return None


class ModelSource(Component, role=True):
    """Builds the model."""

    @abc.abstractmethod
    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """The model, with weights that depend on `seed` alone. `shape` is (C, H, W) of one example."""

    def refuses(self, shape: tuple[int, ...], num_classes: int | None, per: Literal["example", "pixel"]) -> str | None:
        """Why it takes no examples of this shape, and the remedy: `it takes images of at least 12x12; use larger ones`.

        `fedplug check` asks before any data is loaded, and a run before the model is built, so nothing heavy is
        imported here. None where it takes them, or only `build` tells.

        Args:
            shape: (C, H, W) of one example.
            num_classes: as `build` is told; None where it is not known yet.
            per: whether the data has one class an `example`, or one a `pixel`.
        """
        return None

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Figures of the task beside accuracy, by title, from `Evaluation.task` summed over the clients.

        Runs at the server. Counts come from clients, so a name may be missing; what raises is noted and left out.
        """
        return {}


class Accountant(Component, role=True):
    """States epsilon of sampled releases, and of releases that are not Gaussian."""

    @abc.abstractmethod
    def compose(
        self, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str
    ) -> dict[str, float] | None:
        """Epsilon of releases together, each (mechanism, noise_multiplier, sampling_rate, count).

        Args:
            releases: those that are sampled are `gaussian`; others `laplace` or `pure` too. Multipliers are those of
                zero-out, whichever the adjacency.
            delta: failure probability, 0 < delta < 1.
            adjacency: `zero_out` or `replace_one`.

        Returns:
            One value a method, the headline first, such as `{"pld": 5.91, "rdp": 6.61}`. None where it does not know
            one of the mechanisms: the ledger then composes them by Renyi DP, without credit for sampling.
        """


class Attack(Component, role=True):
    """Tries to learn about clients' data from what one adversary observed; outside every party."""

    @property
    @abc.abstractmethod
    def finds(self) -> Finds:
        """What it looks for."""

    @property
    def form(self) -> Literal["adaptive", "naive"] | None:
        """Its form, where it has several."""
        return None

    @abc.abstractmethod
    def attack(self, view: Any, ctx: Context) -> Any:
        """What it found in a `fedplug_attacks.View`: `fedplug_attacks.AttackReport("finished", ...)`, or `diverged` or
        `not_applicable` with a reason.
        """

    def in_form(self, form: Literal["adaptive", "naive"]) -> Self | None:
        """The same attack in another form; None where it has but one."""
        return None


class Metric(Component, role=True):
    """One or a few numbers about what an attack found, against the truth."""

    @property
    @abc.abstractmethod
    def measures(self) -> Measures:
        """What it compares, and how to read it."""

    @abc.abstractmethod
    def score(self, found: Any, truth: Any) -> dict[str, Any]:
        """The numbers, by name, of an `AttackReport` against a `fedplug_attacks.Truth`.

        Images are in the order of `truth.images`: the scorer has matched them.

        Raises:
            MetricError: it is not defined for these images, counts or scores.
        """


class Extension(Component, role=True):
    """Looks on: it hears the events of a run in `observe`, or wraps hooks with methods named after them, marked
    `@hookimpl(wrapper=True)`, which change no block and no score.
    """

    every_run: ClassVar[bool] = False
    """Whether it hears every run of whoever has it installed; `--without NAME` sends it away."""
    hears: ClassVar[tuple[type, ...]] = ()
    """The events that it hears, such as `(RowComplete,)`; none named stands for all. Naming them saves copies."""

    def observe(self, event: Event) -> Iterable[str] | None:
        """Hears the events of the run (`fedplug.api.events`), at the server, in order, before the run goes on; gives
        what people should read of it, as notes, or None.

        It gets a copy of each, so that nothing it does to one reaches the run.
        A `FedplugError` stops the run: at `RoundStarted` or `Asking`, before anything is released. Anything else that
        is raised is noted once, and the extension hears no more.
        """

"""The component that asks: its statistics' sums are the parameters of its model, and a client's sums are its update."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import fedplug
import numpy as np
from fedplug import Evaluation, Examples, Field, Figure
from fedplug.api.blocks import Layout
from fedplug.api.errors import ProtectionError
from pydantic import Discriminator, Tag, model_validator

from fedplug_analytics.cells import Contingency, Histogram, Quantiles
from fedplug_analytics.moments import Count, Mean, TTest
from fedplug_analytics.statistic import Records, Statistic, placed
from fedplug_analytics.survival import KaplanMeier

if TYPE_CHECKING:
    from fedplug import Client, ClientData, Facts, Model, Recipe
    from numpy.typing import NDArray

KINDS: dict[str, type[Statistic]] = {
    "contingency": Contingency, "count": Count, "histogram": Histogram, "kaplan_meier": KaplanMeier, "mean": Mean,
    "quantiles": Quantiles, "t_test": TTest,
}  # fmt: skip
"""The statistics. What one record adds to them is part of what `analytics.noised` promises, so that the promise would
rest on those of another distribution: it subclasses `Statistics` with `Options` of its kinds, and is named."""


def _kind(given: Any) -> str | None:
    """The kind of a statistic as a recipe has it, or as it was read."""
    return given.get("statistic") if isinstance(given, dict) else getattr(given, "statistic", None)


if TYPE_CHECKING:
    AnyStatistic = Statistic
else:
    _ANY = functools.reduce(operator.or_, (Annotated[kind, Tag(name)] for name, kind in KINDS.items()))
    _WHICH = Discriminator(
        _kind, custom_error_type="statistic",
        custom_error_message=f"each names its kind as statistic: {', '.join(KINDS)}",
    )  # fmt: skip
    AnyStatistic = Annotated[_ANY, _WHICH]

FOUND = Figure("numbers found", better="higher")
"""How many of the figures of its statistics a vector of sums gives."""


_MOST_SUMS = 100_000


class Statistics(fedplug.ModelSource, fedplug.Trainer, fedplug.Task):
    """Ask statistics of the clients' records: counts, means, histograms, quantiles, survival curves, and tests.

    There is nothing to train. The model is the vector of all sums, 0 at first; a client's update is the sums of its own
    records, and the released mean of updates times the number of clients is the sum over all of them. A recipe names
    this component as `model`, `task` and `train`, has one round, and gives all clients the same weight. Protection is
    that of any update: its zones, noise and encryption. The section `answers` makes answers of the sums.

    Records are the clients' training examples; with data at sites also those that a site holds out. A column is its
    name, its number from 0 where it has none, or `label`, the class. Each item of `of` has `statistic` and its options:

    * `count`: the number of records.
    * `mean`: mean and variance of `column`, which lies in `bounds: [low, high]`.
    * `histogram`: records of `column` between `edges`, or with each of `values`, and their shares.
    * `contingency`: records by two columns, `rows` and `columns`, each `{column, edges}` or `{column, values}`, with
      the chi-square test of independence.
    * `quantiles`: of `column` in `bounds`, from `bins` equal intervals, at the shares `at`.
    * `t_test`: Welch's test of `column` in `bounds`, between two `groups: {column, values}`.
    * `kaplan_meier`: survival by `time` and `event` on the grid `times`; with `groups` a curve each, and log-rank.

    Bounds, edges and times are public: what one record adds at most follows from them.
    """

    class Options(fedplug.Options):
        """The questions."""

        of: tuple[AnyStatistic, ...] = Field(
            min_length=1, max_length=100,
            description="the statistics, each with `statistic`, its kind, and the options of that kind",
        )  # fmt: skip
        small_cells: int = Field(
            0, ge=0, description="numbers of fewer records than this are hidden in answers, as far as the noise shows, "
            "and the metrics have no figures; each statistic hides by itself, so two of one column may show together "
            "what one hides, and those who see the released sums can work all out",
        )  # fmt: skip

        @model_validator(mode="after")
        def _not_too_many(self) -> Statistics.Options:
            if (size := sum(each.size for each in self.of)) > _MOST_SUMS:
                raise ValueError(f"these statistics have {size:,} sums, at most {_MOST_SUMS:,}; use wider intervals")
            return self

    options: Options

    @property
    def statistics(self) -> Sequence[Statistic]:
        """The questions, in the order of their sums."""
        return self.options.of

    @property
    def size(self) -> int:
        """How many sums there are."""
        return sum(each.size for each in self.statistics)

    def record_norm(self, order: float) -> float:
        """The largest norm, L1 or L2, of what one record adds to all sums together."""
        return float(math.fsum(each.record_norm(order) ** order for each in self.statistics) ** (1 / order))

    def local_sums(self, data: ClientData) -> NDArray[np.float64]:
        """The sums of a client's records, (size,)."""
        return np.asarray(sum(self._sums(Records(part, data)) for part in own_records(data)))

    def _sums(self, records: Records) -> NDArray[np.float64]:
        return np.concatenate([each.sums(records) for each in self.statistics])

    # -- as the model --------------------------------------------------------------------------------------------------

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> Model:
        """The vector of sums, with a layer for each statistic."""
        named = [(f"{place}_{each.statistic}.sums", (each.size,)) for place, each in enumerate(self.statistics)]
        return Sums(Layout.of(named), self.figures_of)

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """The number of sums."""
        return self.size

    def figures_of(self, mean: NDArray[np.float64]) -> dict[str, float]:
        """What the statistics say of the mean of clients' sums, by name.

        Nothing where small cells are to be hidden: a mean does not tell of how many records it is.
        """
        return {
            name: float(value)
            for each, place in (placed(self.statistics) if not self.options.small_cells else ())
            for name, value in each.figures(mean[place]).items()
            if math.isfinite(value)
        }

    # -- as the trainer ------------------------------------------------------------------------------------------------

    def train(self, client: Client, facts: Facts) -> dict[str, float]:
        """Puts the client's sums into the model."""
        client.model.set_vector(self.local_sums(client.data).astype(np.float32))
        return {}

    def one_batch(self, client: Client, facts: Facts, batch_size: int) -> Self:
        """Itself: it takes the sums of whatever examples the client has."""
        return self.varied()

    # -- as the task ---------------------------------------------------------------------------------------------------

    judged_by: tuple[Figure, ...] = (FOUND,)

    @property
    def descends(self) -> str:
        """Nothing is trained: an update is sums over records."""
        return ""

    def losses(self, outputs: Any, answers: Any) -> Any:
        """Sums have no loss. Raises ProtectionError."""
        raise ProtectionError(f"{self.name} has no loss; name it as model, task and train, or as none of them")

    def counts(self, outputs: Any, answers: Any) -> Mapping[str, float]:
        """Nothing is predicted. Raises ProtectionError."""
        return dict(self.losses(outputs, answers))

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """What clients read off the released sums, which is the same at all of them."""
        clients = counts.get("clients", 0.0)
        found = {name: value / clients for name, value in counts.items() if name != "clients"} if clients else {}
        return {FOUND.name: float(len(found)), **found}

    def refuses(self, *asked: Any, **named: Any) -> str | None:
        """As a task, of examples and what is known of them: why they lack what a statistic names. As a model: None."""
        if not (len(asked) == 2 and isinstance(asked[0], Examples)):
            return None
        records, problems = Records(*asked), []
        for each in self.statistics:
            try:
                each.sums(records)
            except ValueError as error:
                problems.append(f"{each.title}: {error}")
        return "; ".join(problems) or None

    # -- as all of them ------------------------------------------------------------------------------------------------

    def check(self, recipe: Recipe) -> list[str]:
        """The recipe is one of statistics, and what the clients' sums pass through adds them up."""
        said = []
        if {recipe.model.name, recipe.task and recipe.task.name} != {self.name}:
            said.append(f"its sums are a model without a loss; name it as model and as task: task: {self.name}")
        if recipe.rounds != 1:
            said.append(f"rounds={recipe.rounds}, and sums are taken once; write rounds: 1")
        if recipe.sampling is not None:
            said.append("sampling leaves clients out of the sums; leave it out")
        return said

    def describe(self) -> str:
        """One line for the plan of the run."""
        hides = f"; numbers of fewer than {self.options.small_cells} hidden" if self.options.small_cells else ""
        return f"{self.size} sums: {'; '.join(each.title for each in self.statistics)}{hides}"


def own_records(data: ClientData) -> list[Examples]:
    """A client's records: its training examples, and at a site those that it holds out, which no other has."""
    return [data.train, data.own_test] if at_site(data) else [data.train]


def at_site(data: ClientData) -> bool:
    """Whether a client's data lies at its site, where no other has the examples that it holds out."""
    return data.own_places is None


def statistics_of(facts: Facts) -> Statistics:
    """The statistics of a recipe.

    Raises:
        ProtectionError: it has none.
    """
    found = next((part for part in facts.components.values() if isinstance(part, Statistics)), None)
    if found is None:
        raise ProtectionError("the recipe asks no statistics; write model: {use: analytics.statistics, of: [...]}")
    return found


@dataclasses.dataclass(eq=False)
class Sums:
    """The vector of sums as a model. It predicts nothing, so evaluating it reads no example.

    Attributes:
        layout: of the sums.
        figures_of: the figures of a mean of clients' sums.
    """

    layout: Layout
    figures_of: Any
    module: Any = None

    def __post_init__(self) -> None:
        self._vector: NDArray[np.float32] = np.zeros(self.layout.size, np.float32)

    def get_vector(self) -> NDArray[np.float32]:
        """A copy."""
        return self._vector.copy()

    def moved_from(self, start: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sums less those of before."""
        return self._vector - start

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Takes a copy."""
        self._vector = np.array(vector, np.float32)

    def get_buffers(self) -> dict[str, NDArray[Any]]:
        """None."""
        return {}

    def set_buffers(self, buffers: dict[str, NDArray[Any]]) -> None:
        """There are none."""

    def evaluate(self, examples: Examples, data: ClientData) -> Evaluation:
        """The figures of the released sums: the same at all clients, whatever the examples.

        Of no answers, so that nobody shows a loss; at a site of one, since figures of a site count by its answers.
        """
        found = self.figures_of(self._vector.astype(np.float64))
        return Evaluation(0, int(at_site(data)), 0.0, task={"clients": 1.0, **found})

    def evaluate_each(
        self, sets: Sequence[Examples], data: ClientData, kept: dict[str, Any] | None = None
    ) -> list[Evaluation]:
        """The same for each set."""
        return [self.evaluate(examples, data) for examples in sets]

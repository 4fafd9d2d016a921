"""What a statistic is: the sums that it takes of a client's records, and what it makes of those of all clients.

A statistic has no party in hand. `sums` gives one client's share, a bounded contribution of each record added up, and
`answer` reads the released total. So what protects the total protects every answer.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fedplug import Field
from fedplug.api.component import Options
from fedplug.api.records import Number, Record, Text
from pydantic import AfterValidator

if TYPE_CHECKING:
    from fedplug.api.data import About, Examples
    from numpy.typing import NDArray

_STEP, _AT_ONCE = 1e-30, 256
"""Of a derivative: the step, far below the rounding of sums, and for how many cells it is taken at once."""
LABEL = "label"
"""How a column of a statistic names the class of each record, where the data set has classes."""

Column = Annotated[str | int, Field(description="its name, its number from 0 where it has none, or `label`")]


def as_held(numbers: Any) -> NDArray[np.float64]:
    """Numbers of a recipe as examples hold them: 0.1 is the float32 next to it, so that records with 0.1 are found."""
    return np.asarray(numbers, np.float32).astype(np.float64)


def rising(given: tuple[float, ...]) -> tuple[float, ...]:
    """Raises ValueError unless each number is above the one before it, also in float32."""
    if not (np.diff(as_held(given)) > 0).all():
        raise ValueError(
            f"{list(given[:6])} must rise; write each number once, the smallest first, and farther apart than float32 "
            "rounds"
        )
    return given


Bounds = Annotated[tuple[float, float], AfterValidator(rising)]
Edges = Annotated[tuple[float, ...], AfterValidator(rising)]


class Records:
    """The records of one client, by column.

    Args:
        examples: rows of a table, float32 (n, columns), with their answers.
        about: the names of the columns, and of the answers.
    """

    def __init__(self, examples: Examples, about: About) -> None:
        self._examples, self._about = examples, about

    def __len__(self) -> int:
        return len(self._examples)

    def column(self, name: str | int) -> NDArray[np.float64]:
        """The numbers of a column, float64 (n,); of `label` the number of the class.

        Raises:
            ValueError: there is no such column; says which there are.
        """
        columns, targets = [*self._about.columns], self._examples.targets
        if name in columns:
            return np.asarray(self._examples.inputs[:, columns.index(str(name))], np.float64)
        answers = [*self._about.classes] if targets is not None and targets.ndim == 2 else []
        if name in answers:
            assert targets is not None  # it has answers
            return np.asarray(targets[:, answers.index(str(name))], np.float64)
        if name == LABEL:
            return np.asarray(self._examples.labels, np.float64)
        width = self._examples.inputs.shape[1] if self._examples.inputs.ndim == 2 else 0
        if isinstance(name, int) and 0 <= name < width:
            return np.asarray(self._examples.inputs[:, name], np.float64)
        numbers = [] if columns or not width else [f"0 to {width - 1}"]
        there_are = ", ".join([*columns, *numbers, *answers, LABEL])
        raise ValueError(f"there is no column {name!r}; the columns are {there_are}")

    def code(self, name: str | int, value: str | float) -> float:
        """The number that stands for a value of a column: that of a class by its name, a number as it is.

        Raises:
            ValueError: the column holds numbers, and this is a name; or there is no class of this name.
        """
        if not isinstance(value, str):
            return float(as_held(value))
        names = [*self._about.label_names] if name == LABEL else []
        if value in names:
            return float(names.index(value))
        has = f"the classes are {', '.join(names)}" if names else "the column holds numbers: write them"
        raise ValueError(f"column {name!r} has no value {value!r}; {has}")


class Axis(Options):
    """The cells into which a column divides records: intervals between edges, or values."""

    column: Column
    edges: Edges | None = Field(
        None, min_length=2, max_length=10_001,
        description="edges of intervals, rising; what lies beyond is counted in the outer ones",
    )  # fmt: skip
    values: tuple[float | str, ...] | None = Field(
        None, min_length=1, max_length=1_000,
        description="in place of edges: the values, or the names of classes; others are not counted",
    )  # fmt: skip

    def model_post_init(self, context: Any) -> None:
        """Raises ValueError unless there are either edges or values, each value once."""
        if (self.edges is None) == (self.values is None):
            raise ValueError(f"column {self.column!r} needs either edges or values; write edges: [0, 10, 20]")
        different = {value if isinstance(value, str) else float(as_held(value)) for value in self.values or ()}
        if self.values is not None and len(different) < len(self.values):
            raise ValueError(f"values={list(self.values)} must be different ones, also in float32")

    @property
    def names(self) -> list[str]:
        """One a cell."""
        if self.values is not None:
            return [f"{value:g}" if isinstance(value, float) else str(value) for value in self.values]
        edges = self.edges or ()
        return [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]

    def cells(self, records: Records) -> NDArray[np.int64]:
        """The cell of each record, (n,); -1 where it has none. An interval has its lower edge in it."""
        numbers = records.column(self.column)
        if self.edges is not None:
            found = np.searchsorted(as_held(self.edges), numbers, side="right") - 1
            return np.where(np.isnan(numbers), -1, np.clip(found, 0, len(self.edges) - 2)).astype(np.int64)
        cells = np.full(len(numbers), -1, np.int64)
        for place, value in enumerate(self.values or ()):
            cells[numbers == records.code(self.column, value)] = place
        return cells


# -- answers -----------------------------------------------------------------------------------------------------------


class Estimate(Record):
    """One number of an answer.

    Attributes:
        name: what it is a number of.
        value: None where it is hidden, or where the sums give none; the note says why.
        low, high: the interval, which includes sampling and noise; None for a number without one.
        note: one sentence; may be empty.
    """

    name: Text
    value: Number | None = None
    low: Number | None = None
    high: Number | None = None
    note: Text = ""


class Answer(Record):
    """What one statistic says.

    Attributes:
        statistic: its kind.
        title: the question in words.
        estimates: its numbers.
    """

    statistic: Text
    title: Text
    estimates: list[Estimate]


@dataclasses.dataclass(frozen=True, eq=False)
class Released:
    """The sums of one statistic over all clients, as they were released.

    Attributes:
        sums: float64 (cells,).
        noise: float64 (cells,), variance of the noise on each sum, which is independent.
        confidence: of intervals, such as 0.95.
        small_cells: numbers of fewer records than this are hidden; 0: none.
    """

    sums: NDArray[np.float64]
    noise: NDArray[np.float64]
    confidence: float = 0.95
    small_cells: int = 0

    def covariance(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[np.float64]:
        """The covariance that the noise gives a function of the sums, (q, q), to first order (delta method).

        The derivative of an analytic function is the imaginary part of one complex step (Squire & Trapp 1998), exact to
        rounding.

        Args:
            function: of sums (..., cells); gives (..., q) by analytic operations alone.
        """
        count = function(self.sums).shape[-1]
        found = np.zeros((count, count))
        for cells in range(0, len(self.sums) if self.noise.any() else 0, _AT_ONCE):
            here = slice(cells, cells + _AT_ONCE)
            steps = 1j * _STEP * np.eye(len(self.sums[here]), len(self.sums), cells)
            slope = function(self.sums + steps).imag / _STEP  # (some cells, q)
            found += slope.T @ (self.noise[here, None] * slope)
        return found

    def split(self, count: int) -> list[Released]:
        """The same in so many equal parts, one behind the other."""
        parts = zip(np.split(self.sums, count), np.split(self.noise, count), strict=True)
        return [dataclasses.replace(self, sums=sums, noise=noise) for sums, noise in parts]

    def spread(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> NDArray[np.float64]:
        """The variance that the noise gives each value of a function of the sums, (q,)."""
        return np.diag(self.covariance(function))

    def quantile(self, freedom: float = math.inf) -> float:
        """By how many standard errors an interval reaches to each side: of Student's t, or of the normal law."""
        from scipy import stats

        law = stats.norm if math.isinf(freedom) else stats.t(freedom)
        return float(law.ppf((1 + self.confidence) / 2))

    def estimate(
        self, name: str, value: float, sampling: float = 0.0, noise: float = 0.0, freedom: float = math.inf,
        within: tuple[float, float] = (-math.inf, math.inf),
    ) -> Estimate:  # fmt: skip
        """A number with its interval.

        Args:
            name, value: of the estimate.
            sampling: variance of what other records of the same kind would have given; 0 of facts about these records.
            noise: variance that the noise adds.
            freedom: degrees of freedom of `sampling`; those of the sum by Welch and Satterthwaite, in which the
                variance of the noise is known.
            within: what values can be; the interval ends there.
        """
        total = sampling + noise
        known = math.isinf(freedom) or not sampling
        reach = self.quantile(math.inf if known else freedom * (total / sampling) ** 2) * math.sqrt(total)
        low, high = (min(max(end, within[0]), within[1]) for end in (value - reach, value + reach))
        return Estimate(name, float(value), float(low), float(high))

    def too_few(self, *counts: float, least: float = 2) -> str:
        """Why there is no answer from so few records; empty if there is one. Counts may carry noise."""
        if min(counts) < self.small_cells:
            return f"of fewer than {self.small_cells} records"
        return f"of fewer than {least:g} records, as far as the noise shows" if min(counts) < least else ""


class Statistic(Options, abc.ABC):
    """One question. Sums are of float64; each record adds a vector whose norms `record_norm` bounds."""

    statistic: str

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """The question in a few words."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many sums it takes."""

    @abc.abstractmethod
    def record_norm(self, order: float) -> float:
        """The largest norm, L1 or L2, of what one record adds to the sums: its sensitivity to adding a record."""

    @abc.abstractmethod
    def sums(self, records: Records) -> NDArray[np.float64]:
        """What the records of a client add up to, (size,).

        Raises:
            ValueError: the records lack a column, or a value that the statistic names.
        """

    @abc.abstractmethod
    def answer(self, released: Released) -> Iterator[Estimate]:
        """What the sums of all clients say."""

    def figures(self, sums: NDArray[np.float64]) -> Mapping[str, float]:
        """Numbers for tables of runs, by name, that are the same of the mean of clients' sums as of their sum."""
        return {}


def counted(cells: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """How many records lie in each cell, (size,); -1 is in none."""
    return np.bincount(cells[cells >= 0], minlength=size).astype(np.float64)


def placed(statistics: Sequence[Statistic]) -> Iterator[tuple[Statistic, slice]]:
    """Each statistic with the place of its sums in the vector of all."""
    start = 0
    for each in statistics:
        yield each, slice(start, start + each.size)
        start += each.size

"""What is recorded of a run, and what other plugins add to it, such as the attacks that were made on it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.data import ACCURACY, Figure
from fedplug.api.records import Count, Number, Record, Text
from fedplug_runs import units
from fedplug_runs.rows import no_better

if TYPE_CHECKING:
    from fedplug_runs.rows import Row

    from fedplug_lab.drawing import Chart

GROUP = "fedplug_lab.section"
"""The entry-point group: each entry is an instance of a `Section`."""


class Spread(Record):
    """Spread of a number that each client has."""

    min: Number
    mean: Number
    max: Number


class Volume(Record):
    """Bytes of a run: from the clients to the server, from the server to the clients, to and from the key server."""

    up: Count
    down: Count
    key_server: Count


class Result(Record):
    """The results of a run.

    Attributes:
        rounds: how many have their numbers.
        accuracy, loss, figures, zones, log, epsilon, level_epsilons: of the last round.
        best_accuracy: of any round.
        leads: the figure that leads; `leading` is its number after the last round.
        recalls, guess: of the last round, by class and by figure, as `fedplug_runs.rows.Row` has them.
        client_accuracy: of the last round, over clients, of the model that each was sent, on test data like its own.
        group_accuracy: of the last round, over groups, each on test data like its clients'; None without groups.
        personal_accuracy, personal_public_accuracy: of the last round, over clients; None without personal models.
        client_leading, group_leading, personal_leading, personal_public_leading: the same of the figure that leads,
            where that is not accuracy.
        tuned: of the last round, over clients, the figure that leads of models that each has fine-tuned; None without.
        clusters: of the last round, the figure that leads, by cluster of the recipe.
        seconds: by phase, over the run.
        wall_seconds, cpu_seconds, simulated_seconds: of the run; the last is None without devices in the recipe.
        bytes: of the run.
        verdict: of the ledger, in a paragraph.
        guarantees: by party of the verdict the epsilon that is guaranteed toward it, of its unit. None for no
            guarantee. A party that is not there is left out.
        units: of these, by party, the unit of an epsilon that is not a client's.
        assessments: component -> fact -> value.
        added: what sections of plugins know of the run, by their keys.
    """

    rounds: Count
    accuracy: Number | None
    best_accuracy: Number | None
    loss: Number | None
    zones: dict[Text, Number]
    log: dict[Text, Number]
    seconds: dict[Text, Number]
    wall_seconds: Number
    bytes: Volume
    epsilon: Number | None
    verdict: Text
    figures: dict[Text, Number] = dataclasses.field(default_factory=dict)
    client_accuracy: Spread | None = None
    group_accuracy: Spread | None = None
    personal_accuracy: Spread | None = None
    personal_public_accuracy: Spread | None = None
    client_leading: Spread | None = None
    group_leading: Spread | None = None
    personal_leading: Spread | None = None
    personal_public_leading: Spread | None = None
    tuned: Spread | None = None
    clusters: dict[Text, Number] = dataclasses.field(default_factory=dict)
    simulated_seconds: Number | None = None
    level_epsilons: dict[Text, Number] = dataclasses.field(default_factory=dict)
    assessments: dict[Text, dict[Text, Number]] = dataclasses.field(default_factory=dict)
    added: dict[Text, Any] = dataclasses.field(default_factory=dict)
    cpu_seconds: Number | None = None
    leads: Figure = ACCURACY
    guarantees: dict[Text, Number | None] = dataclasses.field(default_factory=dict)
    recalls: dict[Text, Number] = dataclasses.field(default_factory=dict)
    guess: dict[Text, Number] = dataclasses.field(default_factory=dict)
    units: dict[Text, Text] = dataclasses.field(default_factory=dict)

    @property
    def leading(self) -> float | None:
        """The number of the figure that leads."""
        return self.number_of(self.leads)

    def number_of(self, figure: Figure) -> float | None:
        """The number of a figure after the last round; None where it has none."""
        return self.accuracy if figure.name == ACCURACY.name else self.figures.get(figure.name)

    @property
    def guessed(self) -> float | None:
        """What the best guess that looks at no input gets of the figure that leads; None where that is not known."""
        return self.guess.get(self.leads.name)

    @property
    def no_better(self) -> str:
        """In which figure the model is no better than a guess: balanced accuracy, or the one that leads; else empty."""
        return no_better({ACCURACY.name: self.accuracy, **self.figures}, self.guess, self.leads)

    @property
    def of_clients(self) -> Spread | None:
        """Of the figure that leads, over clients, of the model that each was sent, on test data like its own."""
        return self.client_accuracy if self.leads.name == ACCURACY.name else self.client_leading

    @property
    def of_groups(self) -> Spread | None:
        """The same over groups."""
        return self.group_accuracy if self.leads.name == ACCURACY.name else self.group_leading

    @property
    def of_personal(self) -> Spread | None:
        """The same over the clients' own models."""
        return self.personal_accuracy if self.leads.name == ACCURACY.name else self.personal_leading


Column = tuple[str, Callable[[Result], float | None], Callable[[float], str]]
"""Title, the number of a run, and the number as text."""


@dataclasses.dataclass(frozen=True)
class Leak:
    """What one attack by one adversary took from a run, in the form that took more.

    Attributes:
        attack: its name, with its adversary.
        metric: what it is judged by.
        value: that number, the mean over the targets; None where it applied to none.
        guess: what the best trivial guess reaches, in the same number; None where there is none.
        guessed_by: which guess that is.
        lower_is_worse: whether a low number means that more leaked.
        succeeded: the share of successes among the targets that it applied to; None where it applied to none.
        targets: how many it applied to.
        people: of how many examples it sought an image; 0 where it sought none.
        recovered: of how many of these it recovered one.
        adversary: who attacks, as the recipe writes it; empty where it is not known.
        who: the same for people.
        states: share of the update that this adversary sees in each state (`clear`, `noised`, `encrypted`, ...); empty
            where it sees no update.
        state: `success`, `failed` or `inconclusive`, of all targets together; empty where that is not known.
    """

    attack: str
    metric: str
    value: float | None
    guess: float | None
    guessed_by: str
    lower_is_worse: bool
    succeeded: float | None
    targets: int
    people: int = 0
    recovered: int = 0
    adversary: str = ""
    who: str = ""
    states: Mapping[str, float] = dataclasses.field(default_factory=dict)
    state: str = ""

    @property
    def share(self) -> str:
        """How much gave way, in words: examples where images were sought, else the share of the targets.

        A weak attack may succeed on all targets together, and on none of them alone.
        """
        if self.people:
            return f"{self.recovered} of {self.people} examples"
        if self.state == "inconclusive":
            return "inconclusive"
        if self.state == "success" and not self.succeeded:
            return "all targets together"
        return units.NOTHING if self.succeeded is None else units.percent(self.succeeded)


class Section:
    """Something that is known of a run in addition to what the run itself wrote.

    Attributes:
        key: of the section in the page, a word.
        title: its heading.
        order: its place among the sections of plugins.
    """

    key: str = ""
    title: str = ""
    order: int = 0

    def html(self, run_dir: Path) -> str:
        """The section, escaped; empty where there is nothing to say of this run."""
        return ""

    def chart(self, rows: Sequence[Row]) -> Chart | None:
        """A figure among those of the rows; None where they hold nothing for it. One or more rows, as in a report."""
        return None

    def headline(self, run_dir: Path) -> tuple[str, str] | None:
        """A label and a sentence for the top of the page, next to the verdict."""
        return None

    def measured(self, run_dir: Path) -> Mapping[str, str]:
        """By party of the verdict what was measured of its epsilon, in words; shown below what is guaranteed."""
        return {}

    def record(self, run_dir: Path) -> dict[str, Any]:
        """What the line of a sweep keeps of a run in `Result.added[key]`, as plain data; empty for nothing."""
        return {}

    def leaks(self, record: Mapping[str, Any]) -> Sequence[Leak]:
        """What leaked from a run, from what `record` kept of it."""
        return ()

    def untried(self, run_dir: Path) -> Sequence[str]:
        """What was sent in the run and was not attacked, a sentence each."""
        return ()

    def released(self, run_dir: Path) -> Sequence[str]:
        """What the run released in place of a model, in lines of text, for evidence."""
        return ()

    def is_awaited(self, run_dir: Path, recipe: Mapping[str, Any]) -> bool:
        """Whether the recipe wants something done with the run that is not there yet."""
        return False

    def columns(self, results: Sequence[Result]) -> Iterable[Column]:
        """Columns of the table of a sweep, made from what `record` kept of each run that did not fail."""
        return ()


@functools.cache
def sections_of_plugins() -> tuple[Section, ...]:
    """Those of all installed plugins."""
    from importlib_metadata import entry_points

    return tuple(sorted((point.load() for point in entry_points(group=GROUP)), key=lambda section: section.order))

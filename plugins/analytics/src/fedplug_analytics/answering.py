"""The section `answers` of a recipe: the server makes answers of the sums that it opens, and adds them to the metrics.

Answers are a function of what was released, so they cost nothing more. The noise on the sums follows from the same
operations that the core executes and the ledger prices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Around, Clip, Field, Noise, Round, Seal, Section
from fedplug.api.component import Options
from fedplug.api.events import ZoneOpened
from fedplug.api.records import Count, Number, Record, Text
from fedplug_runs.events import RowMade

from fedplug_analytics.local import LocalSums
from fedplug_analytics.statistic import Answer, Estimate, Released, placed
from fedplug_analytics.statistics import Statistics, statistics_of

if TYPE_CHECKING:
    from fedplug import Facts, KeyPath, Run
    from fedplug.api.events import Subject
    from fedplug.api.links import Step
    from fedplug_runs.rows import Row
    from numpy.typing import NDArray

KEY = "answers"


class Answers(Record):
    """What a run found: `row.added["answers"]`.

    Attributes:
        answers: of each statistic, in the order of the recipe.
        clients: the clients whose records are in the sums.
        of: the clients of the run.
        confidence: of the intervals.
        small_cells: numbers of fewer records are hidden.
        problem: why there are no answers; empty where all is well.
        notes: what the intervals do not say, a sentence each.
    """

    answers: list[Answer]
    clients: Count
    of: Count
    confidence: Number
    small_cells: Count = 0
    problem: Text = ""
    notes: list[Text] = dataclasses.field(default_factory=list)

    @classmethod
    def among(cls, rows: Sequence[Row]) -> Answers | None:
        """Those of a run; None where it made none."""
        found = [row.added[KEY] for row in rows if KEY in row.added]
        return cls.from_plain(found[-1]) if found else None


class AnswersOptions(Options):
    """How answers are written."""

    confidence: float = Field(0.95, gt=0, lt=1, description="of the intervals")


class AnswersSection(Section):
    """Answers to the statistics of a recipe, with intervals that include sampling and noise."""

    Options = AnswersOptions

    @property
    def empty(self) -> bool:
        """Never: a recipe that has it is answered, also with all defaults."""
        return False

    def check(self, around: Around) -> Iterator[tuple[KeyPath, str]]:
        """There is something to answer."""
        if around.recipe is not None and not any(isinstance(part, Statistics) for part in around.parts.values()):
            yield (), "the recipe asks no statistics; write model: {use: analytics.statistics, of: [...]}"

    def attach(self, protocol: Subject) -> None:
        """Listens for the sums, and adds answers to the row of their round."""
        opened: list[ZoneOpened] = []
        protocol.events.subscribe(ZoneOpened, opened.append)

        def add(event: RowMade) -> None:
            if opened:
                facts = protocol.server.facts.at(opened[0].round)
                found = self.answers(opened, facts, cut_off(event.row))
                event.row.added[KEY] = found.to_plain(for_json=True)
                opened.clear()

        protocol.events.subscribe(RowMade, add)

    def answers(self, opened: Sequence[ZoneOpened], facts: Facts, problem: str = "") -> Answers:
        """The answers of sums, by zone as they were opened; none of any where there is a problem with the sums."""
        statistics, confidence = statistics_of(facts), self.options.confidence
        small = statistics.options.small_cells
        sums, noise = np.full(statistics.size, math.nan), np.zeros(statistics.size)
        for event in opened:
            block = event.block
            where = _where(event, facts)
            if block.values is not None and where is not None:
                sums[where] = total(block.values, block.contributors)
                noise[where] = noise_variance(facts.steps(block.zone), block.contributors, facts)
        if not problem and np.isnan(sums).any():
            problem = "not all sums were opened: see the notes of the run"
        answers = []
        for each, place in placed(statistics.statistics):
            released = Released(sums[place], noise[place], confidence, small)
            estimates = [] if problem else list(each.answer(released))
            answers.append(Answer(each.statistic, each.title, estimates))
        clients = min((event.block.contributors for event in opened), default=0)
        notes = [f"{each.name} {each.unsaid}" for each in _trainers(facts) if each.unsaid]
        notes += dict.fromkeys(note for event in opened for note in unsaid(facts.steps(event.block.zone)))
        return Answers(answers, clients, facts.num_clients, confidence, small, problem, notes)

    def after_run(self, run: Run) -> int:
        """Prints the answers."""
        if not run.settings.quiet and (found := Answers.among(run.metrics)):
            print("\n".join(lines(found)))
        return 0

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"intervals of {self.options.confidence:.4g}"


def _where(event: ZoneOpened, facts: Facts) -> NDArray[Any] | None:
    """Where the values of an opened zone lie; None where no plan says."""
    if event.block.positions is not None:
        return event.block.positions
    return None if facts.plan is None else facts.plan.positions(event.block.zone)


def _trainers(facts: Facts) -> list[LocalSums]:
    return [part for part in facts.components.values() if isinstance(part, LocalSums)]


def noise_variance(steps: Sequence[Step], contributors: int, facts: Facts) -> float:
    """Variance of the noise on each sum of so many clients: of the trainer, the links, and the grids of a seal.

    Clients with equal numbers of records round them alike, so that errors of a grid add up, unless noise was there
    before.

    Args:
        steps: of the zone, of which `rules` let pass those that leave sums and one size of noise.
        contributors: the clients in the sum.
        facts: of the round.
    """
    of_a_client, of_the_sum, alike = sum(each.std(facts) ** 2 for each in _trainers(facts)), 0.0, 0.0
    for operation in (each for step in steps for each in step.operations):
        match operation:
            case Noise(std=float(std)):
                variance = std**2 * (2 if operation.mechanism == "laplace" else 1)
                of_the_sum += variance if operation.trust == "central" else 0.0
                of_a_client += 0.0 if operation.trust == "central" else variance
            case Round(step=step, beta=float()):  # to either of the nearest at random
                of_a_client += step**2 / 4
            case Round(step=step) | Seal(step=step) if step == step:  # NaN where keys decide
                alike += 0.0 if of_a_client else step
                of_a_client += step**2 / 12 if of_a_client else 0.0
    return contributors * of_a_client + of_the_sum + (contributors * alike) ** 2 / 12


def unsaid(steps: Sequence[Step]) -> Iterator[str]:
    """What the links of a zone do to answers that no interval includes."""
    for step in steps:
        if step.has(Clip):
            yield f"{step.link.name} scales the sums of a client down that has more than it allows: it then counts less"
        if any(isinstance(each, Noise) and each.mechanism == "laplace" for each in step.operations):
            yield f"intervals take the noise of {step.link.name} for normal: of few clients they cover a little less"


def total(mean: NDArray[np.float32], contributors: int) -> NDArray[np.float64]:
    """The sum of which this is the mean, to 22 bits, so that the rounding of a mean in float32 is undone: counts below
    2^22 are exact.
    """
    digits, exponent = np.frexp(mean.astype(np.float64) * contributors)
    return np.asarray(np.ldexp(np.rint(np.ldexp(digits, 22)), exponent - 22))


def cut_off(row: Row) -> str:
    """Why sums are not those of the records: a seal holds no values as large as some that clients gave it."""
    cut = [name for name, share in row.log.items() if name.endswith(".saturated") and share]
    seals = [name.removesuffix(".saturated") for name in cut]
    if not seals:
        return ""
    return (
        f"{seals[0]} cut values of clients off at its range, so that their total is wrong; raise its range to the "
        "records of one client, or more where clients add noise"
    )


# -- in words ----------------------------------------------------------------------------------------------------------


def lines(found: Answers) -> Iterator[str]:
    """The answers as a table of text."""
    if found.problem:
        yield f"no answers: {found.problem}"
        return
    head = ("", "value", f"{found.confidence:.4g} interval", "")
    for answer in found.answers:
        yield f"{answer.title}:"
        rows = [head, *cells(answer)]
        widths = [max(len(row[place]) for row in rows) for place in range(3)]
        for name, value, interval, note in rows:
            text = f"  {name:<{widths[0]}}  {value:>{widths[1]}}  {interval:<{widths[2]}}  {note}"
            yield text.rstrip()
    yield f"of the records of {found.clients} of {found.of} clients"
    yield from (f"note: {note}" for note in found.notes)


def cells(answer: Answer) -> list[tuple[str, str, str, str]]:
    """For each number its name, value, interval and note, as text."""
    return [
        (each.name, "" if each.value is None else _number(each.value), _interval(each), each.note)
        for each in answer.estimates
    ]


def _interval(estimate: Estimate) -> str:
    """In words; a median whose upper end is beyond the grid has a lower one alone."""
    if estimate.low is None:
        return ""
    low = _number(estimate.low)
    return f"{low} or more" if estimate.high is None else f"{low} to {_number(estimate.high)}"


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 and value == round(value) else f"{value:.5g}"


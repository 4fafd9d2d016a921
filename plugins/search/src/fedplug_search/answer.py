"""The outcome of trials, how they are judged, and the answer: the front, what is closest, what the search has cost."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fedplug.api.data import Better
from fedplug.api.records import Amount, Count, Number, Record, Text
from fedplug_lab.api import Compared, Price, Stated, front_of, open_run, price_of, spent_in, unlike

from fedplug_search.measures import FIGURE, LEVEL, Constraint, is_measure, measure
from fedplug_search.private import Choice
from fedplug_search.question import Question

MET, MISSED, PRUNED, REFUSED, FAILED = "met", "missed", "pruned", "refused", "failed"
"""How a trial ends: with all constraints met, with one missed, before its last round, refused by `fedplug check`, or by
an error."""


class Made(Record):
    """One run of a trial.

    Attributes:
        folder: of the run, inside that of the search; empty where nobody knows.
        rounds: how many it has finished.
        epsilon: that it leads with; None where it prices nothing.
        prices: the zones that epsilon prices, where that is not everything.
    """

    seed: Count
    folder: Text
    digest: Text
    rounds: Count
    epsilon: Number | None = None
    prices: Text = ""


class Told(Record):
    """The outcome of a trial.

    Attributes:
        status: one of those above.
        reason: of anything but `met`.
        numbers: its measures, by name; of a pruned trial those of the rounds that it ran.
        missing: why a measure has no number.
        prices: the zones that its epsilon prices, where that is not everything.
        verdicts: of its ledgers.
        runs: those that it made, or used.
        seconds: that it took on the clock on the wall, here and now.
    """

    status: Text
    reason: Text = ""
    numbers: dict[Text, Number] = dataclasses.field(default_factory=dict)
    missing: dict[Text, Text] = dataclasses.field(default_factory=dict)
    prices: Text = ""
    verdicts: list[Text] = dataclasses.field(default_factory=list)
    runs: list[Made] = dataclasses.field(default_factory=list)
    seconds: Amount = 0.0

    def number(self, name: str) -> float | None:
        """A measure; None where it has none that is finite."""
        value = self.numbers.get(name)
        return value if value is not None and math.isfinite(value) else None


def judged(
    stated: Mapping[str, Stated], constraints: Sequence[Constraint], objectives: Iterable[str], runs: list[Made],
    verdicts: list[str], seconds: float,
) -> Told:  # fmt: skip
    """A trial all of whose runs are complete, with its numbers and whether they meet the constraints."""
    numbers = {name: found.value for name, found in stated.items() if is_measure(name) and found.value is not None}
    missing = {
        name: ((found := stated.get(name)) and found.why) or f"none of its runs states it{_others(name, stated)}"
        for name in dict.fromkeys([*objectives, *(constraint.name for constraint in constraints)])
        if name not in numbers
    }
    prices = stated["epsilon"].prices if "epsilon" in stated else ""
    told = Told(MET, "", numbers, missing, prices, verdicts, runs, seconds)
    reasons = [missed(constraint, told) for constraint in constraints if miss(constraint, told)]
    bounded = {constraint.name for constraint in constraints}
    for name in objectives:
        if name not in bounded and told.number(name) is None:
            reasons.append(f"{name} has no number: {missing.get(name, 'it is not finite')}")
    told.reason = "; ".join(reasons)
    told.status = MISSED if reasons else MET
    return told


def _others(name: str, stated: Iterable[str]) -> str:
    """Of a figure or a level that is not there, those that are."""
    head = next((head for head in (FIGURE, LEVEL) if name.startswith(head)), None)
    there = [other for other in stated if head and other.startswith(head)]
    return f", but {', '.join(there)}" if there else ""


def miss(constraint: Constraint, told: Told) -> float:
    """By how much a trial misses a constraint, as a share of its bound."""
    return constraint.miss(told.numbers.get(constraint.name))


def missed(constraint: Constraint, told: Told) -> str:
    """The same in words."""
    value, measure = told.numbers.get(constraint.name), constraint.measure
    if value is None:
        return f"{constraint.name} has no number: {told.missing.get(constraint.name, 'it is not known')}"
    side = "below" if constraint.least else "above"
    return f"{constraint.name} {measure.show(value)} is {side} {measure.show(constraint.bound)}"


def violations(told: Told, constraints: Sequence[Constraint], objectives: Iterable[str]) -> dict[str, float]:
    """What Optuna is told of the constraints: above 0 is a miss.

    A trial without a number for each objective misses one more; of one that did not run to its end, only what is
    certain counts of the others.
    """
    ended = told.status in (MET, MISSED)
    found = {"all numbers": 0.0 if values_of(told, objectives) else 1.0}
    for constraint in constraints:
        certain = ended or (constraint.measure.grows and not constraint.least and constraint.name in told.numbers)
        found[str(constraint)] = miss(constraint, told) if certain else 0.0
    return found


def values_of(told: Told, objectives: Iterable[str]) -> list[float] | None:
    """The objectives of a trial that ran to its end, which Optuna is told; None where one is missing."""
    known = [told.number(name) for name in objectives]
    found = [value for value in known if value is not None]
    return found if told.status in (MET, MISSED) and len(found) == len(known) else None


def front(trials: Mapping[int, Told], objectives: Mapping[str, Better]) -> list[int]:
    """The trials that meet the constraints and that no other one beats, best in the first objective first."""
    met = {number: values for number, told in sorted(trials.items())
           if told.status == MET and (values := values_of(told, objectives))}  # fmt: skip
    return front_of(met, [*objectives.values()])


def closest_of(trials: Mapping[int, Told], constraints: Sequence[Constraint]) -> int | None:
    """The trial that ran to its end and misses the constraints by least in all; None where none did."""
    ended = {number: told for number, told in trials.items() if told.status in (MET, MISSED)}
    return min(ended, key=lambda number: (sum(miss(one, ended[number]) for one in constraints), number), default=None)


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One trial, for programs.

    Attributes:
        number: from 1, as in the tables.
        status: `met`, `missed`, `pruned`, `refused` or `failed`.
        reason: of anything but `met`.
        values: what was chosen, by path of the recipe.
        numbers: its measures, by name; of a pruned trial those of the rounds that it ran.
        verdicts: what the ledgers of its runs say.
        runs: their folders; `fedplug.open_run` reads them.
        recipe: the file that runs it again; None where it is not on the front.
    """

    number: int
    status: str
    reason: str
    values: Mapping[str, Any]
    numbers: Mapping[str, float]
    verdicts: tuple[str, ...]
    runs: tuple[Path, ...]
    recipe: Path | None


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """The answer of a search.

    Attributes:
        question: what was asked.
        told: the outcome of each trial, by number from 0.
        values: what each has at the paths of the space, by number.
        folder: of the search.
        facts: how it was done: `command`, `seed`, `jobs`, `prune`, `trials`, `complete`, ...
        recipes: the files of the front, in its order; empty before they are written.
        stopped: why no more was tried, where that is not that all trials were made.
        private: what the choice costs where it is private.
    """

    question: Question
    told: Mapping[int, Told]
    values: Mapping[int, Mapping[str, Any]]
    folder: Path
    facts: Mapping[str, Any]
    recipes: Sequence[Path] = ()
    stopped: str = ""
    private: Choice | None = None

    @property
    def trials(self) -> list[Trial]:
        """All that have ended, in the order of their numbers."""
        return [self._trial(number) for number in sorted(self.told)]

    @property
    def found(self) -> list[Trial]:
        """Those of the front, the best in the first objective first; empty where nothing meets the constraints."""
        return [self._trial(number) for number in self.front]

    @property
    def complete(self) -> bool:
        """Whether the search has ended; else it was interrupted, and the same call continues."""
        return bool(self.facts["complete"])

    @property
    def page(self) -> Path:
        """What people read."""
        return self.folder / "search.html"

    def _trial(self, number: int) -> Trial:
        told, place = self.told[number], self.front.index(number) if number in self.front else None
        recipe = self.recipes[place] if place is not None and place < len(self.recipes) else None
        runs = tuple(self.folder / made.folder for made in told.runs if made.folder)
        return Trial(
            number + 1, told.status, told.reason, self.values[number], told.numbers, tuple(told.verdicts), runs, recipe
        )  # fmt: skip

    @cached_property
    def front(self) -> list[int]:
        """The trials that meet all constraints and that no other beats, the best in the first objective first."""
        return front(self.told, self.question.objectives)

    @cached_property
    def price(self) -> Price:
        """The cost of all runs in the folder together."""
        return price_of(spent_in(self.folder))

    @cached_property
    def unlike(self) -> list[str]:
        """In what the runs of trials that meet the constraints differ, on which their numbers depend; sentences."""
        met = [
            Compared(f"trial {number + 1}", [open_run(self.folder / made.folder) for made in told.runs])
            for number, told in sorted(self.told.items())
            if told.status == MET
        ]
        return unlike(met, self.question.shown) if len(met) > 1 else []

    @property
    def counts(self) -> Counter[str]:
        """How many trials ended how."""
        return Counter(told.status for told in self.told.values())

    def name(self, number: int) -> str:
        """`3: ratio=0.31`."""
        return f"{number + 1}: {self.question.space.label(self.values[number])}"

    def cells(self, number: int) -> list[str]:
        """A trial in tables: its measures, `question.shown`, and what was chosen."""
        told = self.told[number]
        found = {name: measure(name).show(told.numbers.get(name)) for name in self.question.shown}
        if told.prices and "epsilon" in found:
            found["epsilon"] += f" ({told.prices})"
        return [*found.values(), *self.question.space.shown(self.values[number]).values()]

    def headline(self) -> str:
        """In a sentence."""
        many = len(self.front)
        if not many:
            return "No trial meets all constraints."
        if (met := self.counts[MET]) == 1:
            return f"1 of {len(self.told)} trials meets all constraints."
        return f"{met} of {len(self.told)} trials meet all constraints, and {many} of them are on the Pareto front."

    def shortfall(self) -> list[str]:
        """Where nothing meets the constraints: what is closest, and which constraint is missed most narrowly."""
        constraints, number = self.question.constraints, closest_of(self.told, self.question.constraints)
        if number is None:
            return ["No trial ran to its end."]
        told = self.told[number]
        lines = [f"Closest is trial {self.name(number)}: {told.reason}."]
        ended = {n: one for n, one in self.told.items() if one.status == MISSED}
        # Of each constraint the trial that comes nearest to it among those that miss it.
        nearest = [
            (miss(constraint, one), n, constraint)
            for constraint in constraints
            for n, one in ended.items()
            if one.number(constraint.name) is not None and miss(constraint, one) > 0
        ]
        if nearest:
            _, n, constraint = min(nearest, key=lambda found: (found[0], found[1]))
            lines.append(f"The constraint that is missed most narrowly is {constraint}: {missed(constraint, ended[n])} "
                         f"in trial {n + 1}.")  # fmt: skip
        return lines

    def luck(self) -> str:
        """A note that the best of many is partly luck; empty where there was no choice."""
        ended = sum(told.status in (MET, MISSED, PRUNED) for told in self.told.values())
        if ended < 2 or not self.front:
            return ""
        seeds = ", ".join(map(str, self.question.seeds))
        return (
            f"Figures of the front are those by which it was chosen from {ended} trials, with seed {seeds}: the "
            "best of many is partly luck. "
            + ("Every other run adds to what is spent" if self.private else
               "Measure it again with other seeds: fedplug compare FRONT... --seeds")
        )  # fmt: skip

    def privacy(self) -> list[str]:
        """What a reader must know of the epsilons, in sentences."""
        if self.private is not None:
            return [*self.private.sentences(len(self.told)), "Runs of other searches on the same data add to this."]
        price = self.price
        lines = [
            "The epsilon of a protocol here is that of one of its runs, as the ledger states it. Choosing the best of "
            "many runs on the same private data is another release, which that epsilon does not count."
        ]
        if not price.runs:
            return lines
        runs = "1 run" if price.runs == 1 else f"{price.runs} runs"
        if price.epsilon is None:
            return [*lines, f"Of {runs} of this search that released something, none states an epsilon: together they "
                    "promise nothing."]  # fmt: skip
        stated = price.runs - price.without
        state = "states" if price.without == 1 else "state"
        part = " for what they price" if price.partial else ""
        together = f"at most epsilon {measure('epsilon').show(price.epsilon)} at delta {price.delta:.3g}{part}"
        if price.without:
            lines.append(f"Of {runs} that released something, {price.without} {state} no epsilon, so that all together "
                         f"promise nothing; the other {stated} total {together}, {price.how}.")
        else:
            choice = "" if part else ": that covers the choice too, as far as it rests on what the runs released"
            lines.append(f"All {runs} of this search together total {together}, {price.how}{choice}.")
        if price.partial:
            lines.append(f"Some of these epsilons price a part alone ({'; '.join(price.partial)}), and so does the "
                         "total: read the verdicts. --max epsilon_server=8 bounds a whole view.")  # fmt: skip
        if self.question.base.data.at != "here":
            lines.append("A figure on examples that sites hold out is itself private, and no epsilon covers it.")
        lines.append("Runs of other searches on the same data add to this.")
        return lines

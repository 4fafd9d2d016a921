"""The outcome of a trial: a typed record, and how it is judged."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from fedplug.api.data import Better
from fedplug.api.records import Amount, Count, Number, Record, Text
from fedplug_lab.api import Stated, front_of

from fedplug_search.measures import FIGURE, LEVEL, Constraint, is_measure

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

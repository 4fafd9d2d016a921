"""The numbers of a round that parties report with their replies."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, Field

from fedplug.api.records import Amount, Count, Number, Record, one_line, shown


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError(f"the name {shown(name)} holds what cannot be printed")
    return name


Name = Annotated[str, Field(strict=True, max_length=200), AfterValidator(_printable)]
"""A component's name and a word."""
Reason = Annotated[str, Field(strict=True), AfterValidator(one_line)]
MOST_NAMES = 1000
"""The most of each kind in one reply: rows and reports hold every name that any client has given."""
_Few = Field(max_length=MOST_NAMES)
Numbers = Annotated[dict[Name, Number], _Few]
"""What a component gives under its own names: what a trainer returns, what is logged."""
MOST_SECONDS = 2.0**30
"""The most seconds of one reply, 34 years: sums over clients and rounds, and numbers made of them, stay finite."""
Seconds = Annotated[Amount, Field(lt=MOST_SECONDS)]


class Evaluated(Record):
    """Counts of a client's evaluation of the global model, and of its personal model where it has one.

    Attributes:
        correct, count, loss: on its share of the common test set; the loss is a sum, in nats. With data at sites, on
            the site's held-out examples.
        own_correct, own_count: on test data like its own.
        personal_correct, personal_own_correct: of its personal model, on the same; None where it has none.
        task: what else the model counted, on its share of the common test set; see `Evaluation.task`.
        personal_task: the same of its personal model.
        own_task, personal_own_task: the same of both models on test data like its own.
        tuned_correct, tuned_own_correct, tuned_task, tuned_own_task: of the global model, fine-tuned on its own
            training examples; None and empty where the recipe asks for none.
    """

    correct: Number
    count: Number
    loss: Number
    own_correct: Number
    own_count: Number
    personal_correct: Number | None = None
    personal_own_correct: Number | None = None
    task: Numbers = dataclasses.field(default_factory=dict)
    personal_task: Numbers = dataclasses.field(default_factory=dict)
    own_task: Numbers = dataclasses.field(default_factory=dict)
    personal_own_task: Numbers = dataclasses.field(default_factory=dict)
    tuned_correct: Number | None = None
    tuned_own_correct: Number | None = None
    tuned_task: Numbers = dataclasses.field(default_factory=dict)
    tuned_own_task: Numbers = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError where there are more right answers than questions, or more of these than anybody counts."""
        for name, of in _RIGHT.items():
            right, asked = getattr(self, name), getattr(self, of)
            if right is not None and not (float(asked).is_integer() and 0 <= right <= asked < 2**53):
                raise ValueError(f"evaluation.{name} is {shown(right)} of {shown(asked)} examples")
        if self.loss == -math.inf:
            raise ValueError("evaluation.loss is -inf, which no sum of losses is")

    def shares(self) -> Evaluated:
        """The same for one answer: shares and means, which do not say outright of how many answers."""
        answers, own_answers = self.count or 1.0, self.own_count or 1.0

        def of(count: float | None, asked: float) -> float | None:
            return None if count is None else count / asked

        def each(counts: Mapping[str, float], asked: float) -> dict[str, float]:
            return {name: total / asked for name, total in counts.items()}

        return Evaluated(
            correct=self.correct / answers,
            count=min(self.count, 1.0),
            loss=self.loss / answers,
            own_correct=self.own_correct / own_answers,
            own_count=min(self.own_count, 1.0),
            personal_correct=of(self.personal_correct, answers),
            personal_own_correct=of(self.personal_own_correct, own_answers),
            task=each(self.task, answers),
            personal_task=each(self.personal_task, answers),
            own_task=each(self.own_task, own_answers),
            personal_own_task=each(self.personal_own_task, own_answers),
            tuned_correct=of(self.tuned_correct, answers),
            tuned_own_correct=of(self.tuned_own_correct, own_answers),
            tuned_task=each(self.tuned_task, answers),
            tuned_own_task=each(self.tuned_own_task, own_answers),
        )


_RIGHT = {
    "correct": "count", "own_correct": "own_count", "personal_correct": "count", "personal_own_correct": "own_count",
    "tuned_correct": "count", "tuned_own_correct": "own_count",
}  # fmt: skip
"""The counts of an evaluation, and their total."""


def _done(pair: list[float]) -> list[float]:
    count, seconds = pair
    if not (count.is_integer() and count < 2**53):  # a tiny share of one would make one cost more than numbers can say
        raise ValueError(f"{shown(count)} operations must be a whole number below 2^53")
    if seconds >= MOST_SECONDS:
        raise ValueError(f"{shown(seconds)} seconds must be below {MOST_SECONDS:g}")
    return pair


MOST_PICTURES = 16
"""How many pictures one reply may carry."""
Picture = Annotated[str, Field(strict=True, max_length=2_000_000)]
"""JSON of what a component has drawn, for the plugin that draws reports: nothing here looks into it."""


def drawn(figures: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Empties a party's `figures`; gives them as JSON, and why some cannot travel, by name. None costs a round."""
    texts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, figure in figures.items():
        try:
            text = json.dumps(figure, default=lambda value: np.asarray(value).tolist())
            if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
                raise ValueError("its name must be text of 1 to 200 characters, all of which can be printed")
            if len(texts) >= MOST_PICTURES or len(text) > 2_000_000:
                raise ValueError(f"a reply carries {MOST_PICTURES} pictures at most, of 2,000,000 characters each")
            texts[name] = text
        except (ValueError, TypeError, RecursionError) as error:
            left_out[str(name)[:200]] = str(error)[:400]
    figures.clear()
    return texts, left_out


Operations = Annotated[list[Amount], Field(min_length=2, max_length=2), AfterValidator(_done)]
"""How many of a name were done, and the seconds that they took."""


class Compared(Record):
    """What clients found in their own messages of the plain values of zones that they protect, while a run is recorded.

    Attributes:
        messages: how many were looked through.
        values: by zone, how many values were looked for, over clients and rounds.
        found: by zone, at how many places of messages there was one.
    """

    messages: Count = 0
    values: Annotated[dict[Name, Count], _Few] = dataclasses.field(default_factory=dict)
    found: Annotated[dict[Name, Count], _Few] = dataclasses.field(default_factory=dict)

    def __add__(self, other: Compared) -> Compared:
        """Both together."""
        return Compared(
            self.messages + other.messages, added(self.values, other.values), added(self.found, other.found)
        )


class Reports(Record):
    """What came with a reply; each field may be empty.

    Attributes:
        seconds_total: of everything that the message asked for.
        seconds: of it, by phase.
        train: what the trainer returned; `loss` is the mean training loss of the last epoch.
        zones: share of the model in each zone of the client's plan.
        churn: share of the plan that changed since the round before.
        log: what components logged.
        evaluation: of the model before this round.
        operations: name -> count and seconds of costly operations, where they are counted.
        unopened: zone -> why its sum could not be opened.
        failed: zone -> what its opener raised that is no refusal: its author must fix it.
        opened_before: zone -> rounds of which another sum was opened before.
        pictures, unpictured: what the party's components drew, as JSON, and why others are left out; see `drawn`.
        compared: what a client found of its plain values in this reply and those before; None where it did not look.
    """

    seconds_total: Seconds = 0.0
    seconds: Annotated[dict[Name, Seconds], _Few] = dataclasses.field(default_factory=dict)
    train: Numbers = dataclasses.field(default_factory=dict)
    zones: Numbers = dataclasses.field(default_factory=dict)
    churn: Number | None = None
    log: Numbers = dataclasses.field(default_factory=dict)
    evaluation: Evaluated | None = None
    operations: Annotated[dict[Name, Operations], _Few] = dataclasses.field(default_factory=dict)
    unopened: Annotated[dict[Name, Reason], _Few] = dataclasses.field(default_factory=dict)
    failed: Annotated[dict[Name, Reason], _Few] = dataclasses.field(default_factory=dict)
    opened_before: Annotated[dict[Name, Annotated[list[Count], _Few]], _Few] = dataclasses.field(default_factory=dict)
    pictures: Annotated[dict[Name, Picture], Field(max_length=MOST_PICTURES)] = dataclasses.field(default_factory=dict)
    unpictured: Annotated[dict[Name, Reason], _Few] = dataclasses.field(default_factory=dict)
    compared: Compared | None = None


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The counts of both, by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}

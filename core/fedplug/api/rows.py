"""The numbers of a round: what parties report with their replies, and the rows that a run writes of them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, Field

from fedplug.api.data import ACCURACY, Figure
from fedplug.api.records import Amount, Count, Number, Record, Text, one_line, shown
from fedplug.api.units import spread


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
            self.messages + other.messages, _added(self.values, other.values), _added(self.found, other.found)
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


class Sent(Record):
    """Bytes that went one way in a round.

    Attributes:
        total: of all clients.
        zones: the same bytes, by zone; `other` belongs to none (questions, ballots, headers).
        phases: the same bytes, by phase.
    """

    total: Count = 0
    zones: dict[Text, Count] = dataclasses.field(default_factory=dict)
    phases: dict[Text, Count] = dataclasses.field(default_factory=dict)

    def count(self, size: int, zone: str, phase: str) -> None:
        """Adds bytes of a message that belong to a zone."""
        self.total += size
        self.zones[zone] = self.zones.get(zone, 0) + size
        self.phases[phase] = self.phases.get(phase, 0) + size

    def __add__(self, other: Sent) -> Sent:
        """What went that way in both."""
        return Sent(self.total + other.total, _added(self.zones, other.zones), _added(self.phases, other.phases))


class Traffic(Record):
    """Bytes from the clients to the server, from the server to the clients, and to and from the key server."""

    up: Sent
    down: Sent
    key_server: Sent

    def __add__(self, other: Traffic) -> Traffic:
        """Both together."""
        return Traffic(self.up + other.up, self.down + other.down, self.key_server + other.key_server)


class Attendance(Record):
    """How many clients were asked for an upload, how many are in the sums, and why others dropped out, by client."""

    asked: Count
    answered: Count
    dropped: dict[int, Text] = dataclasses.field(default_factory=dict)


class GroupResult(Record):
    """How a group's own model does.

    Attributes:
        accuracy: 0 to 1; None where the task has none.
        loss: in nats where it is a cross entropy.
        figures: of the task, by name.
    """

    accuracy: Number | None
    loss: Number
    figures: dict[Text, Number] = dataclasses.field(default_factory=dict)

    def leading(self, leads: Figure) -> float | None:
        """The number of the figure that leads."""
        return self.accuracy if leads.name == ACCURACY.name else self.figures.get(leads.name)


class Unopened(Record):
    """A sum that clients could not open."""

    zone: Text
    reason: Text
    clients: list[Count]


class Row(Record):
    """The numbers of one round.

    Attributes:
        round: counted from 1.
        accuracy: of the global model on the common test set, 0 to 1; of several groups, their mean. None where no
            client evaluated it, and where the task has none.
        loss: mean loss of the same, in nats where it is a cross entropy; NaN after a diverged round, null in JSON.
        train_loss: mean over the clients' local training, in nats.
        client_accuracy: by client, of the global model on test data with the class mix of its training data.
        clients: who took part.
        skipped: why the round released nothing, and the model stayed; empty where it did not.
        zones: share of the model in each zone, mean over the clients; None where it is unknown.
        sealed: the zones that are encrypted, whatever they are called.
        seconds: by phase, summed over the parties.
        wall_seconds: of the round by the clock on the wall.
        cpu_seconds: that the server's process computed in the round, all its threads together; with the engine `local`
            that is all parties' work. None in runs that did not count it.
        bytes: of all messages.
        messages: to clients.
        epsilon: spent so far, of a client; None where nothing is priced, infinite where the noise does not protect.
        mask_churn: share of the encrypted zone that changed since the round before, mean over the clients.
        log: what components logged: means over the clients, and what the server logged.
        figures: what the task and the model say of their counts, by name; see `Task.figures`. Of the clients' own
            models, whose counts are added up too, with `, own models` behind the name.
        leads: the figure that leads, with its direction; `leading` is its number.
        epsilon_prices: the zones that epsilon prices, where that is not everything that was released.
        view_epsilons: spent so far of a client, by the parties of the verdict for which an epsilon is stated.
        unprotected: the parties for which none is.
        level_epsilons: spent so far of units other than the client, by level, such as `record`; see `Account`.
        groups: by group, where there are several.
        group_members: clients of each group, where there are several.
        personal_accuracy: by client, of personal models, on test data as for `client_accuracy`.
        personal_public_accuracy: of the same models, each on its client's share of the common test set.
        client_leading, personal_leading, personal_public_leading: the figure that leads, by client, as the three above;
            empty where that is accuracy. `of_clients`, `of_personal` and `of_personal_public` are the one or the other.
        tuned: the figure that leads, by client, of the global model fine-tuned at that client, on test data as for
            `client_accuracy`; where the recipe has `fine_tune`.
        tuned_public: of the same models, each on its client's share of the common test set.
        clusters: the figure that leads, by cluster of `clusters` in the recipe, over its clients' own test data.
        simulated_seconds: that the round would take on other devices, where a section of the recipe reckons it.
        unopened: sums that clients could not open.
        added: what sections of the recipe and listeners of `RowMade` added, by name; plain data.
        compared: what all clients found of their plain values in their own messages; None where none looked, as in runs
            that are not recorded.
    """

    round: Count
    accuracy: Number | None
    loss: Number | None
    train_loss: Number | None
    client_accuracy: dict[int, Number]
    clients: Attendance
    zones: dict[Text, Number | None]
    seconds: dict[Text, Number]
    wall_seconds: Number
    bytes: Traffic
    messages: Count
    epsilon: Number | None
    mask_churn: Number | None
    log: dict[Text, Number]
    skipped: Text = ""
    sealed: list[Text] = dataclasses.field(default_factory=list)
    figures: dict[Text, Number] = dataclasses.field(default_factory=dict)
    epsilon_prices: Text = ""
    view_epsilons: dict[Text, Number] = dataclasses.field(default_factory=dict)
    unprotected: list[Text] = dataclasses.field(default_factory=list)
    level_epsilons: dict[Text, Number] = dataclasses.field(default_factory=dict)
    groups: dict[Text, GroupResult] = dataclasses.field(default_factory=dict)
    group_members: dict[Text, list[Count]] = dataclasses.field(default_factory=dict)
    personal_accuracy: dict[int, Number] = dataclasses.field(default_factory=dict)
    personal_public_accuracy: dict[int, Number] = dataclasses.field(default_factory=dict)
    client_leading: dict[int, Number] = dataclasses.field(default_factory=dict)
    personal_leading: dict[int, Number] = dataclasses.field(default_factory=dict)
    personal_public_leading: dict[int, Number] = dataclasses.field(default_factory=dict)
    tuned: dict[int, Number] = dataclasses.field(default_factory=dict)
    tuned_public: dict[int, Number] = dataclasses.field(default_factory=dict)
    clusters: dict[Text, Number] = dataclasses.field(default_factory=dict)
    unopened: list[Unopened] = dataclasses.field(default_factory=list)
    simulated_seconds: Amount | None = None
    added: dict[Text, Any] = dataclasses.field(default_factory=dict)
    cpu_seconds: Number | None = None
    compared: Compared | None = None
    leads: Figure = ACCURACY

    @property
    def sealed_share(self) -> float | None:
        """Share of the model that is encrypted; None where nothing is, or it is unknown."""
        shares = [share for zone in self.sealed if (share := self.zones.get(zone)) is not None]
        return math.fsum(shares) if shares else None

    @property
    def leading(self) -> float | None:
        """The number of the figure that leads; None where nobody evaluated."""
        return self.accuracy if self.leads.name == ACCURACY.name else self.figures.get(self.leads.name)

    @property
    def judged(self) -> dict[str, float | None]:
        """All its figures by name, the leading one first; accuracy is among them where the task has one."""
        own = {} if self.accuracy is None else {ACCURACY.name: self.accuracy}
        return {self.leads.name: self.leading, **own, **self.figures}

    @property
    def of_clients(self) -> dict[int, float]:
        """The figure that leads, by client, of the model that each was sent, on test data like its own."""
        return self.client_accuracy if self.leads.name == ACCURACY.name else self.client_leading

    @property
    def of_personal(self) -> dict[int, float]:
        """The same of the clients' own models."""
        return self.personal_accuracy if self.leads.name == ACCURACY.name else self.personal_leading

    @property
    def of_personal_public(self) -> dict[int, float]:
        """The same of these, each on its client's share of the common test set."""
        return self.personal_public_accuracy if self.leads.name == ACCURACY.name else self.personal_public_leading

    @property
    def of_groups(self) -> dict[str, float]:
        """By group, where there are several: how its model does on test data like its clients' own, mean over these.

        `leading` asks a group's model for every class, also those that its clients have never seen. A group of which
        no client counted is left out.
        """
        means, by_client = {}, self.of_clients
        for group, ids in self.group_members.items():
            if known := spread({c: by_client[c] for c in ids if c in by_client}):
                means[group] = known[1]
        return means

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` gave. Raises as there."""
        row = super().from_json(text)
        if row.leading is not None and row.loss is None:  # a row with counts has a loss: JSON has no NaN
            row.loss = math.nan
        return row


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}

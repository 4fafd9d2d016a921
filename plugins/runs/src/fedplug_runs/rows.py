"""The rows that a run writes of its rounds: what the parties reported, summed up."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Self

from fedplug.api.data import ACCURACY, Figure
from fedplug.api.records import Amount, Count, Number, Record, Text

from fedplug_runs.by_class import BALANCED
from fedplug_runs.compared import Compared, added
from fedplug_runs.units import spread


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
        return Sent(self.total + other.total, added(self.zones, other.zones), added(self.phases, other.phases))


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


def no_better(judged: Mapping[str, float | None], guess: Mapping[str, float], leads: Figure) -> str:
    """The figure in which a model is no better than a guess; empty where it is better, or nobody knows.

    A model that says one class whatever it is given has the balanced accuracy of chance, so that is looked at first.

    Args:
        judged, guess: by name of the figure, what the model gets, and what the guess gets.
        leads: the figure that leads.
    """
    for figure in (BALANCED, leads):
        value, least = judged.get(figure.name), guess.get(figure.name)
        if value is None or least is None or math.isnan(value):
            continue
        room = 1e-9 * abs(least)
        if value <= least + room if figure.better == "higher" else value >= least - room:
            return figure.name
    return ""


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
            `balanced accuracy` and `AUC` are among them where an answer is one class.
        leads: the figure that leads, with its direction; `leading` is its number. Balanced accuracy leads in the place
            of accuracy where a class is rare (`by_class.rarest`).
        recalls: by name of the class, the share of its examples of the common test set that the global model finds.
            Empty with data at sites, whose counts would tell the mix of their classes, and for over 100 classes.
        guess: by name of the figure, what the best guess that looks at no input gets, such as the commonest class
            alone; `no_better` compares.
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
    recalls: dict[Text, Number] = dataclasses.field(default_factory=dict)
    guess: dict[Text, Number] = dataclasses.field(default_factory=dict)

    @property
    def guessed(self) -> float | None:
        """What the best guess that looks at no input gets of the figure that leads; None where that is not known."""
        return self.guess.get(self.leads.name)

    @property
    def no_better(self) -> str:
        """In which figure the model is no better than a guess: balanced accuracy, or the one that leads; else empty."""
        return no_better(self.judged, self.guess, self.leads)

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

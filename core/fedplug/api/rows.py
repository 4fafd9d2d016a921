"""The row of a round: its numbers, as `metrics.jsonl` has them, events carry them and `Run.metrics` gives them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Self

from fedplug.api.record import Amount, Count, Number, Record, Text
from fedplug.api.units import spread


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
    """How a group's own model does: accuracy, 0 to 1, and loss in nats."""

    accuracy: Number
    loss: Number


class Unopened(Record):
    """A sum that clients could not open."""

    zone: Text
    reason: Text
    clients: list[Count]


class Row(Record):
    """The numbers of one round.

    Attributes:
        round: counted from 1.
        accuracy: of the global model on the public test set, 0 to 1; of several groups, their mean. None where no
            client evaluated it.
        loss: mean cross entropy of the same, in nats; NaN after a diverged round, null in JSON.
        train_loss: mean over the clients' local training, in nats.
        client_accuracy: by client, of the global model on test data with the class mix of its training data.
        clients: who took part.
        skipped: why the round released nothing, and the model stayed; empty where it did not.
        zones: share of the model in each zone, mean over the clients; None where it is unknown.
        seconds: by phase, summed over the parties.
        wall_seconds: of the round by the clock on the wall.
        cpu_seconds: that the server's process computed in the round, all its threads together; with the engine `local`
            that is all parties' work. None in runs that did not count it.
        bytes: of all messages.
        messages: to clients.
        epsilon: spent so far, of a client; None where nothing is priced, infinite where the noise does not protect.
        mask_churn: share of the encrypted zone that changed since the round before, mean over the clients.
        log: what components logged: means over the clients, and what the server logged.
        figures: what the task's model says of its own counts, by title; see `ModelSource.figures`. Of the clients' own
            models, whose counts are added up too, with `, own models` behind the title.
        epsilon_prices: the zones that epsilon prices, where that is not everything that was released.
        view_epsilons: spent so far of a client, by the views of the ledger that have a guarantee.
        level_epsilons: spent so far of units other than the client, by level, such as `record`; see `Account`.
        groups: by group, where there are several.
        group_members: clients of each group, where there are several.
        personal_accuracy: by client, of models of their own, on test data as for `client_accuracy`.
        personal_public_accuracy: of the same models, each on its client's share of the public test set.
        simulated_seconds: that the round would take on other devices, where a section of the recipe reckons it.
        unopened: sums that clients could not open.
        added: what sections of the recipe and listeners of `RowMade` added, by name; plain data.
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
    figures: dict[Text, Number] = dataclasses.field(default_factory=dict)
    epsilon_prices: Text = ""
    view_epsilons: dict[Text, Number] = dataclasses.field(default_factory=dict)
    level_epsilons: dict[Text, Number] = dataclasses.field(default_factory=dict)
    groups: dict[Text, GroupResult] = dataclasses.field(default_factory=dict)
    group_members: dict[Text, list[Count]] = dataclasses.field(default_factory=dict)
    personal_accuracy: dict[int, Number] = dataclasses.field(default_factory=dict)
    personal_public_accuracy: dict[int, Number] = dataclasses.field(default_factory=dict)
    unopened: list[Unopened] = dataclasses.field(default_factory=list)
    simulated_seconds: Amount | None = None
    added: dict[Text, Any] = dataclasses.field(default_factory=dict)
    cpu_seconds: Number | None = None

    @property
    def group_accuracy(self) -> dict[str, float]:
        """By group, where there are several: how its model does on test data like its clients' own, mean over these.

        `accuracy` asks a group's model for every class, also those that its clients have never seen. A group of which
        no client counted is left out.
        """
        means = {}
        for group, ids in self.group_members.items():
            if known := spread({c: self.client_accuracy[c] for c in ids if c in self.client_accuracy}):
                means[group] = known[1]
        return means

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` gave. Raises as there."""
        row = super().from_json(text)
        if row.accuracy is not None and row.loss is None:  # whoever counts answers has a loss: JSON has no NaN
            row.loss = math.nan
        return row


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}

"""The results of a run, as tables of sweeps and comparisons show them."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedplug.api.data import ACCURACY, Figure
from fedplug.api.records import Count, Number, Record, Text


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

    @property
    def leading(self) -> float | None:
        """The number of the figure that leads."""
        return self.accuracy if self.leads.name == ACCURACY.name else self.figures.get(self.leads.name)

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

"""What the ledger enters of each round: the facts from which all that it states follows."""

from __future__ import annotations

import dataclasses
from typing import Literal, Self

from fedplug.api.record import Count, Number, Record, Text
from fedplug.api.releases import Release


@dataclasses.dataclass
class ZoneEntry(Record):
    """What one zone released in a round.

    Attributes:
        size: scalars that were sent, mean over the clients.
        releases: each noise of the zone's chain.
        local, central: the largest multiplier of Gaussian noise, at clients and at the server; None without a release.
        other: mechanism and multiplier where noise of another kind counts in place of both.
        sum_factor, peer_factor: how much larger the multiplier is in the sum, for outsiders and for contributors. None
            in the record of a run whose cohorts are secret: both follow from how many took part.
        uncredited: why the noise of others earns no credit; empty if it does, or none is needed.
        slack: by how much the mechanism may fail beside delta.
        unstated: the links that state no effect.
    """

    size: Number
    releases: list[Release] = dataclasses.field(default_factory=list)
    local: Number | None = None
    central: Number | None = None
    other: tuple[Text, Number] | None = None
    sum_factor: Number | None = None
    peer_factor: Number | None = None
    uncredited: Text = ""
    slack: Number = 0.0
    unstated: list[Text] = dataclasses.field(default_factory=list)

    @property
    def is_bare(self) -> bool:
        """Whether no noise was stated."""
        return self.local is None and self.central is None and self.other is None


@dataclasses.dataclass
class RoundEntry(Record):
    """What one round released. A round that was repeated has one entry a time; ballots have entries of their own.

    Attributes:
        round: 1-based.
        charged: the clients that were asked for an upload; `all`; or `secret` in the record of a run that says nowhere
            who took part.
        total: P.
        zones: those that were sent.
        secret_cohort: nothing but the noised sums depended on who took part.
        accounts: by level and client, what the round releases at levels of which components keep account.
    """

    round: Count
    charged: list[Count] | Literal["all", "secret"]
    total: Count
    zones: dict[Text, ZoneEntry]
    secret_cohort: bool = False
    accounts: dict[Text, dict[int, list[Number]]] = dataclasses.field(default_factory=dict)

    def without_cohort(self) -> Self:
        """For a record whose cohorts must stay secret: without who took part, and what follows from how many did."""
        zones = {z: dataclasses.replace(facts, sum_factor=None, peer_factor=None) for z, facts in self.zones.items()}
        return dataclasses.replace(self, charged="secret", zones=zones, accounts={})

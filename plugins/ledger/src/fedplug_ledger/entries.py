"""The log of a ledger: one entry a round, from which every guarantee follows."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, Self

from fedplug.api.known import Release
from fedplug.api.operations import INTEGER, Buffered
from fedplug.api.records import Count, Number, Record, Text


class ZoneEntry(Record):
    """The release of one zone in a round.

    Attributes:
        size: scalars that were sent, mean over the clients.
        releases: each noise of the zone's chain.
        local, central: the largest multiplier of Gaussian noise, at clients and at the server; None without a release.
        other: mechanism and multiplier where noise of another kind counts in place of both.
        sum_factor, peer_factor: how much larger the multiplier is in the sum, for outsiders and for contributors. None
            in the record of a run whose cohorts are secret: both follow from how many took part.
        uncredited: why the noise of others earns no credit; empty if it does, or none is needed.
        slack: by how much the mechanism may fail in addition to delta.
        freed: links whose functions had data in hand behind the noise, which counts for nothing then.
        closed: whether the sum stayed closed, which only the shares of several clients open.
        senders: of noise that clients add and that is correlated over rounds, the weights of those who surely added it
            to this sum, by client; none where nobody knows. None where noise is independent or the server's, and where
            the sum stayed closed and all have gone back to before they added it.
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
    freed: list[Text] = dataclasses.field(default_factory=list)
    closed: bool = False
    senders: dict[int, Number] | None = None

    @property
    def is_bare(self) -> bool:
        """Whether no noise was stated."""
        return self.local is None and self.central is None and self.other is None

    @property
    def concentrated(self) -> bool:
        """Whether its multipliers are those of Gaussian noise in Renyi DP alone; see `fedplug_ledger.integers`."""
        return any(release.mechanism in INTEGER for release in self.releases)

    @property
    def takes_back(self) -> tuple[float, ...] | Buffered | None:
        """Of noise that is correlated over rounds, see `fedplug.Noise`; None of a server's on a sum that nobody opened.

        Clients that have added theirs take it back later, whether or not the sum was opened.
        """
        correlated = (release.takes_back for release in self.releases if release.takes_back is not None)
        return None if self.closed and not self.by_clients else next(correlated, None)

    @property
    def correlated_bound(self) -> float:
        """The norm that bounds the values below noise that is correlated over rounds; infinite where nothing does."""
        bounds = [release.clipping_norm for release in self.releases if release.takes_back is not None]
        return max((math.inf if bound is None else bound for bound in bounds), default=math.inf)

    @property
    def by_clients(self) -> bool:
        """Whether clients add noise that is correlated over rounds."""
        return any(each.takes_back is not None and each.trust != "central" for each in self.releases)


class RoundEntry(Record):
    """The releases of one round. A round that was repeated has one entry a time; ballots have separate entries.

    Attributes:
        round: 1-based.
        charged: the clients that were asked for an upload, `all`, or `secret` in the record of a run that says nowhere
            who took part.
        total: P.
        zones: those that were sent.
        secret_cohort: nothing but the noised sums depended on who took part.
        accounts: by level and client, what the round releases at levels of which components keep account.
        public: zones whose uploads no client's examples went into, which cost nothing.
    """

    round: Count
    charged: list[Count] | Literal["all", "secret"]
    total: Count
    zones: dict[Text, ZoneEntry]
    secret_cohort: bool = False
    accounts: dict[Text, dict[int, list[Number]]] = dataclasses.field(default_factory=dict)
    public: list[Text] = dataclasses.field(default_factory=list)

    def without_cohort(self) -> Self:
        """For a record whose cohorts must stay secret: without who took part, and what follows from how many did."""
        zones = {
            z: dataclasses.replace(facts, sum_factor=None, peer_factor=None, senders=None)
            for z, facts in self.zones.items()
        }
        return dataclasses.replace(self, charged="secret", zones=zones, accounts={})

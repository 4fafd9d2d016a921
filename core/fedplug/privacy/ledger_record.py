"""The privacy account of a run as `ledger.json` has it, written here and read here by everybody; and what the ledger
enters of each round, from which all that it states follows."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal, Self

from fedplug.api.operations import NoiseKind
from fedplug.api.record import Count, Number, Record, Text
from fedplug.api.releases import Release
from fedplug.api.role_records import Reveals


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
        freed: links whose functions had data in hand behind the noise, which counts for nothing then.
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

    @property
    def is_bare(self) -> bool:
        """Whether no noise was stated."""
        return self.local is None and self.central is None and self.other is None


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


SCHEMA = 5
NEVER_COVERED = (
    "hyper-parameter search and earlier runs on the same data",
    "number of examples of a client",
    "norms of updates",
    "timing, message sizes and ciphertext counts",
    "who drops out",
    "accuracy, loss and other numbers that clients report for the metrics",
)
"""What no guarantee of this ledger covers, whatever the recipe."""
Methods = dict[Text, Number]
"""By method of accounting, what it states; the first is the one to quote."""


def quoted(stated: Methods) -> float:
    """The one to quote."""
    return next(iter(stated.values()))


class Epsilons(Record):
    """Epsilon of the worst client under both adjacencies, by method."""

    zero_out: Methods
    replace_one: Methods

    @property
    def epsilon(self) -> float:
        """Zero-out, by the first method."""
        return quoted(self.zero_out)


class Priced:
    """What has an epsilon, or none.

    Attributes:
        epsilons: None where nothing is promised.
    """

    epsilons: Epsilons | None

    @property
    def epsilon(self) -> float | None:
        """Zero-out, by the first method; None where nothing is promised."""
        return None if self.epsilons is None else self.epsilons.epsilon


@dataclasses.dataclass
class ViewReport(Priced, Record):
    """What one adversary may learn.

    Attributes:
        epsilons: None where it has no guarantee.
        reason: on what the guarantee rests, or why there is none.
        nominal: what the noise would give if it did not follow from the recipe's seed.
        colluders: how many clients put their heads together in this view; None where it has no client.
    """

    epsilons: Epsilons | None
    reason: Text
    nominal: Epsilons | None = None
    colluders: Count | None = None


class LevelReport(Record):
    """What holds at a level of which a component keeps account; apart from all that holds for clients."""

    unit: Text
    trust: Text
    covers: Text
    delta: Number
    epsilons: Methods


@dataclasses.dataclass
class ZoneReport(Priced, Record):
    """How one zone was protected.

    Attributes:
        largest_size: of any round, the mean over the clients, in scalars; `largest_share` is that of the model.
        encrypted: whether it was closed when it was sent.
        rounds_with_noise, rounds_without_noise: how many of each.
        mechanism, clipping_norm, std, noise_multiplier: of the last round, one a noise; `std` is None where the
            mechanism adds no noise.
        epsilons: of this zone alone; None without noise.
    """

    largest_size: Number
    largest_share: Number
    encrypted: bool
    rounds_with_noise: Count
    rounds_without_noise: Count
    mechanism: list[Text]
    clipping_norm: list[Number]
    std: list[Number | None]
    noise_multiplier: list[Number]
    epsilons: Epsilons | None


class SamplingReport(Record):
    """Which clients take part, and whether and why that lowers epsilon."""

    scheme: Text
    amplified: bool
    why: Text
    rate: Number | None = None
    source: Text = ""


class RoundsReport(Record):
    """How many rounds were planned, and how many released something."""

    planned: Count
    actual: Count


class EncryptionReport(Record):
    """What closes a zone.

    Attributes:
        key_holder: who can decrypt: `clients`, `key_server`, or `shares`, which many clients would put together.
        sums_seen_by_aggregator: whether decrypted sums pass through the aggregation server.
        component, parameters: of the encryption.
        opens_with: how many clients, or what they hold, open an upload together; 1 where each holds a key.
    """

    key_holder: Text
    sums_seen_by_aggregator: bool
    component: Text = ""
    parameters: Text = ""
    opens_with: Count = 1


class NoiseReport(NoiseKind, kw_only=True):
    """Where the noise of a zone came from."""

    whole: ClassVar[bool] = True
    zone: Text
    dtype: Text = "float32"


@dataclasses.dataclass(repr=False)
class LedgerReport(Priced, Record):
    """The privacy account of a run. Read `epsilon` with the verdict: it may price a part only.

    Attributes:
        schema: of this record.
        recipe: its name.
        verdict: what privacy the run gave, in a sentence.
        warnings: what a reader of epsilon should know.
        unit, adjacency: whose data epsilon is about, and what neighbouring data are.
        delta: failure probability for which epsilon is stated.
        trust: who adds the noise.
        epsilons: of all zones with noise together; None where no zone has any.
        epsilon_prices: what that covers.
        levels: by level of which a component keeps account.
        views: by adversary.
        zones, encryption: by zone.
        sampling, rounds, noise, reveals: as their records say.
        uncovered_messages: what the server was sent that no statement covers.
        never_covered: what no guarantee covers, whatever the recipe.
        log: what each round released, from which all of this follows.
    """

    schema: Count
    recipe: Text
    verdict: Text
    warnings: list[Text]
    unit: Text
    adjacency: Text
    delta: Number
    trust: Text
    epsilons: Epsilons | None
    epsilon_prices: Text
    levels: dict[Text, LevelReport]
    views: dict[Text, ViewReport]
    zones: dict[Text, ZoneReport]
    sampling: SamplingReport
    rounds: RoundsReport
    encryption: dict[Text, EncryptionReport]
    noise: list[NoiseReport]
    reveals: list[Reveals]
    uncovered_messages: list[Text]
    never_covered: list[Text]
    log: list[RoundEntry]

    def __repr__(self) -> str:
        return f"<Ledger: {self.verdict}>"

"""The privacy account of a run as `ledger.json` has it, written here and read here by everybody."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from fedplug.api.known import Release
from fedplug.api.operations import INTEGER, NoiseKind
from fedplug.api.records import Count, Number, Record, Text
from fedplug.api.roles import Reveals
from fedplug.api.verdict import Epsilons, Line, Methods, Priced, Verdict

if TYPE_CHECKING:

    pass


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
        """Whether its multipliers are those of Gaussian noise in Renyi DP alone; see `fedplug.privacy.integers`."""
        return any(release.mechanism in INTEGER for release in self.releases)

    @property
    def takes_back(self) -> tuple[float, ...] | None:
        """Of noise that is correlated over rounds, see `fedplug.Noise`; None of a server's on a sum that nobody opened.

        Clients that have added theirs take it back later, whether or not the sum was opened.
        """
        correlated = (release.takes_back for release in self.releases if release.takes_back is not None)
        return None if self.closed and not self.by_clients else next(correlated, None)

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


SCHEMA = 7
NEVER_COVERED = (
    "hyper-parameter search and earlier runs on the same data",
    "number of examples of a client",
    "norms of updates",
    "timing, message sizes and ciphertext counts",
    "who drops out",
    "accuracy, loss and other numbers that clients report for the metrics",
)
"""What no guarantee of this ledger covers, whatever the recipe."""
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
    resting: Text = ""


class RoundsReport(Record):
    """How many rounds were planned, and how many released something."""

    planned: Count
    actual: Count


class EncryptionReport(Record):
    """What closes a zone.

    Attributes:
        key_holder: who can decrypt: `clients`, `key_server`, or `shares`, which many clients would put together.
        sums_seen_by_server: whether decrypted sums pass through the aggregation server.
        component, parameters: of the encryption.
        opens_with: how many clients, or what they hold, open an upload together; 1 where each holds a key.
        words: components that are not of fedplug itself and close or open the zone, on whose word all this is.
    """

    key_holder: Text
    sums_seen_by_server: bool
    component: Text = ""
    parameters: Text = ""
    opens_with: Count = 1
    words: list[Text] = dataclasses.field(default_factory=list)


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
        verdict: what each party may learn about a client, and on what that rests.
        warnings: what a reader of epsilon should know.
        unit, adjacency: whose data epsilon is about, and what neighbouring data are.
        delta: failure probability for which epsilon is stated.
        trust: who adds the noise.
        epsilons: of all zones with noise together; None where no zone has any.
        epsilon_prices: what that covers.
        levels: by level of which a component keeps account.
        zones, encryption: by zone.
        sampling, rounds, noise, reveals: as their records say.
        uncovered_messages: what the server was sent that no statement covers.
        never_covered: what no guarantee covers, whatever the recipe.
        log: what each round released, from which all of this follows.
    """

    schema: Count
    recipe: Text
    verdict: Verdict
    warnings: list[Text]
    unit: Text
    adjacency: Text
    delta: Number
    trust: Text
    epsilons: Epsilons | None
    epsilon_prices: Text
    levels: dict[Text, LevelReport]
    zones: dict[Text, ZoneReport]
    sampling: SamplingReport
    rounds: RoundsReport
    encryption: dict[Text, EncryptionReport]
    noise: list[NoiseReport]
    reveals: list[Reveals]
    uncovered_messages: list[Text]
    never_covered: list[Text]
    log: list[RoundEntry]

    @property
    def views(self) -> dict[str, Line]:
        """The verdict's lines, by party."""
        return {line.party: line for line in self.verdict.lines}

    def __repr__(self) -> str:
        return f"<Ledger: {self.verdict}>"

"""The privacy account of a run as `ledger.json` has it, written here and read here by everybody."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from fedplug.api.operations import NoiseKind
from fedplug.api.records import Count, Number, Record, Text
from fedplug.api.roles import Reveals

from fedplug_ledger.entries import RoundEntry
from fedplug_ledger.grades import Epsilons, Methods, Priced
from fedplug_ledger.verdict import Line, Verdict

SCHEMA = 8
NEVER_COVERED = (
    "hyper-parameter search and earlier runs on the same data",
    "number of examples of a client",
    "norms of updates",
    "timing, message sizes and ciphertext counts",
    "who drops out",
    "accuracy (on the common test set by class too), loss and other numbers that clients report for the metrics",
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
    separation: Count = 1
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
    """

    key_holder: Text
    sums_seen_by_server: bool
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
        words: the components that are not of fedplug itself, on whose word every guarantee is.
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
    words: list[Text]
    never_covered: list[Text]
    log: list[RoundEntry]

    @property
    def views(self) -> dict[str, Line]:
        """The verdict's lines, by party."""
        return {line.party: line for line in self.verdict.lines}

    def __repr__(self) -> str:
        return f"<Ledger: {self.verdict}>"

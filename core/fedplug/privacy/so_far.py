"""What all rounds of a run so far have in common, kept up one entry of the ledger's log at a time."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

from fedplug.privacy.accounting import effective_multiplier

if TYPE_CHECKING:
    from fedplug.privacy.ledger_log import RoundEntry


@dataclasses.dataclass(eq=False)
class SoFar:
    """Facts about a log of which guarantees depend, and which no sum of costs holds.

    Attributes:
        central: how many rounds released all their zones together like one Gaussian release of this multiplier, noise
            at the server alone; in order of first appearance.
        unstated: `link in zone`, of links that state no effect where no noise is known either; in that order too.
        single: zones of which some release was that of one upload, and not of a sum.
        scored: zones whose noise has sizes that follow from scores of a model.
        reproducible: whether any noise follows from the recipe's seed.
        exposed: whether any round showed who took part.
    """

    central: Counter[float] = dataclasses.field(default_factory=Counter)
    unstated: dict[str, None] = dataclasses.field(default_factory=dict)
    single: set[str] = dataclasses.field(default_factory=set)
    scored: set[str] = dataclasses.field(default_factory=set)
    reproducible: bool = False
    exposed: bool = False

    def enter(self, entry: RoundEntry) -> None:
        """Adds what one entry of the log says."""
        self.exposed |= not entry.secret_cohort
        central = (facts.central for facts in entry.zones.values() if facts.central is not None)
        self.central[effective_multiplier(central)] += 1
        for zone, facts in entry.zones.items():
            if not (facts.local or facts.central or facts.other):
                self.unstated |= dict.fromkeys(f"{link} in zone {zone}" for link in facts.unstated)
            for release in facts.releases:
                self.reproducible |= release.source == "reproducible"
                if release.trust != "distributed":
                    self.single.add(zone)
                if release.scored:
                    self.scored.add(zone)

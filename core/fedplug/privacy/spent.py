"""What a run has spent, as sums that compose and facts that no sum holds, kept up one entry of the log at a time."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from fedplug.privacy.accounting import effective_multiplier, epsilon_with_slack, gaussian_epsilon
from fedplug.privacy.renyi import composed_epsilon, gaussian_rdp_epsilon

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.operations import Curve
    from fedplug.api.outer_roles import Accountant
    from fedplug.privacy.ledger_record import RoundEntry, ZoneEntry


_LARGEST_COMPOSED = 100.0
"""Epsilon by Renyi DP up to which an accountant is asked for a tighter one."""


@dataclasses.dataclass(eq=False)
class Spent:
    """The cost of all releases so far, for each of K clients.

    Attributes:
        gaussian: sum of 1/multiplier^2 of Gaussian releases, (K,); see `accounting.effective_multiplier`.
        others: number of other releases, (K,), by (mechanism, noise multiplier); see `fedplug.api.releases.Release`.
        slack: what mechanisms take of delta themselves, over the whole run; see `fedplug.api.operations.Noise`.
    """

    gaussian: NDArray[np.float64]
    others: dict[tuple[str, float], NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    slack: float = 0.0

    @classmethod
    def of(cls, num_clients: int, parts: Iterable[Spent] = ()) -> Spent:
        """All parts together; without any, nothing."""
        total = cls(np.zeros(num_clients))
        for part in parts:
            total.gaussian = total.gaussian + part.gaussian
            total.slack += part.slack
            for (mechanism, multiplier), counts in part.others.items():
                total.count(mechanism, multiplier, counts)
        return total

    def count(self, mechanism: str, multiplier: float, counts: NDArray[np.int64]) -> None:
        """Adds releases that are not Gaussian."""
        self.others[mechanism, multiplier] = self.others.get((mechanism, multiplier), 0) + counts

    def doubled(self) -> Spent:
        """The cost under twice the sensitivity: from zero-out to replace-one adjacency."""
        others = {(name, multiplier / 2): n for (name, multiplier), n in self.others.items()}
        return Spent(4 * self.gaussian, others, self.slack)

    def same(self, other: Spent) -> bool:
        """Whether everybody has spent the same in both."""
        return (
            self.slack == other.slack
            and np.array_equal(self.gaussian, other.gaussian)
            and self.others.keys() == other.others.keys()
            and all(np.array_equal(counts, other.others[kind]) for kind, counts in self.others.items())
        )

    def any(self) -> bool:
        """Whether anybody has spent anything."""
        return bool(self.gaussian.any()) or any(counts.any() for counts in self.others.values())

    def epsilons(
        self, delta: float, accountant: Accountant | None, curves: Mapping[str, Curve] = MappingProxyType({})
    ) -> dict[str, float]:
        """Epsilon of the worst client by method, the headline first, at the delta that is left for it.

        Gaussian releases alone: `epsilon_exact` and its RDP bound. With others: `epsilon_pld` where the accountant
        composes them, and `epsilon_rdp`, which is the plain sum of epsilons where that is less.
        """
        kinds = [kind for kind, counts in self.others.items() if counts.any()]
        spent = np.stack([self.gaussian, *(self.others[kind] for kind in kinds)], axis=1)
        # Clients that took part in the same rounds have spent the same: each distinct history is composed once.
        histories = np.unique(spent, axis=0) if kinds else [spent.max(axis=0, initial=0.0)]
        each = [self._of_one(history, kinds, delta, accountant, curves) for history in histories]
        return {method: max(one[method] for one in each) for method in each[0] if all(method in one for one in each)}

    def _of_one(
        self,
        history: NDArray[np.float64],
        kinds: list[tuple[str, float]],
        delta: float,
        accountant: Accountant | None,
        curves: Mapping[str, Curve],
    ) -> dict[str, float]:
        cost = float(history[0])
        multiplier = math.inf if cost == 0 else 1 / math.sqrt(cost)
        others = [(name, m, int(n)) for (name, m), n in zip(kinds, history[1:], strict=True) if n]
        methods: dict[str, Callable[[float], float]] = {
            "epsilon_exact": lambda left: gaussian_epsilon(multiplier, left),
            "epsilon_rdp": lambda left: gaussian_rdp_epsilon(multiplier, left),
        }
        if kinds:
            methods = {"epsilon_rdp": lambda left: composed_epsilon(cost, others, left, curves)}
        stated = {method: epsilon_with_slack(epsilon, delta, self.slack) for method, epsilon in methods.items()}
        if accountant is None or not kinds or self.slack or any(name in curves for name, _, _ in others):
            return stated
        # A distribution of losses in the hundreds takes gigabytes, and such an epsilon needs no second digit.
        if not stated["epsilon_rdp"] <= _LARGEST_COMPOSED:
            return stated
        releases = [(name, multiplier, 1.0, count) for name, multiplier, count in others]
        releases += [("gaussian", multiplier, 1.0, 1)] if cost > 0 else []
        tight = accountant.compose(releases, delta, "zero_out")
        return stated if tight is None else {"epsilon_pld": tight["pld"], **stated}


@dataclasses.dataclass(eq=False)
class ZoneCost:
    """What one zone has cost each of K clients: sums of 1/multiplier^2 over rounds, zero-out adjacency.

    Attributes:
        own: toward whoever sees the client's own upload; infinite after a round with central noise alone.
        total: toward whoever sees the sums only.
        below: toward whoever sees the sums before noise is added to these; the same as `total` where none is.
        peer: toward another client, who subtracts its own upload from the sums.
        others: how often each client made a release that is not Gaussian, by (mechanism, noise multiplier); toward
            everybody, since the noise of other clients earns no credit there.
        slack: what mechanisms take of delta for the planned rounds, the largest of any round; see `fedplug.Noise`.
        releases: in how many rounds noise was added.
        bare: in how many rounds the zone was released without noise.
        central: in how many rounds the noise was added to the sum only.
        beneath: in how many rounds noise was added to the sum on top of that of the uploads.
        largest: largest mean size of a round, in scalars.
    """

    own: NDArray[np.float64]
    total: NDArray[np.float64]
    below: NDArray[np.float64]
    peer: NDArray[np.float64]
    others: dict[tuple[str, float], NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    slack: float = 0.0
    releases: int = 0
    bare: int = 0
    central: int = 0
    beneath: int = 0
    largest: float = 0.0

    @classmethod
    def zero(cls, num_clients: int) -> ZoneCost:
        own, total, below, peer = (np.zeros(num_clients) for _ in range(4))
        return cls(own, total, below, peer)

    def enter(self, facts: ZoneEntry, charged: NDArray[np.bool_]) -> None:
        """Adds what a round released of the zone, for the clients that were charged."""
        self.largest, self.slack = max(self.largest, facts.size), max(self.slack, facts.slack)
        if facts.is_bare:
            self.bare += 1
            return
        self.releases += 1
        if facts.other:
            self.others.setdefault(facts.other, np.zeros(len(charged), np.int64))[charged] += 1
            return
        local, central = facts.local or 0.0, facts.central or 0.0
        in_sum, for_peers = local * (facts.sum_factor or 1.0), local * (facts.peer_factor or 1.0)
        self.central += facts.local is None
        self.beneath += facts.local is not None and facts.central is not None
        # Local and central noise add up in the sum; the larger of the two alone is a bound.
        self.own[charged] += inverse_square(local)
        self.total[charged] += inverse_square(max(in_sum, central))
        self.below[charged] += inverse_square(in_sum)
        self.peer[charged] += inverse_square(max(for_peers, central))


def inverse_square(multiplier: float) -> float:
    """1/multiplier^2; infinite where there is no noise."""
    return math.inf if multiplier < 1e-150 else (1 / multiplier) ** 2  # so that it never overflows


@dataclasses.dataclass(eq=False)
class SoFar:
    """Facts about a log of which guarantees depend, and which no sum of costs holds.

    Attributes:
        central: how many rounds released all their zones together like one Gaussian release of this multiplier, noise
            at the server alone; in order of first appearance.
        freed: `link in zone`, of links that state no effect where no noise is known either; in that order too.
        single: zones of which some release was that of one upload, and not of a sum.
        scored: zones whose noise has sizes that follow from scores of a model.
        reproducible: whether any noise follows from the recipe's seed.
        exposed: whether any round showed who took part.
    """

    central: Counter[float] = dataclasses.field(default_factory=Counter)
    freed: dict[str, None] = dataclasses.field(default_factory=dict)
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
                self.freed |= dict.fromkeys(f"{link} in zone {zone}" for link in facts.freed)
            for release in facts.releases:
                self.reproducible |= release.source == "reproducible"
                if release.trust != "distributed":
                    self.single.add(zone)
                if release.scored:
                    self.scored.add(zone)

"""What several runs cost a client together: their releases, as if one ledger had them all."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from fedplug.api.operations import OF_EPSILON
from fedplug.api.records import Count, Number, Record, Text

from fedplug_ledger.costs import Spent
from fedplug_ledger.grades import Epsilons, quoted


class Cost(Record):
    """What a run has cost a client toward one party.

    Attributes:
        reason: why there is no guarantee; empty where there is one.
        gaussian: sum of 1 / multiplier^2.
        others: mechanism, multiplier and number of releases that are not Gaussian.
        slack: what mechanisms take of delta themselves.
        concentrated: whether some of the Gaussian costs have the Renyi DP of Gaussian noise alone.
        epsilon: by the run's own ledger, at its delta.
    """

    reason: Text = ""
    gaussian: Number = 0.0
    others: list[tuple[Text, Number, Count]] = dataclasses.field(default_factory=list)
    slack: Number = 0.0
    concentrated: bool = False
    epsilon: Number = 0.0

    @property
    def composes(self) -> bool:
        """Whether its releases are of mechanisms that every ledger knows."""
        return all(mechanism in OF_EPSILON for mechanism, _, _ in self.others)

    @classmethod
    def of(cls, spent: Spent, epsilon: float, client: int | None = None) -> Cost:
        """Of one client; of None, at least what any client has spent."""
        counts = [(kind, n.max() if client is None else n[client]) for kind, n in spent.others.items()]
        others = [(mechanism, multiplier, int(n)) for (mechanism, multiplier), n in counts if n]
        gaussian = float(spent.gaussian.max(initial=0.0) if client is None else spent.gaussian[client])
        return cls("", gaussian, others, spent.slack, spent.concentrated, epsilon)


def costs_of(stated: Epsilons, zero_out: Spent, replace_one: Spent) -> dict[str, Cost]:
    """By adjacency, at least what any client has spent."""
    return {
        "zero_out": Cost.of(zero_out, quoted(stated.zero_out)),
        "replace_one": Cost.of(replace_one, quoted(stated.replace_one)),
    }


def composed(costs: Iterable[tuple[Cost, float]], delta: float) -> float:
    """Epsilon of several runs together, at `delta`; infinite where one has no guarantee.

    Gaussian noise composes exactly, other noise by Renyi DP. Mechanisms that only a run's own components know are added
    up, epsilon and delta.

    Args:
        costs: of each run, with the delta of its ledger.
        delta: of all of them together.
    """
    parts, added, left = list[Spent](), 0.0, delta
    for cost, own in costs:
        if cost.reason or math.isinf(cost.gaussian):
            return math.inf
        if cost.composes:
            parts.append(Spent.of_one(cost.gaussian, cost.others, cost.slack, cost.concentrated))
        else:
            added, left = added + cost.epsilon, left - own
    spent = Spent.of(1, parts)
    if left <= 0:
        return math.inf
    return added + (quoted(spent.epsilons(left, None)) if spent.any() else 0.0)

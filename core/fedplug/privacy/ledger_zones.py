"""Which zones of a run were released with noise and which without, and what several have cost together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fedplug.api.types import NOISED
from fedplug.privacy.spent import Spent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.privacy.ledger import Ledger
    from fedplug.privacy.spent import ZoneCost


def noised_zones(ledger: Ledger) -> dict[str, ZoneCost]:
    """What each zone has cost that was released with noise."""
    return {zone: cost for zone, cost in ledger.costs.items() if cost.releases}


def bare_zones(ledger: Ledger) -> list[str]:
    """Zones that were released without noise in some round."""
    return [zone for zone, cost in ledger.costs.items() if cost.bare]


def is_reproducible(ledger: Ledger) -> bool:
    """Whether any noise of the run follows from the recipe's seed."""
    return ledger.so_far.reproducible


def summed(
    ledger: Ledger, costs: Iterable[ZoneCost], gaussian: Callable[[ZoneCost], NDArray[np.float64]]
) -> Spent:
    """What zones have cost together, where `gaussian` says which of their costs counts."""
    return Spent.of(ledger.num_clients, [Spent(gaussian(cost), cost.others, slack_of(ledger, cost)) for cost in costs])


def slack_of(ledger: Ledger, cost: ZoneCost) -> float:
    """What a zone's mechanisms take of delta. They state it for as many releases as rounds were planned; of more, such
    as those of repeated rounds, every further lot of so many, also a broken one, takes as much again.
    """
    return cost.slack * math.ceil(cost.releases / max(1, ledger.rounds))


def listed_bare(ledger: Ledger, zones: list[str]) -> str:
    """The same of zones that were released without noise: one called noised that never had any is so only by name."""
    never = [zone for zone in zones if zone == NOISED and not ledger.costs[zone].releases]
    return listed([f"so-called {zone}" if zone in never else zone for zone in zones])


def listed(zones: list[str]) -> str:
    """Names in a sentence."""
    return " and ".join(zones)

"""The epsilons of a run: of all zones with noise, of one zone, and of levels of which components keep account."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedplug.api.errors import of_component
from fedplug.privacy.ledger_record import Epsilons
from fedplug.privacy.ledger_zones import summed
from fedplug.privacy.sampling_credit import amplified
from fedplug.privacy.spent import Spent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.privacy.ledger import Ledger
    from fedplug.privacy.spent import ZoneCost


def headline(ledger: Ledger) -> float | None:
    """Epsilon of all zones with noise, zero-out, worst client; None if there are none. See `Ledger.epsilon`."""
    figures = zone_epsilons(ledger)
    return None if figures is None else next(iter(figures.zero_out.values()))


def zone_epsilons(ledger: Ledger, zone: str | None = None) -> Epsilons | None:
    """Epsilons of one zone, or of all zones with noise together; None if there is no noise."""
    noised = {name: cost for name, cost in ledger.costs.items() if cost.releases and zone in (None, name)}
    if not noised:
        return None
    if zone is None and (sampled := amplified(ledger)):
        return sampled
    sums_only = _sums_only(ledger)
    spent = Spent.of(
        ledger.num_clients,
        [
            summed(ledger, [cost], lambda cost, zone=name: _price(cost, zone in sums_only))  # type: ignore[misc]
            for name, cost in noised.items()
        ],
    )
    return Epsilons(
        zero_out=spent.epsilons(ledger.delta, ledger.accountant, ledger.curves),
        replace_one=spent.doubled().epsilons(ledger.delta, ledger.accountant, ledger.curves),
    )


def _price(cost: ZoneCost, sums_only: bool) -> NDArray[np.float64]:
    """What a zone's Gaussian releases cost toward those who see most of them."""
    return cost.total if cost.central else cost.peer if sums_only else cost.own


def _sums_only(ledger: Ledger) -> set[str]:
    """Encrypted zones with distributed noise of which nobody can open a single upload: clients see the sums."""
    single = ledger.so_far.single
    return {zone for zone, holder in ledger.key_holders.items() if holder != "clients" and zone not in single}


def levels(ledger: Ledger) -> dict[str, dict[str, float]]:
    """For each level of which a component keeps account, its epsilons at the worst client, by method.

    A client of which nobody knows what a round released has no guarantee.
    """
    stated = {}
    for level, by_client in ledger.accounts.items():
        keeper, found = ledger.keepers[level], []
        # Clients that made the same releases, in whatever order, have spent the same.
        for history in {frozenset(releases.items()): releases for releases in by_client.values()}.values():
            known: list[object] = []
            for numbers, times in history.items():
                known += [] if numbers is None else [keeper.account.release(*numbers)] * times
            with of_component(keeper.name, "epsilon_of"):
                epsilons = keeper.epsilon_of(known, ledger.delta)
            found.append(dict.fromkeys(epsilons, math.inf) if None in history else epsilons)
        if found:
            stated[level] = {method: max(float(one[method]) for one in found) for method in found[0]}
    return stated

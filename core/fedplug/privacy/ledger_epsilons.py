"""The epsilons of a run: of all zones with noise, of one zone, and of levels of which components keep account."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedplug.api.errors import of_component
from fedplug.privacy.ledger_record import Epsilons
from fedplug.privacy.sampling_credit import amplified

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
    noised = {name: cost for name, cost in ledger.noised.items() if zone in (None, name)}
    if not noised:
        return None
    if zone is None and (sampled := amplified(ledger)):
        return sampled
    # Encrypted zones with distributed noise of which nobody can open a single upload: clients see the sums.
    single = ledger.so_far.single
    sums_only = {name for name, by in ledger.key_holders.items() if by != "clients" and name not in single}

    def toward_most(name: str, cost: ZoneCost) -> NDArray[np.float64]:
        """What a zone's Gaussian releases cost toward those who see most of them."""
        return cost.total if cost.central else cost.peer if name in sums_only else cost.own

    spent = ledger.priced(noised, toward_most)
    return Epsilons(zero_out=ledger.epsilons_of(spent), replace_one=ledger.epsilons_of(spent.doubled()))


def levels(ledger: Ledger) -> dict[str, dict[str, float]]:
    """For each level of which a component keeps account, its epsilons at the worst client, by method.

    A client of which nobody knows what a round released has no guarantee.
    """
    stated = {}
    for level, by_client in ledger.accounts.items():
        keeper, by_history = ledger.keepers[level], []
        # Clients that made the same releases, in whatever order, have spent the same.
        for history in {frozenset(releases.items()): releases for releases in by_client.values()}.values():
            known: list[object] = []
            for numbers, times in history.items():
                known += [] if numbers is None else [keeper.account.release(*numbers)] * times
            with of_component(keeper.name, "epsilon_of"):
                epsilons = keeper.epsilon_of(known, ledger.delta)
            by_history.append(dict.fromkeys(epsilons, math.inf) if None in history else epsilons)
        if by_history:
            stated[level] = {method: max(float(one[method]) for one in by_history) for method in by_history[0]}
    return stated

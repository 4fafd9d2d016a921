"""The epsilons of a run: of all zones with noise, of one zone, of levels of which components keep account; and what
sampling earns."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

from fedplug.api.errors import PluginError, of_component
from fedplug.privacy.ledger_record import Epsilons, quoted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.outer_roles import Accountant
    from fedplug.privacy.ledger import Ledger
    from fedplug.privacy.spent import ZoneCost


def zone_epsilons(ledger: Ledger, zone: str | None = None) -> Epsilons | None:
    """Epsilons of one zone, or of all zones with noise together; None if there is no noise."""
    noised = {name: cost for name, cost in ledger.noised.items() if zone in (None, name)}
    if not noised:
        return None
    if zone is None and (sampled := sampled_epsilons(ledger)):
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


def level_epsilons(ledger: Ledger) -> dict[str, float]:
    """Epsilon so far, at the worst client, of each level of which a component keeps account."""
    return {level: quoted(stated) for level, stated in levels(ledger).items()}


def sampled_epsilons(ledger: Ledger) -> Epsilons | None:
    """Epsilons of Poisson-sampled central releases; None where sampling earns no credit (see `why_not_amplified`).

    All zones of a client and round share one coin: they count as one Gaussian release, which is then sampled.
    """
    if ledger.sampling is None or ledger.accountant is None or why_not_amplified(ledger) is not None:
        return None
    # Every release here is central: `why_not_amplified` saw to it.
    rate, central = ledger.sampling.rate, ledger.so_far.central
    releases = [("gaussian", multiplier, rate, count) for multiplier, count in central.items()]
    slack = math.fsum(ledger.slack_of(cost) for cost in ledger.costs.values())
    stated = (_within(ledger.accountant, releases, ledger.delta, slack, each) for each in ("zero_out", "replace_one"))
    return Epsilons(*({f"epsilon_{method}": value for method, value in each.items()} for each in stated))


def _within(
    accountant: Accountant, releases: list[tuple[str, float, float, int]], delta: float, slack: float, adjacency: str
) -> dict[str, float]:
    """The same where mechanisms take (1 + e^epsilon) slack of delta themselves; infinite where too little is left.

    An accountant is slow, so a share of delta is set aside for them and what they take is compared with it, rather than
    that the best share is sought.
    """
    least: dict[str, float] = {}
    for aside in (0.01, 0.5) if slack else (0.0,):
        stated = accountant.compose(releases, (1 - aside) * delta, adjacency)
        if stated is None:
            raise PluginError(f"accountant {accountant.name} states no epsilon of sampled Gaussian releases")
        for method, value in stated.items():
            fits = not slack or (1 + math.exp(min(value, 700.0))) * slack <= aside * delta
            least[method] = min(least.get(method, math.inf), value if fits else math.inf)
    return least


def why_not_amplified(ledger: Ledger) -> str | None:
    """Why sampling earns no credit; None if it does."""
    costs, sampling = ledger.noised.values(), ledger.sampling
    if sampling is None:
        return "all clients take part in every round"
    reasons = {
        "no zone has noise": not costs,
        "noise is added by the clients, and whoever sees an upload knows that its client took part":
            any(cost.central < cost.releases for cost in costs),
        "no accountant here covers samples of fixed size under zero-out adjacency":
            sampling.scheme == "fixed",
        "who takes part follows from the recipe's seed, and sampling helps only while that is secret":
            sampling.source == "reproducible",
        f"{''.join(ledger.uncovered[:1])}, and they may tell who took part": bool(ledger.uncovered),
        "the recipe names no accountant for sampled releases; write accountant: {use: std.pld}":
            ledger.accountant is None,
        f"sums of the {' and '.join(ledger.bare)} zone have no noise, and show who took part": bool(ledger.bare),
        "what was released besides the noised sums shows who took part": ledger.so_far.exposed,
    }  # fmt: skip
    if why := next((why for why, holds in reasons.items() if holds), None):
        return why
    # A round that is skipped or not depends on every client's coin. Its chance must vanish beside delta, also when it
    # is multiplied by the rounds and by e^epsilon.
    skipped = _chance_of_fewer(ledger.min_clients, ledger.num_clients, sampling.rate * ledger.presence)
    if skipped * ledger.rounds > 1e-6 * ledger.delta:
        return (
            f"a round with fewer than min_clients={ledger.min_clients} clients is skipped, which everybody sees and "
            f"which has probability {skipped:.0e}; raise rate, or the number of clients"
        )
    return None


@functools.cache
def _chance_of_fewer(count: int, trials: int, rate: float) -> float:
    """P(X < count) of a binomial X; logarithms, since single terms underflow."""
    if not 0 < rate < 1:
        return float(trials * rate < count)
    log_choose = (math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(count))
    return math.fsum(
        math.exp(log + k * math.log(rate) + (trials - k) * math.log1p(-rate)) for k, log in enumerate(log_choose)
    )

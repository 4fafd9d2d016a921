"""What each adversary's view of a run guarantees a client, from the sums that `fedplug.privacy.ledger` keeps.

A view is either a guarantee, as epsilon under both adjacencies, or `none` with the reason. Adversaries follow the
protocol and look (honest but curious). A guarantee composes every zone with noise, since one client's zones come from
one training; it is given only where the view holds nothing that was released without noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api.effects import Party
from fedplug.privacy.spent import Spent

if TYPE_CHECKING:
    from fedplug.api.roles import Accountant
    from fedplug.privacy.ledger import Ledger
    from fedplug.privacy.spent import ZoneCost

ADJACENCIES = ("zero_out", "replace_one")
SEED_IS_KNOWN = "reproducible noise protects nobody: anyone who knows the seed can subtract it"
SEERS: dict[Party, str] = {
    "aggregator": "the aggregator",
    "key_holder": "whoever holds the key",
    "client": "every client",
    "client_and_aggregator": "a client together with the aggregator",
    "released_model": "whoever sees the model",
}
"""The adversaries of the views, in words."""


@dataclasses.dataclass(eq=False)
class Guarantee:
    """What each client has spent under both adjacencies, and what that rests on."""

    zero_out: Spent
    replace_one: Spent
    because: str


def views(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """For each adversary, its guarantee as plain data: `{"zero_out": {"epsilon_exact": ...}, ...}` or `none`."""
    plain: dict[str, dict[str, Any]] = {}
    for name, view in _of_values(ledger).items():
        view = _voided(ledger, name) or view
        # How many clients put their heads together in this view.
        colluders = {"colluders": 1} if name in ("client", "client_and_aggregator") else {}
        if isinstance(view, str):
            plain[name] = {"epsilon": "none", "reason": view, **colluders}
            continue
        spent = {"zero_out": view.zero_out, "replace_one": view.replace_one}
        figures = {
            adjacency: cost.epsilons(ledger.delta, ledger.accountant, ledger.curves)
            for adjacency, cost in spent.items()
        }
        if name == "released_model" and (sampled := amplified(ledger)):
            for adjacency, values in sampled.items():
                unsampled = next(iter(figures[adjacency].values()))
                figures[adjacency] = {**values, "epsilon_without_sampling": unsampled}
        if is_reproducible(ledger) and view.zero_out.any():
            plain[name] = {"epsilon": "none", "reason": SEED_IS_KNOWN, "nominal": figures, **colluders}
        else:
            plain[name] = {**figures, "reason": view.because, **colluders}
    return plain


def _of_values(ledger: Ledger) -> dict[Party, Guarantee | str]:
    """What each adversary's view of the protected values alone guarantees, or why there is no guarantee."""
    return {
        "aggregator": _aggregator(ledger),
        "key_holder": _key_holder(ledger),
        "client": _everybody(
            ledger, "peer",
            "a client sees the sums and subtracts its own upload from them; this covers one client that "
            "looks alone: several who collude subtract all of theirs, for which nothing is promised here",
        ),
        "client_and_aggregator": _collusion(ledger),
        "released_model": _everybody(ledger, "total", "the model after every round is seen, the uploads are not"),
    }  # fmt: skip


def headline_voided(ledger: Ledger, *, records: bool = False) -> str:
    """What takes the guarantee of somebody toward whom the headline states one, as a clause; empty where nothing does.

    Whoever is trusted, or reads values without noise, has no guarantee to lose.

    Args:
        ledger: of the run.
        records: whether the headline is that of single records, which holds toward everybody.
    """
    for name, view in _of_values(ledger).items():
        if (records or isinstance(view, Guarantee)) and (why := _voided(ledger, name)):
            return f"{SEERS[name]} {why}" if _unsaid(ledger) != why else why
    return ""


def _voided(ledger: Ledger, name: Party) -> str:
    """Why a view has no guarantee whatever the noise is: what nobody stated, or what gives too much away."""
    if unsaid := _unsaid(ledger):
        return unsaid
    voiding = [channel for channel in ledger.reveals if channel.voids and _sees(name, channel.to)]
    return f"sees {voiding[0].what}: {voiding[0].note}" if voiding else ""


def _unsaid(ledger: Ledger) -> str:
    """What nobody stated, so that no view has a guarantee; empty where all is stated."""
    if unstated := ledger.so_far.unstated:
        return f"{_list([*unstated])} states no effect, so nothing is promised behind it"
    if ledger.uncovered:
        # Groups, plans and models may follow from the answers, so that even the released model may repeat them.
        return f"{ledger.uncovered[0]}, so nothing is promised to anybody"
    return ""


def _sees(view: str, shown_to: tuple[str, ...]) -> bool:
    """Whether a view includes what is shown to these: who colludes sees what either does, and everybody the model."""
    together = ("aggregator", "client", "client_and_aggregator", "released_model")
    return view in shown_to or "released_model" in shown_to or (
        view == "client_and_aggregator" and any(whose in together for whose in shown_to)
    )


def toward_aggregator(ledger: Ledger) -> float | None:
    """Epsilon of the aggregation server's view, zero-out; None where it has no guarantee."""
    view = _voided(ledger, "aggregator") or _aggregator(ledger)
    if isinstance(view, str):
        return None
    return next(iter(view.zero_out.epsilons(ledger.delta, ledger.accountant, ledger.curves).values()))


def priced_part(ledger: Ledger) -> str:
    """Which part of what was released the headline prices: the zones with noise, where that is not everything.

    Empty where it prices everything that was released of the updates, and the aggregation server's view costs no more.
    """
    noised, bare = _noised(ledger), _bare(ledger)
    if noised and (bare or ledger.feedback.any() or _voided(ledger, "aggregator") or headline_voided(ledger)):
        return _list([*noised])
    return ""


def headline(ledger: Ledger) -> float | None:
    """Epsilon of all zones with noise, zero-out, worst client; None if there are none. See `Ledger.epsilon`."""
    figures = zone_epsilons(ledger)
    return None if figures is None else next(iter(figures["zero_out"].values()))


def zone_epsilons(ledger: Ledger, zone: str | None = None) -> dict[str, dict[str, float]] | None:
    """Epsilons of one zone, or of all zones with noise together, by adjacency and method; None if there is no noise."""
    noised = {name: cost for name, cost in ledger.costs.items() if cost.releases and zone in (None, name)}
    if not noised:
        return None
    if zone is None and (sampled := amplified(ledger)):
        return sampled
    summed = _sums_only(ledger)
    spent = Spent.of(
        ledger.num_clients,
        [
            _sum(ledger, [cost], lambda cost, zone=name: _price(cost, zone in summed))  # type: ignore[misc]
            for name, cost in noised.items()
        ],
    )
    return {
        "zero_out": spent.epsilons(ledger.delta, ledger.accountant, ledger.curves),
        "replace_one": spent.doubled().epsilons(ledger.delta, ledger.accountant, ledger.curves),
    }


def _price(cost: ZoneCost, sums_only: bool) -> NDArray[np.float64]:
    """What a zone's Gaussian releases cost toward those who see most of them."""
    return cost.total if cost.central else cost.peer if sums_only else cost.own


def _sums_only(ledger: Ledger) -> set[str]:
    """Encrypted zones with distributed noise of which nobody can open a single upload: clients see the sums."""
    single = ledger.so_far.single
    return {zone for zone, holder in ledger.key_holders.items() if holder != "clients" and zone not in single}


def record_level(ledger: Ledger) -> dict[str, float] | None:
    """Epsilons of single training records at the worst client, by method; None where no trainer protects records."""
    if ledger.record_accountant is None or not ledger.records:
        return None
    # Clients that made the same releases, in whatever order, have spent the same.
    histories = {frozenset(releases.items()): releases for releases in ledger.records.values()}.values()
    found = [ledger.record_accountant.record_epsilon(list(history.elements()), ledger.delta) for history in histories]
    return {method: max(float(one[method]) for one in found) for method in found[0]}


def amplified(ledger: Ledger) -> dict[str, dict[str, float]] | None:
    """Epsilons of Poisson-sampled central releases; None where sampling earns no credit (see `why_not_amplified`).

    All zones of a client and round share one coin: they count as one Gaussian release, which is then sampled.
    """
    if ledger.accountant is None or why_not_amplified(ledger) is not None:
        return None
    # Every release here is central: `why_not_amplified` saw to it.
    rate = float(ledger.sampling["rate"])
    releases = [("gaussian", multiplier, rate, count) for multiplier, count in ledger.so_far.central.items()]
    return {
        adjacency: {
            f"epsilon_{method}": value
            for method, value in _composed(ledger.accountant, releases, ledger.delta, adjacency).items()
        }
        for adjacency in ADJACENCIES
    }


def _composed(
    accountant: Accountant, releases: list[tuple[str, float, float, int]], delta: float, adjacency: str
) -> dict[str, float]:
    """Epsilons of sampled Gaussian releases, also by an accountant that takes them one by one."""
    stated = accountant.compose(releases, delta, adjacency)
    if stated is not None:
        return stated
    one_by_one = [(multiplier, rate) for _, multiplier, rate, count in releases for _ in range(count)]
    return accountant.epsilon(one_by_one, delta, adjacency)


def why_not_amplified(ledger: Ledger) -> str | None:
    """Why sampling earns no credit; None if it does."""
    costs = [cost for cost in ledger.costs.values() if cost.releases]
    if ledger.sampling["scheme"] == "all":
        return "all clients take part in every round"
    if not costs:
        return "no zone has noise"
    if any(cost.central < cost.releases for cost in costs):
        return "noise is added by the clients, and whoever sees an upload knows that its client took part"
    if ledger.sampling["scheme"] == "fixed":
        return "no accountant here covers samples of fixed size under zero-out adjacency"
    if ledger.sampling.get("source", "secure") == "reproducible":
        return "who takes part follows from the recipe's seed, and sampling helps only while that is secret"
    if ledger.uncovered:
        return f"{ledger.uncovered[0]}, and they may tell who took part"
    if ledger.accountant is None:
        return "the recipe names no accountant for sampled releases; write accountant: {use: std.pld}"
    if bare := _bare(ledger):
        return f"sums of the {_list(bare)} zone have no noise, and show who took part"
    if ledger.so_far.exposed:
        return "what was released besides the noised sums shows who took part"
    # A round that is skipped or not depends on every client's coin. Its chance must vanish beside delta, also when it
    # is multiplied by the rounds and by e^epsilon.
    skipped = _chance_of_fewer(ledger.min_clients, ledger.num_clients, float(ledger.sampling.get("rate", 1.0)))
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


def is_reproducible(ledger: Ledger) -> bool:
    """Whether any noise of the run follows from the recipe's seed."""
    return ledger.so_far.reproducible


# -- one function for each adversary: a guarantee, or the reason why there is none


def _aggregator(ledger: Ledger) -> Guarantee | str:
    """The aggregation server: plain uploads one by one, encrypted zones only where their sums are published."""
    noised, bare = _noised(ledger), _bare(ledger)
    if seen := [zone for zone in bare if zone not in ledger.sealed]:
        return f"sees the {_list(seen)} zone of every upload, without noise"
    if seen := [zone for zone in bare if zone in ledger.opened]:
        return f"sees decrypted sums of the {_list(seen)} zone, without noise"
    if seen := [zone for zone, cost in noised.items() if cost.central]:
        return f"is trusted: adds the noise of the {_list(seen)} zone itself and sees what is below it"
    if ledger.feedback.any() and (scored := sorted(ledger.so_far.scored)):
        return (
            f"sees the {_list(scored)} zone after noise that is scaled by scores, and these follow from a model that "
            f"the un-noised {_list(bare)} zone has moved"
        )
    plain = {zone: cost for zone, cost in noised.items() if zone not in ledger.sealed}
    sealed = {zone: cost for zone, cost in noised.items() if zone in ledger.sealed}
    if not plain and not ledger.opened.intersection(sealed):
        zero = Spent.nothing(ledger.num_clients)
        return Guarantee(zero, zero, "sees ciphertexts only, as long as the encryption holds")
    # Sums it cannot decrypt still shape the uploads of the next round, so they are paid for at the price of the sum.
    own = Spent.of(
        ledger.num_clients,
        [
            _sum(ledger, plain.values(), lambda cost: cost.own),
            _sum(ledger, sealed.values(), lambda cost: cost.total),
        ],
    )
    because = f"sees the {_list([*plain])} zone of every upload, after the noise" if plain else "sees noised sums"
    if ledger.sealed:
        because += "; the rest as ciphertexts, as long as the encryption holds"
    if ledger.feedback.any():
        because += (
            f"; includes what other clients' noised uploads may reveal of a client whose un-noised {_list(bare)} zone "
            "they were trained on"
        )
    count, feedback = ledger.num_clients, ledger.feedback
    return Guarantee(Spent.of(count, [own, feedback]), Spent.of(count, [own.doubled(), feedback]), because)


def _key_holder(ledger: Ledger) -> Guarantee | str:
    """Whoever can decrypt: the key server, which is sent sums only, or every client."""
    if not ledger.sealed:
        return "nothing is encrypted, so nobody holds a key"
    if {*ledger.key_holders.values()} == {"shares"}:
        return "nobody holds a key: only enough clients together could open an upload"
    if "clients" in ledger.key_holders.values():
        return _everybody(ledger, "peer", "every client holds the key, and sees the sums")
    if central := [zone for zone, cost in _noised(ledger).items() if cost.central and zone in ledger.sealed]:
        return f"opens sums of the {_list(central)} zone before the noise is added"
    if ledger.min_clients < 2:
        return _everybody(ledger, "total", "is sent sums, which may hold a single update, since min_clients is 1")
    return _everybody(ledger, "total", f"is sent sums of at least {ledger.min_clients} updates, never single ones")


def _collusion(ledger: Ledger) -> Guarantee | str:
    """The aggregation server together with a client and that client's keys."""
    noised, bare = _noised(ledger), _bare(ledger)
    if bare:
        return f"sees the {_list(bare)} zone without noise, {_how_bare(ledger, bare)}"
    if central := [zone for zone, cost in noised.items() if cost.central]:
        return f"the server adds the noise of the {_list(central)} zone itself and sees what is below it"
    shared = {zone for zone, holder in ledger.key_holders.items() if holder == "shares"}
    own = Spent.of(
        ledger.num_clients,
        [
            _sum(ledger, [cost], lambda cost, zone=zone: cost.peer if zone in shared else cost.own)  # type: ignore[misc]
            for zone, cost in noised.items()
        ],
    )
    because = "sees every upload after the noise, decrypted where a client has the key"
    if shared:
        because = f"sees sums of the {_list(sorted(shared))} zone, which one client's shares do not open"
    return Guarantee(own, own.doubled(), because)


def _everybody(ledger: Ledger, attribute: str, because: str) -> Guarantee | str:
    """Whoever sees the sums of every zone."""
    if bare := _bare(ledger):
        return f"sees sums of the {_list(bare)} zone without noise"
    spent = _sum(ledger, _noised(ledger).values(), lambda cost: getattr(cost, attribute))
    return Guarantee(spent, spent.doubled(), because)


def _noised(ledger: Ledger) -> dict[str, ZoneCost]:
    return {zone: cost for zone, cost in ledger.costs.items() if cost.releases}


def _bare(ledger: Ledger) -> list[str]:
    return [zone for zone, cost in ledger.costs.items() if cost.bare]


def _how_bare(ledger: Ledger, zones: list[str]) -> str:
    if all(ledger.key_holders.get(zone) == "key_server" for zone in zones):
        return "as decrypted sums"
    return "each client's own upload where it is plain or a client has the key"


def _sum(
    ledger: Ledger, costs: Iterable[ZoneCost], gaussian: Callable[[ZoneCost], NDArray[np.float64]]
) -> Spent:
    return Spent.of(ledger.num_clients, [Spent(gaussian(cost), cost.others, cost.slack) for cost in costs])


def _list(zones: list[str]) -> str:
    return " and ".join(zones)

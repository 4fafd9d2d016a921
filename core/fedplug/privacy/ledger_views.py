"""What each adversary's view of a run guarantees a client, from the sums that `fedplug.privacy.ledger` keeps.

A view is either a guarantee, as epsilon under both adjacencies, or `none` with the reason. Adversaries follow the
protocol and look (honest but curious). A guarantee composes every zone with noise, since one client's zones come from
one training; it is given only where the view holds nothing that was released without noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedplug.api.operations import Party
from fedplug.api.types import NOISED
from fedplug.privacy.ledger_epsilons import sampled_epsilons, why_not_amplified
from fedplug.privacy.ledger_record import Epsilons, ViewReport, quoted
from fedplug.privacy.spent import Spent

if TYPE_CHECKING:
    from fedplug.privacy.ledger import Ledger
    from fedplug.privacy.spent import ZoneCost

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


def views(ledger: Ledger) -> dict[str, ViewReport]:
    """For each adversary, its guarantee or why it has none."""
    reports: dict[str, ViewReport] = {}
    for name, view in _guaranteed(ledger).items():
        # How many clients put their heads together in this view.
        report = reports[name] = ViewReport(None, "", colluders=1 if "client" in name else None)
        if isinstance(view, str):
            report.reason = view
            continue
        stated = _stated(ledger, view, sampled=sampled_epsilons(ledger) if name == "released_model" else None)
        if ledger.so_far.reproducible and view.zero_out.any():
            report.reason, report.nominal = SEED_IS_KNOWN, stated
        else:
            report.reason, report.epsilons = view.because, stated
    return reports


def view_epsilons(ledger: Ledger, headline: float | None) -> dict[str, float]:
    """Epsilon so far, zero-out, of each view that has a guarantee; cheap enough for every round.

    Where sampling earns credit, of the released model alone, which is the `headline`: what the others have spent
    follows from who was asked, which is secret, and the report states it for everybody.
    """
    if headline is not None and why_not_amplified(ledger) is None:
        return {} if _voided(ledger, "released_model") else {"released_model": headline}
    epsilons: dict[str, float] = {}
    seen: dict[str, Spent] = {}
    for name, view in _guaranteed(ledger).items():
        if isinstance(view, str) or (ledger.so_far.reproducible and view.zero_out.any()):
            continue
        same = next((other for other, spent in seen.items() if spent.same(view.zero_out)), None)  # as in most views
        epsilons[name] = epsilons[same] if same else quoted(ledger.epsilons_of(view.zero_out))
        seen[name] = view.zero_out
    return epsilons


def _stated(ledger: Ledger, view: Guarantee, sampled: Epsilons | None) -> Epsilons:
    """What a guarantee comes to; where sampling earns credit, with it and beside it what there is without."""
    zero_out, replace_one = ledger.epsilons_of(view.zero_out), ledger.epsilons_of(view.replace_one)
    if sampled is None:
        return Epsilons(zero_out, replace_one)
    return Epsilons(
        {**sampled.zero_out, "epsilon_without_sampling": quoted(zero_out)},
        {**sampled.replace_one, "epsilon_without_sampling": quoted(replace_one)},
    )


def _guaranteed(ledger: Ledger) -> dict[Party, Guarantee | str]:
    """What each adversary's view guarantees, or why there is no guarantee."""
    return {name: _voided(ledger, name) or view for name, view in _of_values(ledger).items()}


def _of_values(ledger: Ledger) -> dict[Party, Guarantee | str]:
    """What each adversary's view of the protected values alone guarantees, or why there is no guarantee."""
    if not ledger.costs:
        nothing = Spent.of(ledger.num_clients)
        kept = Guarantee(nothing, nothing, "sees nothing of the updates: no coordinate of one left its client")
        return {name: kept if ledger.sealed or name != "key_holder" else _key_holder(ledger) for name in SEERS}
    return {
        "aggregator": _aggregator(ledger),
        "key_holder": _key_holder(ledger),
        "client": _everybody(
            ledger, lambda _, cost: cost.peer,
            "a client sees the sums and subtracts its own upload from them; this covers one client that "
            "looks alone: several who collude subtract all of theirs, for which nothing is promised here",
        ),
        "client_and_aggregator": _collusion(ledger),
        "released_model": _everybody(
            ledger, lambda _, cost: cost.total, "the model after every round is seen, the uploads are not"
        ),
    }  # fmt: skip


def headline_voided(ledger: Ledger, *, of_level: bool = False) -> str:
    """What takes the guarantee of somebody toward whom the headline states one, as a clause; empty where nothing does.

    Whoever is trusted, or reads values without noise, has no guarantee to lose. A headline `of_level` is that of a
    component's own account, which holds toward everybody.
    """
    for name, view in _of_values(ledger).items():
        if (of_level or isinstance(view, Guarantee)) and (why := _voided(ledger, name)):
            return f"{SEERS[name]} {why}" if _unsaid(ledger) != why else why
    return ""


def _voided(ledger: Ledger, name: Party) -> str:
    """Why a view has no guarantee whatever the noise is: what nobody stated, or what gives too much away."""
    if unsaid := _unsaid(ledger):
        return unsaid
    voiding = [channel for channel in ledger.reveals if channel.voids and _sees(name, _shown_to(ledger, channel.to))]
    return f"sees {voiding[0].what}: {voiding[0].note}" if voiding else ""


def _unsaid(ledger: Ledger) -> str:
    """What nobody stated, so that no view has a guarantee; empty where all is stated."""
    if freed := ledger.so_far.freed:
        return f"{listed(freed)} changes values behind the noise with data in hand, so nothing is promised"
    if ledger.uncovered:
        # Groups, plans and models may follow from the answers, so that even the released model may repeat them.
        return f"{ledger.uncovered[0]}, so nothing is promised to anybody"
    return ""


def _shown_to(ledger: Ledger, to: tuple[Party, ...]) -> tuple[Party, ...]:
    """Who sees what is shown to these: where clients hold a key, `key_holder` and `client` are the same people."""
    if "clients" in ledger.key_holders.values() and {"key_holder", "client"} & {*to}:
        return (*to, "key_holder", "client")
    return to


def _sees(view: str, shown_to: tuple[str, ...]) -> bool:
    """Whether a view includes what is shown to these: who colludes sees what either does, and everybody the model."""
    together = ("aggregator", "client", "client_and_aggregator", "released_model")
    return view in shown_to or "released_model" in shown_to or (
        view == "client_and_aggregator" and any(whose in together for whose in shown_to)
    )


def toward_aggregator(ledger: Ledger) -> float | None:
    """Epsilon of the aggregation server's view, zero-out; None where it has no guarantee."""
    view = _guaranteed(ledger)["aggregator"]
    return None if isinstance(view, str) else quoted(ledger.epsilons_of(view.zero_out))


def priced_part(ledger: Ledger) -> str:
    """Which part of what was released the headline prices: the zones with noise, where that is not everything.

    Empty where it prices everything that was released of the updates, and the aggregation server's view costs no more.
    """
    noised, bare = ledger.noised, ledger.bare
    if noised and (bare or ledger.feedback.any() or _voided(ledger, "aggregator") or headline_voided(ledger)):
        return listed(noised)
    return ""


def _aggregator(ledger: Ledger) -> Guarantee | str:
    """The aggregation server: plain uploads one by one, encrypted zones only where their sums are published."""
    noised, bare = ledger.noised, ledger.bare
    if seen := [zone for zone in bare if zone not in ledger.sealed]:
        return f"sees the {listed_bare(ledger, seen)} zone of every upload, without noise"
    if seen := [zone for zone in bare if zone in ledger.opened]:
        return f"sees decrypted sums of the {listed_bare(ledger, seen)} zone, without noise"
    if seen := [zone for zone, cost in noised.items() if cost.central]:
        return f"is trusted: adds the noise of the {listed(seen)} zone itself and sees what is below it"
    if ledger.feedback.any() and (scored := sorted(ledger.so_far.scored)):
        return (
            f"sees the {listed(scored)} zone after noise that is scaled by scores, and these follow from a model that "
            f"the un-noised {listed(bare)} zone has moved"
        )
    plain = {zone: cost for zone, cost in noised.items() if zone not in ledger.sealed}
    sealed = {zone: cost for zone, cost in noised.items() if zone in ledger.sealed}
    if not plain and not ledger.opened.intersection(sealed):
        zero = Spent.of(ledger.num_clients)
        return Guarantee(zero, zero, "sees ciphertexts only, as long as the encryption holds")
    # Sums it cannot decrypt still shape the uploads of the next round, so they are paid for at the price of the sum.
    # Those that it can it sees before it adds noise of its own.
    own = ledger.priced(
        {**plain, **sealed},
        lambda zone, cost: cost.own if zone in plain else cost.below if zone in ledger.opened else cost.total,
    )
    because = f"sees the {listed(plain)} zone of every upload, after the noise" if plain else "sees noised sums"
    if ledger.sealed:
        because += "; the rest as ciphertexts, as long as the encryption holds"
    if ledger.feedback.any():
        because += (
            f"; includes what other clients' noised uploads may reveal of a client whose un-noised {listed(bare)} zone "
            "they were trained on"
        )
    count, feedback = ledger.num_clients, ledger.feedback
    return Guarantee(Spent.of(count, [own, feedback]), Spent.of(count, [own.doubled(), feedback]), because)


def _key_holder(ledger: Ledger) -> Guarantee | str:
    """Whoever can decrypt: the key server, which is sent sums only, or every client; of several, whoever sees most."""
    holders = {*ledger.key_holders.values()}
    if not ledger.sealed:
        return "nothing is encrypted, so nobody holds a key"
    if holders == {"shares"}:
        return f"nobody holds a key: the shares of {_fewest_shares(ledger)} clients together could open an upload"
    noised = ledger.noised
    if central := [zone for zone, cost in noised.items() if cost.central and zone in ledger.sealed]:
        return f"opens sums of the {listed(central)} zone before the noise is added"
    if "clients" in holders:
        because = "every client holds the key, and sees the sums"
    elif ledger.min_clients < 2:
        because = "is sent sums, which may hold a single update, since min_clients is 1"
    else:
        because = f"is sent sums of at least {ledger.min_clients} updates, never single ones"

    def price(zone: str, cost: ZoneCost) -> NDArray[np.float64]:
        seen = cost.peer if "clients" in holders else cost.total
        return np.maximum(seen, cost.below) if ledger.key_holders.get(zone) == "key_server" else seen

    return _everybody(ledger, price, because)


def _collusion(ledger: Ledger) -> Guarantee | str:
    """The aggregation server together with a client and that client's keys."""
    noised, bare = ledger.noised, ledger.bare
    if bare:
        return f"sees the {listed_bare(ledger, bare)} zone without noise, {_how_bare(ledger, bare)}"
    if central := [zone for zone, cost in noised.items() if cost.central]:
        return f"the server adds the noise of the {listed(central)} zone itself and sees what is below it"
    shared = {zone for zone, holder in ledger.key_holders.items() if holder == "shares"}
    # The server adds its own noise to a sum, so where there is any the noise of the uploads alone counts.
    own = ledger.priced(noised, lambda zone, cost: cost.peer if zone in shared and not cost.beneath else cost.own)
    because = "sees every upload after the noise, decrypted where a client has the key"
    if shared:
        because = (
            f"sees sums of the {listed(sorted(shared))} zone, whose uploads one client's shares do not open: those of "
            f"{_fewest_shares(ledger)} clients do, and for so many who collude nothing is promised here"
        )
    return Guarantee(own, own.doubled(), because)


def _fewest_shares(ledger: Ledger) -> int:
    """With the shares of how many clients an upload of some zone opens."""
    return min(closed.opens_with for zone, closed in ledger.encryption.items() if ledger.key_holders[zone] == "shares")


def _everybody(ledger: Ledger, price: Callable[[str, ZoneCost], NDArray[np.float64]], because: str) -> Guarantee | str:
    """Whoever sees the sums of every zone, each at its price."""
    if bare := ledger.bare:
        return f"sees sums of the {listed_bare(ledger, bare)} zone without noise"
    spent = ledger.priced(ledger.noised, price)
    return Guarantee(spent, spent.doubled(), because)


def _how_bare(ledger: Ledger, zones: list[str]) -> str:
    if all(ledger.key_holders.get(zone) == "key_server" for zone in zones):
        return "as decrypted sums"
    return "each client's own upload where it is plain or a client has the key"


def listed_bare(ledger: Ledger, zones: list[str]) -> str:
    """Zones that were released without noise: one called noised that never had any is so only by name."""
    never = [zone for zone in zones if zone == NOISED and not ledger.costs[zone].releases]
    return listed([f"so-called {zone}" if zone in never else zone for zone in zones])


def listed(zones: Iterable[str]) -> str:
    """Names in a sentence."""
    return " and ".join(zones)

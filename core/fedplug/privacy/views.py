"""What a ledger guarantees: epsilons, each adversary's view, the record in a run's folder and the verdict.

A view is either a guarantee, as epsilon under both adjacencies, or `none` with the reason. Adversaries follow the
protocol and look (honest but curious). A guarantee composes every zone with noise, since one client's zones come from
one training; it is given only where the view holds nothing that was released without noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedplug.api.blocks import NOISED
from fedplug.api.errors import PluginError, of_component
from fedplug.api.operations import NoiseKind, Party
from fedplug.api.records import shared
from fedplug.privacy.ledger_record import (
    NEVER_COVERED,
    SCHEMA,
    Epsilons,
    LedgerReport,
    LevelReport,
    NoiseReport,
    RoundsReport,
    SamplingReport,
    Spent,
    ViewReport,
    ZoneReport,
    quoted,
)
from fedplug.recipe.check import PRICED

if TYPE_CHECKING:
    from fedplug.api.known import Release
    from fedplug.api.roles import Accountant
    from fedplug.privacy.ledger import Ledger
    from fedplug.privacy.ledger_record import ZoneCost


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


LARGEST_MEANINGFUL = 20.0
"""Epsilon above which no verdict opens with DP. The odds of a right guess about a client may then change by a factor of
e^20 = 5e8: whoever guessed one client in a million knows. No theorem: see docs/edges/differential-privacy.md."""


def report(ledger: Ledger) -> LedgerReport:
    """The whole ledger; see `Ledger.report`."""
    why, joint = why_not_amplified(ledger), zone_epsilons(ledger)
    # Whatever else is stated of a secret cohort would tell how often the client with the most rounds was drawn.
    stated = ledger if why else ledger.with_everybody()
    return LedgerReport(
        schema=SCHEMA,
        recipe=ledger.recipe_name,
        verdict=verdict(ledger, joint),
        warnings=list(dict.fromkeys(warnings(ledger))),
        unit="client: the whole update of a client; the same epsilon holds for each of its records",
        adjacency="zero-out: a client's contribution is replaced by zero; replace-one: by any other, with twice the "
        "sensitivity",
        delta=ledger.delta,
        trust=_trust(ledger),
        epsilons=joint,
        epsilon_prices=priced_part(ledger) or "everything released of the updates",
        levels={level: _level(ledger, level, epsilons) for level, epsilons in levels(stated).items()},
        views=views(stated),
        zones={zone: _zone(stated, zone) for zone in stated.costs},
        sampling=SamplingReport(
            **(ledger.sampling.model_dump() if ledger.sampling else {"scheme": "all"}),
            amplified=why is None,
            why=why or "clients are sampled by secret coins",
        ),
        rounds=RoundsReport(ledger.rounds, _actual(ledger)),
        encryption=dict(ledger.encryption),
        noise=_noise(ledger),
        reveals=ledger.reveals,
        uncovered_messages=ledger.uncovered,
        never_covered=list(NEVER_COVERED),
        log=[entry.without_cohort() for entry in ledger.log] if why is None else ledger.log,
    )


def verdict(ledger: Ledger, joint: Epsilons | None) -> str:
    """One line: end-to-end DP or not, epsilon of the zones with noise, as `zone_epsilons` gives it, and its terms."""
    if not ledger.log:
        return "NO DP STATEMENT: no round was recorded."
    bare, given, rounds = _bare_share(ledger), _unaccounted(ledger), _actual(ledger)
    voided = headline_voided(ledger, of_level=joint is None)
    in_rounds = f"in {rounds} round{'' if rounds == 1 else 's'}"
    if not ledger.costs:  # as where clients retain everything; what else they sent stands beside
        kept = f"no coordinate of an update left its client {in_rounds}{given}."
        return f"NO end-to-end DP: {voided}; {kept}" if voided else f"NOTHING RELEASED of the updates: {kept}"
    if joint is None:
        how = " (as sums of encrypted updates)" if bare and ledger.sealed.issuperset(ledger.costs) else ""
        return _of_levels(ledger, voided, bare) if level_epsilons(ledger) else f"NO DP: {bare}{how}."
    epsilon, exchanged = joint.epsilon, quoted(joint.replace_one)
    terms = f"client, {_trust(ledger)}, zero-out"
    limit = _limit(ledger, epsilon)
    stated = f"ε={_number(epsilon)}, δ={ledger.delta:g} ({terms}"
    server = toward_aggregator(ledger)
    aggregator = f"; toward the aggregator ε={_number(server)}" if server is not None and server > epsilon else ""
    if ledger.so_far.reproducible:
        rest = f"{bare}; " if bare else ""
        return f"NO DP: {SEED_IS_KNOWN}; {rest}nominal DP zone {stated}){given}."
    if bare or voided:
        why = "; ".join(part for part in (bare, voided) if part)
        meant = f", no meaningful guarantee {limit}" if limit and math.isfinite(epsilon) else ""
        return f"NO end-to-end DP: {why}; DP zone {stated}){meant}{aggregator}{given}."
    if math.isinf(epsilon):
        return f"NO DP: the noise does not protect, ε=∞ ({terms})."
    opening = f"NO MEANINGFUL GUARANTEE ({limit})" if limit else "DP"
    both = f"{stated}; replace-one ε={_number(exchanged)})"
    return f"{opening}: {both} for everything released of the updates {in_rounds}{aggregator}{given}."


def _of_levels(ledger: Ledger, voided: str, bare: str) -> str:
    """The verdict where the only noise protects what components keep an account of their own of."""
    protects, lost = [], ""
    for level, epsilon in level_epsilons(ledger).items():
        terms = f"{ledger.keepers[level].account.terms}, as accounted by {ledger.keepers[level].name}"
        if math.isfinite(epsilon):
            limit = _limit(ledger, epsilon)
            opening = f"NO MEANINGFUL {level}-level guarantee ({limit}):" if limit else f"{level.upper()}-LEVEL DP:"
            meant = f", no meaningful guarantee {limit}" if voided and limit else ""
            name = f"{level}-level" if voided else opening
            protects.append(f"{name} ε={_number(epsilon)}, δ={ledger.delta:g} ({terms}) for the updates{meant}")
        else:  # the first of the terms is what the account protects, in the plural
            unit = terms.partition(",")[0]
            lost += f"the noise does not protect {unit}, or anyone who knows the seed can subtract it; "
    if not protects:
        return f"NO DP: {lost}{bare}."
    opening = f"NO end-to-end DP: {voided}; " if voided else ""
    return f"{opening}{'; '.join(protects)}; {lost}NO DP for clients: {bare}{_unaccounted(ledger)}."


def _limit(ledger: Ledger, epsilon: float) -> str:
    """Why an epsilon is no meaningful guarantee; empty if it may be one. Records are no fewer than clients."""
    reasons = {
        f"above ε={LARGEST_MEANINGFUL:g}": epsilon > LARGEST_MEANINGFUL,
        f"with δ not below 1 / {ledger.num_clients} clients": ledger.delta >= 1 / ledger.num_clients,
    }
    return " and ".join(reason for reason, holds in reasons.items() if holds)


def warnings(ledger: Ledger) -> Iterator[str]:
    """What a reader of epsilon should know before using it; what holds of several rounds as often."""
    if ledger.delta >= 1 / ledger.num_clients:
        yield (
            f"delta={ledger.delta:g} must be below 1 / number of clients = {1 / ledger.num_clients:g}; with this "
            "delta, publishing one whole client at random would pass"
        )
    if ledger.so_far.reproducible:
        yield SEED_IS_KNOWN
    releases = _releases(ledger)
    for zone, release in releases:
        if release.literal:
            yield (
                f"zone {zone}: the noise follows the paper's own formula, which does not give the epsilon that it "
                "claims; epsilon here is what the noise really gives"
            )
        if release.mechanism not in (*PRICED, *ledger.curves):
            yield f"zone {zone}: no accountant here for {release.mechanism} noise; it counts as no noise"
    if ledger.sampling and releases and (why := why_not_amplified(ledger)):
        yield f"sampling earns no credit: {why}"
    entered = [(zone, facts) for entry in ledger.log for zone, facts in entry.zones.items()]
    for link, zone in ((link, zone) for zone, facts in entered for link in facts.freed):
        yield f"zone {zone}: {link} changes values behind the noise with data in hand, so the noise counts for nothing"
    for _, release in releases:
        if release.calibrated_delta not in (None, ledger.delta):
            yield (
                f"{release.link}: epsilon is calibrated for delta={release.calibrated_delta:g}, the ledger "
                f"states it at delta={ledger.delta:g}; write the same delta in both places to compare them"
            )
    yield from (facts.uncredited for _, facts in entered if facts.uncredited)
    for zone, holder in ledger.key_holders.items():
        # A client that holds the key subtracts its own upload from a sum of two.
        least, whom = (3, "clients") if holder == "clients" else (2, "the key server")
        if ledger.min_clients < least:
            yield (
                f"zone {zone}: min_clients={ledger.min_clients} lets {whom} open sums that show a single update; set "
                f"min_clients: {least} or more"
            )
    if ledger.feedback.any():
        yield (
            "the un-noised zone shapes what other clients upload next; the aggregator's epsilon includes that, "
            "that of the DP zone covers a client's own uploads only"
        )
    # Ballots have entries of their own, so a round with two entries was not repeated; one with a zone twice was.
    released = Counter((entry.round, zone) for entry in ledger.log for zone in entry.zones)
    if repeated := sorted({round for (round, _), count in released.items() if count > 1}):
        yield f"rounds {repeated} were repeated after an interruption; each repetition is paid for"
    for round, zone in ledger.unopened:
        yield f"round {round + 1} was repeated; zone {zone} was not opened a second time"
    if (actual := _actual(ledger)) > ledger.rounds:
        yield f"{actual} rounds were run, {ledger.rounds} were planned: noise calibrated to the plan is too small"


def _zone(ledger: Ledger, zone: str) -> ZoneReport:
    cost = ledger.costs[zone]
    entries = [(entry.total, entry.zones[zone]) for entry in ledger.log if zone in entry.zones]
    last = entries[-1][1].releases
    return ZoneReport(
        largest_size=cost.largest,
        largest_share=max(facts.size / total for total, facts in entries),
        encrypted=zone in ledger.sealed,
        rounds_with_noise=cost.releases,
        rounds_without_noise=cost.bare,
        mechanism=[release.mechanism for release in last],
        clipping_norm=[release.clipping_norm for release in last],
        std=[_std(release) for release in last],
        noise_multiplier=[release.noise_multiplier for release in last],
        epsilons=zone_epsilons(ledger, zone),
    )


def _std(release: Release) -> float | None:
    """Standard deviation of a release's noise; None where the mechanism adds none."""
    if release.mechanism == "pure":
        return None
    scale = float(release.clipping_norm * release.noise_multiplier)
    return math.sqrt(2) * scale if release.mechanism == "laplace" else scale


def _level(ledger: Ledger, level: str, stated: dict[str, float]) -> LevelReport:
    account, voided = ledger.keepers[level].account, headline_voided(ledger, of_level=True)
    return LevelReport(
        unit=f"{level}: {account.unit}",
        trust=account.trust,
        covers=account.covers + (f"; no guarantee beside it: {voided}" if voided else ""),
        delta=ledger.delta,
        epsilons=stated,
    )


def _noise(ledger: Ledger) -> list[NoiseReport]:
    distinct = {NoiseReport(zone=zone, **shared(each, NoiseKind)) for zone, each in _releases(ledger)}
    return sorted(distinct, key=lambda each: (each.zone, *dataclasses.astuple(each)))


def _releases(ledger: Ledger) -> list[tuple[str, Release]]:
    return [(zone, each) for entry in ledger.log for zone, facts in entry.zones.items() for each in facts.releases]


def _trust(ledger: Ledger) -> str:
    trusts = sorted({release.trust for _, release in _releases(ledger)})
    return " and ".join(trusts) or "none"


def _actual(ledger: Ledger) -> int:
    """How many rounds were run, those that were repeated once."""
    return len({entry.round for entry in ledger.log})


def _bare_share(ledger: Ledger) -> str:
    """`10.0% of coordinates released un-noised for 10 rounds`; empty if there are none."""
    sizes = ((entry, [facts.size for facts in entry.zones.values() if facts.is_bare]) for entry in ledger.log)
    shares = [(100 * sum(bare) / entry.total, entry.round) for entry, bare in sizes if bare]
    if not shares:
        return ""
    most, rounds = max(shares)[0], len({round for _, round in shares})
    number = "<0.1%" if most < 0.05 else f"{most:.1f}%"
    number = number if f"{min(shares)[0]:.1f}" == f"{most:.1f}" else f"up to {number}"
    return f"{number} of coordinates released un-noised for {rounds} round{'' if rounds == 1 else 's'}"


def _unaccounted(ledger: Ledger) -> str:
    names = list(dict.fromkeys(channel.what for channel in ledger.reveals if channel.covered_by is None))
    given = f" given the UNACCOUNTED {', '.join(names)}" if names else ""
    return given + "".join(f", on the word of {name}" for name in _words(ledger))


def _words(ledger: Ledger) -> list[str]:
    """The components on whose word a price is, since the core did not execute what it prices."""
    return sorted({release.word for _, release in _releases(ledger) if release.word})


def _number(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "∞"
    if epsilon == 0:
        return "0"
    return f"{epsilon:.2f}" if 0.005 <= epsilon < 10_000 else f"{epsilon:.2e}"

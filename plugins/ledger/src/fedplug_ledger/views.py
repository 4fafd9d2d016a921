"""The guarantees of a ledger: epsilons, each adversary's view and the verdict.

A view is either a guarantee, as epsilon under both adjacencies, or `none` with the reason. Adversaries follow the
protocol and look (honest but curious). A guarantee composes every zone with noise, since one client's zones come from
one training; it is given only where the view holds nothing that was released without noise.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

import numpy as np
from fedplug.api.errors import PluginError, of_component
from fedplug.api.operations import Party
from fedplug.api.roles import Accountant

from fedplug_ledger import wording
from fedplug_ledger.accounting import effective_multiplier
from fedplug_ledger.book import Book
from fedplug_ledger.composing import costs_of
from fedplug_ledger.costs import Spent, ZoneCost, checked_epsilons, composed_by
from fedplug_ledger.grades import LARGEST_MEANINGFUL, PARTIES, Epsilons, State, quoted
from fedplug_ledger.verdict import ENCRYPTION, EXECUTED, NOT_READ, NOT_SEEN, SERVER, SUMS_ALONE, Line, Verdict
from fedplug_ledger.verdict_words import number
from fedplug_ledger.wording import Nothing, not_judged, view_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


def zone_epsilons(ledger: Book, zone: str | None = None) -> Epsilons | None:
    """Epsilons of one zone, or of all zones with noise together; None if there is no noise."""
    noised = {name: cost for name, cost in ledger.noised.items() if zone in (None, name)}
    if not noised:
        return None
    if zone is None and (sampled := sampled_epsilons(ledger)):
        return sampled
    # Encrypted zones with distributed noise of which nobody can open a single upload: clients see the sums.
    single = ledger.so_far.single
    sums_only = {
        name for name, by in ledger.key_holders.items()
        if by != "clients" and name not in single
        and not (by == "shares" and ledger.encryption[name].opens_with <= ledger.colluders)
    }  # fmt: skip

    def toward_most(name: str, cost: ZoneCost) -> NDArray[np.float64]:
        """What a zone's Gaussian releases cost toward those who see most of them."""
        return cost.total if cost.central else cost.peer if name in sums_only else cost.own

    spent = ledger.priced(noised, toward_most)
    return Epsilons(zero_out=ledger.epsilons_of(spent), replace_one=ledger.epsilons_of(spent.doubled()))


def levels(ledger: Book) -> dict[str, dict[str, float]]:
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
                found = keeper.epsilon_of(known, ledger.delta)
            found = checked_epsilons(keeper.name, "epsilon_of", found)
            by_history.append(dict.fromkeys(found, math.inf) if None in history else found)
        if by_history:
            stated[level] = {method: max(float(one[method]) for one in by_history) for method in by_history[0]}
    return stated


def units(ledger: Book, level: str) -> float:
    """How many units of a level the clients that took part have together, at most; infinity where nobody knows.

    Raises:
        PluginError: the component that keeps the account states no number above 0.
    """
    keeper, total = ledger.keepers[level], 0.0
    for releases in ledger.accounts[level].values():
        with of_component(keeper.name, "units"):
            each = [math.inf if one is None else float(keeper.units(keeper.account.release(*one))) for one in releases]
        if wrong := [count for count in each if not count > 0]:
            raise PluginError(f"component {keeper.name}, units: {wrong[0]:g} must be the number of a client, above 0")
        total += max(each, default=0.0)
    return total


def sampled_epsilons(ledger: Book) -> Epsilons | None:
    """Epsilons of Poisson-sampled central releases; None where sampling earns no credit (see `why_not_amplified`).

    All zones of a client and round share one coin: they count as one Gaussian release, which is then sampled. So do all
    releases whose noise takes back that of one round (Choquette-Choo et al. 2023, (Amplified) banded matrix
    factorization, Theorem 4): with n rounds, a factor C of at most b bands, clients split into b cohorts that take
    turns, whatever their data, and secret coins of probability q for those whose turn it is, the whole run costs a
    client at most what ceil(n / b) releases cost that are each sampled with q, where the noise is that of z over the
    largest norm of a column of C. For no row of C has two rounds of one client in it: each of its coins moves a block
    of rows by its column, in one direction. Here each coin has the norm of the column that was executed.
    """
    if ledger.sampling is None or ledger.accountant is None or why_not_amplified(ledger) is not None:
        return None
    # Every release here is central: `why_not_amplified` saw to it.
    coin, cohorts, keeper = ledger.sampling.coin, _drawn(ledger), ledger.accountant
    slack, stated = math.fsum(ledger.slack_of(cost) for cost in ledger.costs.values()), []
    for adjacency in ("zero_out", "replace_one"):
        each = [
            _within(keeper, [("gaussian", m, coin, n) for m, n in spent.items()], ledger.delta, slack, adjacency)
            for spent in cohorts
        ]  # fmt: skip
        stated.append({f"epsilon_{method}": max(one.get(method, math.inf) for one in each) for method in each[0]})
    return Epsilons(*stated)


def _drawn(ledger: Book) -> list[Counter[float]]:
    """By cohort that takes its turn, how often a coin of its clients fell for a release of which multiplier; without
    those that have spent no more than another.
    """
    turns = ledger.sampling.turns if ledger.sampling else 1
    cohorts: list[list[float]] = [[] for _ in range(turns)]
    for entry, parts in zip(ledger.log, ledger.so_far.drawn, strict=True):
        multiplier = effective_multiplier(parts)
        if ledger.so_far.reach and 0 < multiplier < math.inf:  # so that columns of about the same norm count as equal
            digits, exponent = math.frexp(multiplier)
            multiplier = math.ldexp(math.floor(digits * 2**16), exponent - 16)
        cohorts[(entry.round - 1) % turns].append(multiplier)
    most: list[list[float]] = []
    for one in sorted(cohorts, key=lambda each: (-len(each), sorted(each))):
        if not any(all(a <= b for a, b in zip(sorted(more), sorted(one), strict=False)) for more in most):
            most.append(one)
    return [Counter(one) for one in most]


def _within(
    accountant: Accountant, releases: list[tuple[str, float, float, int]], delta: float, slack: float, adjacency: str
) -> dict[str, float]:
    """The same where mechanisms take (1 + e^epsilon) slack of delta themselves; infinite where too little is left.

    An accountant is slow, so a share of delta is set aside for them and what they take is compared with it, rather than
    that the best share is sought.
    """
    least: dict[str, float] = {}
    for aside in (0.01, 0.5) if slack else (0.0,):
        stated = composed_by(accountant, releases, (1 - aside) * delta, adjacency)
        if stated is None:
            raise PluginError(f"accountant {accountant.name} states no epsilon of sampled Gaussian releases")
        for method, value in stated.items():
            fits = not slack or (1 + math.exp(min(value, 700.0))) * slack <= aside * delta
            least[method] = min(least.get(method, math.inf), value if fits else math.inf)
    return least


def why_not_amplified(ledger: Book) -> str | None:
    """Why sampling earns no credit; None if it does."""
    costs, sampling = ledger.noised.values(), ledger.sampling
    if sampling is None:
        return "all clients take part in every round"
    reasons = {
        "no zone has noise": not costs,
        "noise is shared out among the clients, so how much there is follows from who takes part, and the server knows "
        "who does": ledger.so_far.distributed,
        "noise is added by the clients, and who sees an upload knows that its client took part":
            any(cost.central < cost.releases for cost in costs),
        "no accountant here covers samples of fixed size under add-or-remove adjacency":
            sampling.scheme == "fixed",
        "clients take part in turn, which is no secret": sampling.scheme == "cyclic",
        "noise is correlated over rounds in which a client may be drawn twice; write in sampling a separation of as "
        "many rounds as the noise has bands":
            any(cost.correlated for cost in costs) and ledger.so_far.reach >= sampling.turns,
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
    # A round that is skipped or not depends on every client's coin. Its chance must be far below delta, also when it
    # is multiplied by the rounds and by e^epsilon.
    cohort = ledger.num_clients // sampling.turns
    skipped = _chance_of_fewer(ledger.min_clients, cohort, sampling.coin * ledger.presence)
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


@dataclasses.dataclass(eq=False)
class Guarantee:
    """What each client has spent under both adjacencies, why in a sentence, and what that rests on."""

    zero_out: Spent
    replace_one: Spent
    because: str
    rests_on: tuple[str, ...] = ()


def verdict(ledger: Book) -> Verdict:
    """For each party, the guarantee toward it, or why there is none."""
    if not ledger.log:
        return Verdict("nothing_run")
    # What is stated of a secret cohort would tell how often the client with the most rounds was drawn.
    stated = ledger if why_not_amplified(ledger) else ledger.with_everybody()
    return Verdict.of(_lines(stated), not_judged(stated))


def _lines(ledger: Book) -> list[Line]:
    kept = {level: each for level, each in levels(ledger).items() if math.isfinite(quoted(each))}
    return [_with_levels(ledger, _line(ledger, party, view), kept) for party, view in guaranteed(ledger).items()]


def _line(ledger: Book, party: Party, view: Guarantee | Nothing) -> Line:
    """The line of a party, of clients."""
    # How many clients put their heads together in this view.
    colluders = ledger.colluders if "client" in party else None
    if isinstance(view, Nothing):
        state: State = "absent" if view.absent else "none"
        sees = "" if view.absent else view_of(ledger, party)
        return Line(party, state, view.reason, view.detail or view.reason, ledger.delta, sees, colluders=colluders)
    sampled = sampled_epsilons(ledger) if party == "released_model" else None
    stated = _stated(ledger, view, sampled)
    if ledger.so_far.reproducible and view.zero_out.any():
        reason = "the noise follows from a seed that the recipe shows"
        seen = view_of(ledger, party)
        return Line(party, "none", reason, SEED_IS_KNOWN, ledger.delta, seen, nominal=stated, colluders=colluders)
    limit = _limit(ledger, stated.epsilon) if view.zero_out.any() else ""
    return Line(
        party, "none" if math.isinf(stated.epsilon) else "beyond" if limit else "guaranteed", limit, view.because,
        ledger.delta, view_of(ledger, party), stated, rests_on=_resting(ledger, view.rests_on),
        not_covered=_not_covered(ledger, party), colluders=colluders, nothing=not view.zero_out.any(),
        costs={} if sampled else costs_of(stated, view.zero_out, view.replace_one),
    )  # fmt: skip


def _word(component: str) -> str:
    return f"on the word of {component}"


def _resting(ledger: Book, rests_on: Iterable[str]) -> list[str]:
    """On what a guarantee rests. That fedplug adds the noise is said where no component need be believed."""
    every = list(dict.fromkeys([*rests_on, *map(_word, ledger.words)]))
    return [each for each in every if each != EXECUTED or not any(one.startswith(_word("")) for one in every)]


def _with_levels(ledger: Book, line: Line, kept: dict[str, dict[str, float]]) -> Line:
    """The line of a client, or of a level of which a component keeps account where that promises more."""
    worth = ("none", "beyond", "guaranteed")
    for level, stated in kept.items():
        if line.state == "absent" or voided(ledger, cast("Party", line.party)):
            continue
        limit = _limit(ledger, quoted(stated), level)
        state: State = "beyond" if limit else "guaranteed"
        if worth.index(state) > worth.index(line.state):
            keeper = ledger.keepers[level]
            line = dataclasses.replace(
                line, state=state, reason=limit, epsilons=None, costs={}, unit=level, adjacency=keeper.account.unit,
                stated=stated, detail=f"{keeper.account.covers}; of a whole client: {line.reason}",
                rests_on=_resting(ledger, [_word(keeper.name)]),
                not_covered=["a client as a whole", *_not_covered(ledger, cast("Party", line.party))],
            )  # fmt: skip
    return line


def _not_covered(ledger: Book, party: Party) -> list[str]:
    """What a party sees that follows from clients' data, and no epsilon covers."""
    bare = [each for each in ledger.reveals if each.covered_by is None]
    seen = [each.what for each in bare if _sees(party, _shown_to(ledger, each.to))]
    sizes = ["message sizes and times"] if "server" in party else []
    return list(dict.fromkeys([*seen, *sizes]))


def _stated(ledger: Book, view: Guarantee, sampled: Epsilons | None) -> Epsilons:
    """The epsilons of a guarantee; where sampling earns credit, both with and without it."""
    zero_out, replace_one = ledger.epsilons_of(view.zero_out), ledger.epsilons_of(view.replace_one)
    if sampled is None:
        return Epsilons(zero_out, replace_one)
    return Epsilons(
        {**sampled.zero_out, "epsilon_without_sampling": quoted(zero_out)},
        {**sampled.replace_one, "epsilon_without_sampling": quoted(replace_one)},
    )


def guaranteed(ledger: Book) -> dict[Party, Guarantee | Nothing]:
    """The guarantee for each adversary's view, or why there is none."""
    return {name: _with_voided(view, voided(ledger, name)) for name, view in _of_values(ledger).items()}


def _with_voided(view: Guarantee | Nothing, voided: Nothing | None) -> Guarantee | Nothing:
    """A view, given what takes its guarantee whatever the noise is; the detail has all reasons."""
    if voided is None or (isinstance(view, Nothing) and view.absent):
        return view
    also = f"; and {view.detail or view.reason}" if isinstance(view, Nothing) else ""
    return Nothing(voided.reason, voided.detail + also)


def _of_values(ledger: Book) -> dict[Party, Guarantee | Nothing]:
    """The guarantee for each adversary's view of the protected values alone, or why there is none."""
    if not ledger.costs:
        nothing = Spent.of(ledger.num_clients)
        kept = Guarantee(
            nothing, nothing, "sees nothing of the updates: no coordinate of one left its client", (NOT_SEEN,)
        )
        if any(entry.public for entry in ledger.log):
            kept = Guarantee(nothing, nothing, "sees updates that no client's examples went into", (NOT_READ,))
        holder = _key_holder(ledger)
        absent = isinstance(holder, Nothing) and holder.absent
        return {name: holder if absent and name == "key_holder" else kept for name in PARTIES}
    central = (SERVER,) if any(cost.central for cost in ledger.noised.values()) else ()
    return {
        "server": _server(ledger),
        "key_holder": _key_holder(ledger),
        "client": _everybody(ledger, lambda _, cost: cost.peer, wording.of_a_client(ledger), (*central, SUMS_ALONE)),
        "client_and_server": _collusion(ledger),
        "released_model": _everybody(
            ledger, lambda _, cost: cost.total, "the model after every round is seen, the uploads are not", central
        ),
    }  # fmt: skip


def voided(ledger: Book, name: Party) -> Nothing | None:
    """Why a view has no guarantee whatever the noise is: what nobody stated, or what gives too much away."""
    if unsaid := _unsaid(ledger):
        return unsaid
    voiding = [channel for channel in ledger.reveals if channel.voids and _sees(name, _shown_to(ledger, channel.to))]
    if not voiding:
        return None
    return wording.sees_uncovered(voiding[0].what, voiding[0].note)


def _unsaid(ledger: Book) -> Nothing | None:
    """What nobody stated, so that no view has a guarantee; None where all is stated."""
    if freed := ledger.so_far.freed:
        return wording.freed_values([*freed])
    if ledger.uncovered:
        # Groups, plans and models may follow from the answers, so that even the released model may repeat them.
        return wording.uncovered_answers(ledger.uncovered)
    return None


def _shown_to(ledger: Book, to: tuple[Party, ...]) -> tuple[Party, ...]:
    """Who sees what is shown to these: where clients hold a key, `key_holder` and `client` are the same people."""
    if "clients" in ledger.key_holders.values() and {"key_holder", "client"} & {*to}:
        return (*to, "key_holder", "client")
    return to


def _sees(view: str, shown_to: tuple[str, ...]) -> bool:
    """Whether a view includes what is shown to these: who colludes sees what either does, and everybody the model."""
    together = ("server", "client", "client_and_server", "released_model")
    return view in shown_to or "released_model" in shown_to or (
        view == "client_and_server" and any(whose in together for whose in shown_to)
    )


def _server(ledger: Book) -> Guarantee | Nothing:
    """The aggregation server: plain uploads one by one, encrypted zones only where their sums are published."""
    noised, bare = ledger.noised, ledger.bare
    if seen := [zone for zone in bare if zone not in ledger.sealed]:
        return wording.reads_uploads(ledger, seen)
    if seen := [zone for zone in bare if zone in ledger.opened]:
        return wording.sees_sums(ledger, seen, "decrypted ")
    if seen := [zone for zone, cost in noised.items() if cost.central]:
        return wording.adds_noise_itself(seen)
    if ledger.feedback.any() and (scored := sorted(ledger.so_far.scored)):
        return wording.noise_by_bare_values(scored, bare)
    plain = {zone: cost for zone, cost in noised.items() if zone not in ledger.sealed}
    sealed = {zone: cost for zone, cost in noised.items() if zone in ledger.sealed}
    if not plain and not ledger.opened.intersection(sealed):
        zero = Spent.of(ledger.num_clients)
        closed = (ENCRYPTION,)
        return Guarantee(zero, zero, "sees ciphertexts only, as long as the encryption holds", closed)
    # Sums it cannot decrypt still shape the uploads of the next round, so they are paid for at the price of the sum.
    # Those that it can decrypt it sees before it adds its own noise.
    own = ledger.priced(
        {**plain, **sealed},
        lambda zone, cost: cost.own if zone in plain else cost.below if zone in ledger.opened else cost.total,
    )
    because = wording.of_the_server(ledger, plain)
    count, feedback = ledger.num_clients, ledger.feedback
    return Guarantee(
        Spent.of(count, [own, feedback]), Spent.of(count, [own.doubled(), feedback]), because,
        (*_noise_by(ledger), *((ENCRYPTION,) if ledger.sealed else ())),
    )  # fmt: skip


def _key_holder(ledger: Book) -> Guarantee | Nothing:
    """Who can decrypt besides clients: the key server, which is sent sums only."""
    holders = {*ledger.key_holders.values()}
    if not ledger.sealed:
        return Nothing("nothing is encrypted, so nobody holds a key", absent=True)
    if holders == {"shares"}:
        return wording.nobody_holds_the_key(ledger)
    if "key_server" not in holders:
        return Nothing("every client holds the key", absent=True)
    noised = ledger.noised
    if central := [zone for zone, cost in noised.items() if cost.central and zone in ledger.sealed]:
        return wording.opens_before_the_noise(central)

    def price(zone: str, cost: ZoneCost) -> NDArray[np.float64]:
        return np.maximum(cost.total, cost.below) if ledger.key_holders.get(zone) == "key_server" else cost.total

    return _everybody(ledger, price, wording.of_the_key_server(ledger), (SUMS_ALONE,))


def _collusion(ledger: Book) -> Guarantee | Nothing:
    """The aggregation server together with a client and that client's keys."""
    noised, bare = ledger.noised, ledger.bare
    if bare:
        return wording.see_together(ledger, bare)
    if central := [zone for zone, cost in noised.items() if cost.central]:
        return wording.server_adds_noise(central)
    # Where this many clients open uploads together, the sums alone do not matter.
    shared = {
        zone for zone, holder in ledger.key_holders.items()
        if holder == "shares" and ledger.encryption[zone].opens_with > ledger.colluders
    }  # fmt: skip
    # The server adds its own noise to a sum, so where there is any the noise of the uploads alone counts.
    own = ledger.priced(noised, lambda zone, cost: cost.pooled if zone in shared and not cost.beneath else cost.own)
    because, rests = wording.of_both(ledger, sorted(shared))
    return Guarantee(own, own.doubled(), because, (*_noise_by(ledger), *rests))


def _everybody(
    ledger: Book, price: Callable[[str, ZoneCost], NDArray[np.float64]], because: str, rests_on: tuple[str, ...] = ()
) -> Guarantee | Nothing:  # fmt: skip
    """Who sees the sums of every zone, each at its price."""
    if bare := ledger.bare:
        return wording.sees_sums(ledger, bare)
    spent = ledger.priced(ledger.noised, price)
    return Guarantee(spent, spent.doubled(), because, (*_noise_by(ledger), *rests_on))


def _noise_by(ledger: Book) -> tuple[str, ...]:
    """On whose word the noise is what it is priced at."""
    so_far = ledger.so_far
    return (*((EXECUTED,) if so_far.executed else ()), *map(_word, sorted(so_far.words)))


def _limit(ledger: Book, epsilon: float, level: str = "") -> str:
    """Why an epsilon promises too little; empty if it may be a guarantee."""
    if math.isinf(epsilon):
        return "the noise does not protect: epsilon is infinite"
    if epsilon > LARGEST_MEANINGFUL:
        whose = f" for each {level}" if level else ""
        return f"epsilon {number(epsilon)}{whose} promises too little: it is above {LARGEST_MEANINGFUL:g}"
    return loose(ledger, level)


def loose(ledger: Book, level: str = "") -> str:
    """Why delta is not below 1 / number of clients, or units of a level; empty if it is.

    What publishes one of n units, drawn by lot, is (0, 1/n)-DP.
    """
    count, who = (units(ledger, level), f"{level}s") if level else (ledger.num_clients, "clients")
    if math.isinf(count):
        return f"delta {ledger.delta:g} is per {level}, and nobody says how many there are"
    return f"delta {ledger.delta:g} is not below 1 / {count:g} {who}" if count and ledger.delta >= 1 / count else ""

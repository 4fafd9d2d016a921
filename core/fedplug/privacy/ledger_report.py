"""The privacy ledger in words: the record in a run's folder, and the verdict line."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedplug.api.checked import shared
from fedplug.api.operations import NoiseKind
from fedplug.privacy.ledger_epsilons import level_epsilons, levels, why_not_amplified, zone_epsilons
from fedplug.privacy.ledger_record import (
    NEVER_COVERED,
    SCHEMA,
    LedgerReport,
    LevelReport,
    NoiseReport,
    RoundsReport,
    SamplingReport,
    ZoneReport,
    quoted,
)
from fedplug.privacy.ledger_views import SEED_IS_KNOWN, headline_voided, priced_part, toward_aggregator, views
from fedplug.recipe.curves import PRICED

if TYPE_CHECKING:
    from fedplug.api.releases import Release
    from fedplug.privacy.ledger import Ledger
    from fedplug.privacy.ledger_record import Epsilons

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

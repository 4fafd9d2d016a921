"""The record of a ledger in a run's folder, and its warnings, for readers; guarantees are in `views`."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator

from fedplug.api.known import Release
from fedplug.api.operations import NoiseKind
from fedplug.api.records import shared

from fedplug_ledger.book import Book
from fedplug_ledger.curves import PRICED
from fedplug_ledger.grades import PARTIES
from fedplug_ledger.ledger_record import (
    NEVER_COVERED,
    SCHEMA,
    LedgerReport,
    LevelReport,
    NoiseReport,
    RoundsReport,
    SamplingReport,
    ZoneReport,
)
from fedplug_ledger.spent import priced_part
from fedplug_ledger.views import (
    SEED_IS_KNOWN,
    levels,
    loose,
    verdict,
    voided,
    why_not_amplified,
    zone_epsilons,
)


def report(ledger: Book) -> LedgerReport:
    """The whole ledger; see `Ledger.report`."""
    why, joint = why_not_amplified(ledger), zone_epsilons(ledger)
    # Whatever else is stated of a secret cohort would tell how often the client with the most rounds was drawn.
    stated = ledger if why else ledger.with_everybody()
    return LedgerReport(
        schema=SCHEMA,
        recipe=ledger.recipe_name,
        verdict=verdict(ledger),
        warnings=list(dict.fromkeys(warnings(ledger))),
        unit="client: the whole update of a client; the same epsilon holds for each of its records",
        adjacency="add-or-remove: a client's contribution, or zeros instead; replace-one: any other, with twice the "
        "sensitivity",
        delta=ledger.delta,
        trust=_trust(ledger),
        epsilons=joint,
        epsilon_prices=priced_part(ledger) or "everything released of the updates",
        levels={level: _level(ledger, level, epsilons) for level, epsilons in levels(stated).items()},
        zones={zone: _zone(stated, zone) for zone in stated.costs},
        sampling=SamplingReport(
            **(ledger.sampling.to_plain() if ledger.sampling else {"scheme": "all"}),
            amplified=why is None,
            why=why or "clients are sampled by secret coins",
        ),
        rounds=RoundsReport(ledger.rounds, actual_rounds(ledger)),
        encryption=dict(ledger.encryption),
        noise=_noise(ledger),
        reveals=ledger.reveals,
        uncovered_messages=ledger.uncovered,
        words=list(ledger.words),
        never_covered=list(NEVER_COVERED),
        log=[entry.without_cohort() for entry in ledger.log] if why is None else ledger.log,
    )


def warnings(ledger: Book) -> Iterator[str]:
    """Warnings for readers of epsilon; one that holds for several rounds appears as often."""
    for level in ("", *ledger.accounts):
        if beyond := loose(ledger, level):
            yield f"{beyond}; a delta of 1 / n allows publishing one whole {level or 'client'} of n, drawn by lot"
    if ledger.so_far.reproducible:
        yield SEED_IS_KNOWN
    releases = _releases(ledger)
    for zone, release in releases:
        if release.as_published:
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
                f"{release.link} calibrates its noise for delta={release.calibrated_delta:g}, but the ledger states "
                f"epsilon at delta={ledger.delta:g}; write one delta at the top of the recipe and in {release.link}"
            )
    yield from (facts.uncredited for _, facts in entered if facts.uncredited)
    for zone, cost in ledger.costs.items():
        if cost.together is not None and len(cost.together) < ledger.num_clients:
            yield (
                f"zone {zone}: of the noise that clients share out over the rounds, that of {len(cost.together)} of "
                f"{ledger.num_clients} counts: theirs is in the sums of all rounds"
            )
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
            "the zone without noise influences what other clients upload later; the epsilon toward the server includes "
            "this, but the epsilon of the noised zone alone does not"
        )
    # Ballots have separate entries, so a round with two entries was not repeated; one with a zone twice was.
    released = Counter((entry.round, zone) for entry in ledger.log for zone in entry.zones)
    if repeated := sorted({round for (round, _), count in released.items() if count > 1}):
        yield f"rounds {repeated} were repeated after an interruption, and the ledger charges each repetition"
    for round, zone in ledger.unopened:
        yield f"round {round + 1} was repeated; zone {zone} was not opened a second time"
    if (actual := actual_rounds(ledger)) > ledger.rounds:
        yield f"{actual} rounds were run, but {ledger.rounds} were planned: noise calibrated to the plan is too small"


def _zone(ledger: Book, zone: str) -> ZoneReport:
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


def _level(ledger: Book, level: str, stated: dict[str, float]) -> LevelReport:
    account, lost = ledger.keepers[level].account, _first_voided(ledger)
    return LevelReport(
        unit=f"{level}: {account.unit}",
        trust=account.trust,
        covers=account.covers + (f"; no guarantee toward {lost}" if lost else ""),
        delta=ledger.delta,
        epsilons=stated,
    )


def _first_voided(ledger: Book) -> str:
    """A party toward which no account of a level holds, and why; empty where it holds toward everybody."""
    found = ((PARTIES[name], voided(ledger, name)) for name in PARTIES)
    return next((f"{who}: {why.detail}" for who, why in found if why), "")


def _noise(ledger: Book) -> list[NoiseReport]:
    distinct = {NoiseReport(zone=zone, **shared(each, NoiseKind)) for zone, each in _releases(ledger)}
    return sorted(distinct, key=lambda each: (each.zone, *dataclasses.astuple(each)))


def _trust(ledger: Book) -> str:
    trusts = sorted({release.trust for _, release in _releases(ledger)})
    return " and ".join(trusts) or "none"


def actual_rounds(ledger: Book) -> int:
    """How many rounds were run, those that were repeated once."""
    return len({entry.round for entry in ledger.log})


def _releases(ledger: Book) -> list[tuple[str, Release]]:
    """Every noise of the log, with its zone."""
    return [(zone, each) for entry in ledger.log for zone, facts in entry.zones.items() for each in facts.releases]

"""A comparison in plain sentences made from its numbers: who is most accurate, protects from whom, and costs most.

A difference that the spread over seeds may explain is called none, and groups of numbers that do not compare are named.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fedplug.api.operations import Party
from fedplug_ledger.grades import PARTIES
from fedplug_ledger.verdict_words import named, number
from fedplug_runs import units

from fedplug_lab.comparable import ACCURACY, PRIVACY, TIME, TRAFFIC
from fedplug_lab.compare_table import Read, by_seed, goal_of, leaders, line_of, mean_of
from fedplug_lab.intervals import paired, spread_of
from fedplug_lab.records import Compared, OneRun

_ABOUT = 1.05  # costs within this factor are about the same
_NOT_ALIKE = {ACCURACY: "figures", PRIVACY: "epsilons", TRAFFIC: "bytes", TIME: "seconds"}


def all_bytes(run: OneRun) -> float:
    """Of all messages, all ways."""
    return float(run.result.bytes.up + run.result.bytes.down + run.result.bytes.key_server)


def summary_of(everyone: Sequence[Compared], spoiled: Collection[str]) -> list[str]:
    """The sentences.

    Args:
        everyone: what is compared.
        spoiled: groups of numbers that do not compare.
    """
    said = []
    if ACCURACY not in spoiled:
        said += _most_accurate(everyone)
    said += [_protection(everyone)]
    costs = []
    if TRAFFIC not in spoiled:
        costs += _costs(everyone, all_bytes, "send", "most", "as much", "least", units.size)
    if TIME not in spoiled:
        clock: Read = lambda run: run.result.wall_seconds  # noqa: E731
        costs += _costs(everyone, clock, "take", "longest", "as long", "least", units.duration)
    said += [f"{words}." for words in costs]
    if missing := [word for group, word in _NOT_ALIKE.items() if group in spoiled]:
        said.append(f"The {named(missing)} of these runs do not compare: what differs is listed with the warnings.")
    return said


def _most_accurate(everyone: Sequence[Compared]) -> list[str]:
    goal = goal_of(everyone)
    if goal is None:
        return []
    name, read, better = goal
    values = [by_seed(each, read) for each in everyone]
    places = leaders(values, better)
    spreads = {place: found for place in places if (found := spread_of([*values[place].values()]))}
    ordered = sorted(spreads, key=lambda place: spreads[place].mean, reverse=better == "higher")
    first, best = ordered[0], spreads[ordered[0]]
    equal = [place for place in ordered if paired(values[place], values[first]).mean == 0]
    close = [place for place in ordered if place not in equal]
    shown = units.number(best.mean) + (f" ± {units.number(best.deviation)}" if best.deviation else "")
    most = "the most accurate" if name == "accuracy" else f"the best in {name}"
    who = named(everyone[place].name for place in equal)
    several = len(equal) > 1
    said = f"{who} {'are' if several else 'is'} {most} ({shown}{' each' if several else ''})"
    seeds = max(len(each.runs) for each in everyone)
    if len(equal) == len(everyone):
        return [f"All are equally accurate ({shown})." if name == "accuracy" else f"All are equal in {name} ({shown})."]
    if seeds == 1:
        return [f"{said}; with one seed each, part of a difference may be luck."]
    if close:
        others, them = named(everyone[place].name for place in close), "them" if several else "it"
        return [f"{said}, but the spread over {seeds} seeds does not tell {others} from {them}."]
    return [f"{said}, by more than the spread over {seeds} seeds explains."]


def _protection(everyone: Sequence[Compared]) -> str:
    """Who protects a client from whom: protocols with the same parties together, the most protected ones first."""
    kinds: dict[tuple[bool, bool, tuple[Party, ...]], list[Compared]] = {}
    for each in everyone:
        lines = {party: line for party in PARTIES if (line := line_of(each, party)) and line.state != "absent"}
        safe = tuple(party for party, line in lines.items() if line.state == "guaranteed" and line.unit == "client")
        weak = any(lines[party].weak for party in safe)
        kinds.setdefault((len(safe) == len(lines), weak, safe), []).append(each)
    said = list[str]()
    for (whole, weak, safe), members in sorted(
        kinds.items(), key=lambda kind: (not kind[0][0], -len(kind[0][2]), kind[0][1])
    ):
        verb = "" if said else " protect a client" if len(members) > 1 else " protects a client"
        verb += " weakly" if weak else ""
        some = f"{named(PARTIES[party] for party in safe)} alone" if safe else "nobody"
        known = [line.value or 0.0 for each in members for party in safe if (line := line_of(each, party))]
        most = f" (epsilon {number(max(known))} at most)" if max(known, default=0.0) > 0 else ""
        whom = "everybody" if safe and whole else some
        said.append(f"{named(each.name for each in members)}{verb} from {whom}{most}")
    return f"{'; '.join(said)}."


def _costs(
    everyone: Sequence[Compared], read: Read, verb: str, most: str, as_much: str, least: str,
    show: Callable[[float], str],
) -> list[str]:  # fmt: skip
    """Who costs most, and how much less the cheapest costs; nothing where the seeds do not tell the two apart."""
    found = {place: mean for place, each in enumerate(everyone) if (mean := mean_of(each, read)) is not None}
    if len(found) < 2 or min(found.values()) <= 0:
        return []
    low, high = (everyone[pick(found, key=lambda place: found[place])] for pick in (min, max))
    dear, cheap = max(found.values()), min(found.values())
    if dear < _ABOUT * cheap:
        return [f"All {verb} about {as_much} ({show(dear)})"]
    if 0 in leaders([by_seed(high, read), by_seed(low, read)], "lower"):
        return []
    times = f"{dear / cheap:.1f}" if dear < 10 * cheap else f"{dear / cheap:.0f}"
    return [f"{high.name} {verb}s {most} ({show(dear)}), {times} times {as_much} as {low.name}, which {verb}s {least}"]

"""What every display, table and report says of the rows of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from fedplug.api.data import ACCURACY, Figure
from fedplug_ledger.verdict_words import BRIEF, number

from fedplug_runs import units
from fedplug_runs.by_class import WITH_ACCURACY
from fedplug_runs.rows import Row

T = TypeVar("T")
_FEW_GROUPS = 6
_FEW_CLASSES = 4


def grouped_title(row: Row) -> str:
    """Title of the mean over groups of the figure that leads, on test data like their clients' own."""
    return f"{row.leads.name} in groups"


def columns(row: Row) -> dict[str, str]:
    """Title and text of each column of a row; a dash where the row has no number."""
    attended = row.clients
    personal, tuned, groups = units.spread(row.of_personal), units.spread(row.tuned), row.of_groups
    return {
        # Where groups have a model each, what counts is how each does on what its clients have.
        **({grouped_title(row): units.number(math.fsum(groups.values()) / len(groups))} if groups else {}),
        **{
            _on_all(row) if groups and title == row.leads.name else title: units.number(value)
            for title, value in row.judged.items()
            # Where accuracy leads, these say hardly more; they are in the totals.
            if row.leads.name != ACCURACY.name or title not in WITH_ACCURACY
        },
        "personal mean": units.number(personal[1] if personal else None),
        "fine-tuned mean": units.number(tuned[1] if tuned else None),
        "loss": units.number(row.loss),
        "sealed": units.percent(row.sealed_share),
        "up": units.size(row.bytes.up.total),
        "down": units.size(row.bytes.down.total),
        "epsilon": epsilon_of(row),
        "clients": f"{attended.answered}/{attended.asked}",
        "time": units.duration(row.wall_seconds),
        "simulated": units.duration(row.simulated_seconds),
    }


def _on_all(row: Row) -> str:
    return "on all classes" if row.leads == ACCURACY else f"{row.leads.name} on all"


def spread_words(known: tuple[float, float, float], leads: Figure) -> str:
    """Mean over clients, and from the worst of them to the best: `0.700 (0.500 to 0.900)`; the largest RMSE first."""
    low, mean, high = map(units.number, known)
    worst, best = (low, high) if leads.better == "higher" else (high, low)
    return f"{mean} ({worst} to {best})"


def epsilon_of(row: Row) -> str:
    """The largest epsilon that is stated for anybody so far, and for how many nothing is: `8.00 (server; none for 3)`.

    A verdict states one for each party, so the party is named unless all are equal.
    `2.00 (each record)` where a component's account of another unit says more. A dash where nothing was released.
    """
    stated = {BRIEF.get(party, party): value for party, value in row.view_epsilons.items()}
    levels = {} if any(stated.values()) else {f"each {level}": value for level, value in row.level_epsilons.items()}
    stated |= levels
    if not stated:
        return "no guarantee" if row.unprotected else units.NOTHING
    who, most = max(stated.items(), key=lambda one: one[1])
    alike = len(stated) > 1 and len({number(value) for value in stated.values()}) == 1
    named = [who] if row.unprotected or who in levels or not alike else []
    without = [f"none for {len(row.unprotected)}"] if row.unprotected else []
    return number(most) + (f" ({'; '.join([*named, *without])})" if named else "")


def filled(row: Row) -> list[str]:
    """Title and text of each column in which a row has a number."""
    return [f"{title} {text}" for title, text in columns(row).items() if text != units.NOTHING]


def cells(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Title -> a text for each row, in the order of the columns; a dash where a row has no number."""
    given = [columns(row) for row in rows]
    # A round that nobody evaluated has no figures; their columns are where other rounds have them.
    titles = dict.fromkeys(title for named in sorted(given, key=len, reverse=True) for title in named)
    return {title: [named.get(title, units.NOTHING) for named in given] for title in titles}


def thin_out(rows: Sequence[T], most: int, always: int | None = None) -> list[T]:
    """At most `most` rows, evenly spread, with the first and the last among them; and that at the index `always`."""
    if len(rows) <= most:
        return list(rows)
    kept = {round(i * (len(rows) - 1) / (most - 1)) for i in range(most)}
    return [rows[i] for i in sorted(kept | ({always} if always is not None else set()))]


def totals(rows: Sequence[Row]) -> dict[str, str]:
    """The results of a whole run: accuracy, bytes, time. Its privacy is in the verdict."""
    result = {"rounds": str(len(rows))}
    if grouped := [row for row in rows if row.of_groups]:
        result[grouped_title(grouped[-1])] = in_groups(grouped[-1])
    if measured := [row for row in rows if row.leading is not None and not math.isnan(row.leading)]:
        best, last = best_of(measured), measured[-1]
        on_all = "accuracy on all classes" if last.leads == ACCURACY else _on_all(last)
        title = on_all if grouped else last.leads.name
        final = units.number(last.leading) + (f" {last.leads.unit}" if last.leads.unit else "")
        result[title] = f"{final} (best {units.number(best.leading)} after round {best.round})"
    for name, value in next((row.judged for row in reversed(rows) if row.figures), {}).items():
        if name != rows[-1].leads.name and name not in WITH_ACCURACY:
            result[name] = units.number(value)
    if measured and (by_class := class_words(measured[-1])):
        result["by class"] = by_class
    if guess := guess_words(rows):
        result["guess"] = guess
    of_clients = {"personal mean": [row.of_personal for row in rows], "fine-tuned mean": [row.tuned for row in rows]}
    for title, by_round in of_clients.items():
        if known := [found for by_client in by_round if (found := units.spread(by_client))]:
            result[title] = spread_words(known[-1], rows[-1].leads)
    if clusters := next((row.clusters for row in reversed(rows) if row.clusters), {}):
        each = ", ".join(f"{name} {units.number(value)}" for name, value in clusters.items())
        result[f"{rows[-1].leads.name} by cluster"] = each
    result["bytes"] = sent(rows)
    result["time"] = units.duration(units.total(row.wall_seconds for row in rows))
    if simulated := [row.simulated_seconds for row in rows if row.simulated_seconds is not None]:
        result["simulated time"] = f"{units.duration(units.total(simulated))} on the devices that the recipe describes"
    return result


def guess_words(rows: Sequence[Row]) -> str:
    """What the best guess that looks at no input gets, and whether the model is better; empty where nobody knows.

    `accuracy 0.983, balanced accuracy 0.500; the model is no better`.
    """
    if not (measured := [row for row in rows if row.leading is not None]):
        return ""
    last = measured[-1]
    first = [name for name in (last.leads.name, ACCURACY.name) if name in last.guess]
    shown = dict.fromkeys(first or list(last.guess)[:1])
    said = ", ".join(f"{name} {units.number(last.guess[name])}" for name in shown)
    if said and (name := last.no_better):
        said += f"; the model is no better in {name}"
    return said


def class_words(row: Row) -> str:
    """Figures that rare classes cannot hide behind, but for the one that leads; recalls of many classes as their ends.

    `balanced accuracy 0.919, AUC 0.993, recall 0.838 (3) to 1.000 (0)`.
    """
    said = [f"{name} {units.number(value)}" for name, value in row.judged.items()
            if name in WITH_ACCURACY and name != row.leads.name]  # fmt: skip
    found = row.recalls
    if 0 < len(found) <= _FEW_CLASSES:
        said.append("recall " + " and ".join(f"{units.number(recall)} ({name})" for name, recall in found.items()))
    elif found:
        low, high = (pick(found, key=lambda name: found[name]) for pick in (min, max))
        said.append(f"recall {units.number(found[low])} ({low}) to {units.number(found[high])} ({high})")
    return ", ".join(said)


def best_of(rows: Sequence[Row]) -> Row:
    """The row whose leading figure is the best; of several the first."""

    def worth(row: Row) -> float:
        known = row.leading
        if known is None or math.isnan(known):
            return -math.inf
        return known if row.leads.better == "higher" else -known

    return max(rows, key=worth)


def in_groups(row: Row) -> str:
    """How each group's model does on test data like its clients' own; of many groups the ends."""
    means = row.of_groups
    low, mean, high = map(units.number, units.spread(dict(enumerate(means.values()))) or (None,) * 3)
    each = ", ".join(f"{group} {units.number(value)}" for group, value in means.items())
    return f"{mean} on average ({each if len(means) <= _FEW_GROUPS else f'{len(means)} groups, {low} to {high}'})"


def sent(rows: Sequence[Row]) -> str:
    """Bytes of all rounds, up and down."""
    up, down = sum(row.bytes.up.total for row in rows), sum(row.bytes.down.total for row in rows)
    return f"{units.size(up)} up, {units.size(down)} down"

"""The table at the end of a sweep, with mean and standard deviation over seeds, and the same lines as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedplug_ledger.verdict_words import BRIEF
from fedplug_runs import units

from fedplug_lab import sections
from fedplug_lab.comparable import ACCURACY, PRIVACY, TIME, TRAFFIC
from fedplug_lab.grid import short_names
from fedplug_lab.records import Line
from fedplug_lab.results import Result


class Column(NamedTuple):
    """One column of the table: what each row holds, and to which group a number that was measured belongs.

    `group` is one of `comparable.GROUPS`; empty for what was set. `brief` columns are in the table of a terminal too.
    """

    title: str
    cells: list[str]
    group: str = ""
    brief: bool = True


def print_table(lines: Sequence[Line]) -> None:
    """Prints one row for each case and combination of parameters."""
    from rich.console import Console
    from rich.text import Text

    from fedplug_lab.terminal import Rows

    columns = [column for column in columns_of(lines) if column.brief]
    rows = [[Text(cell) for cell in cells] for cells in zip(*(column.cells for column in columns), strict=True)]
    right = [place for place, column in enumerate(columns) if column.group]
    # A program that reads a pipe wants whole lines.
    console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 240)
    console.print(Rows([column.title for column in columns], rows, right), crop=False)


def columns_of(lines: Sequence[Line]) -> list[Column]:
    """The table: cases and parameters as given, numbers as mean ± standard deviation over seeds.

    A row is a case and combination of parameters; columns that hold nothing in any row are left out. Of runs that
    failed, only the count is shown.
    """
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(json.dumps([line.case, line.parameters]), []).append(line)
    heads = [group[0] for group in groups.values()]
    done = [[line.result for line in group if line.result] for group in groups.values()]
    names = short_names(_paths(lines))
    columns = [Column("case", [head.case or units.NOTHING for head in heads])]
    for path, name in names.items():
        columns.append(Column(name, [_as_text(head.parameters.get(path)) for head in heads]))
    counts = zip(done, groups.values(), strict=True)
    runs = [str(len(all_)) if len(good) == len(all_) else f"{len(good)} of {len(all_)}" for good, all_ in counts]
    columns.append(Column("runs", runs))
    for group, measured in _measured([result for results in done for result in results]).items():
        for title, read, shown in measured:
            columns.append(Column(title, [_mean(map(read, results), shown) for results in done], group))
        if group == PRIVACY:
            for party, who in BRIEF.items():
                cells = [_least(results, party) for results in done]
                columns.append(Column(f"toward {who}", cells, group, brief=party in ("server", "released_model")))
    return [column for column in columns if {*column.cells} != {units.NOTHING}]


def _least(results: Sequence[Result], party: str) -> str:
    """The guarantee of all these runs toward a party: the largest of their epsilons, or that one of them has none."""
    stated = [result.guarantees[party] for result in results if party in result.guarantees]
    if not stated:
        return units.NOTHING
    given = [epsilon for epsilon in stated if epsilon is not None]
    return f"ε {units.number(max(given))}" if len(given) == len(stated) else "no guarantee"


def parameter_words(line: Line) -> str:
    """The values that a run sets over its recipe: `epsilon 8, norm 0.5`."""
    names = short_names(_paths([line]))
    return ", ".join(f"{name} {_as_text(line.parameters[path])}" for path, name in names.items())


def _measured(results: Sequence[Result]) -> dict[str, list[sections.Column]]:
    """The columns of numbers, by group."""
    figures = dict.fromkeys(title for result in results for title in result.figures)
    used = dict.fromkeys(zone for result in results for zone, share in result.zones.items() if share > 0)
    facts = dict.fromkeys(
        (name, fact) for result in results for name, found in result.assessments.items() for fact in found
    )
    levels = dict.fromkeys(level for result in results for level in result.level_epsilons)
    return {
        ACCURACY: [
            ("accuracy", lambda result: result.accuracy, units.number),
            ("best", lambda result: result.best_accuracy, units.number),
            ("in groups", lambda result: g.mean if (g := result.of_groups) else None, units.number),
            *((title, lambda result, title=title: result.figures.get(title), units.number) for title in figures),
            ("personal mean", lambda result: p.mean if (p := result.of_personal) else None, units.number),
            ("lowest", lambda result: p.min if (p := result.of_personal) else None, units.number),
            ("highest", lambda result: p.max if (p := result.of_personal) else None, units.number),
            ("fine-tuned mean", lambda result: t.mean if (t := result.tuned) else None, units.number),
            *((fact.replace("_", " "), lambda result, name=name, fact=fact: result.assessments.get(name, {}).get(fact),
               _few_digits) for name, fact in facts),
        ],
        PRIVACY: [
            *((zone, lambda result, zone=zone: result.zones.get(zone), units.percent) for zone in used),
            *((f"ε of a {level}", lambda result, level=level: result.level_epsilons.get(level), units.number)
              for level in levels),
            *(column for section in sections.sections_of_plugins() for column in section.columns(results)),
        ],
        TRAFFIC: [
            ("MB up", lambda result: result.bytes.up, _megabytes),
            ("MB down", lambda result: result.bytes.down, _megabytes),
        ],
        TIME: [
            ("seconds", lambda result: result.wall_seconds, _one_digit),
            ("simulated (s)", lambda result: result.simulated_seconds, _one_digit),
        ],
    }  # fmt: skip


def _one_digit(value: float) -> str:
    return f"{value:.1f}"


def _few_digits(value: float) -> str:
    return f"{value:.4g}"


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.2f}"


def _mean(given: Iterable[float | None], shown: Callable[[float], str]) -> str:
    values = [value for value in given if value is not None and not math.isnan(value)]
    if not values:
        return units.NOTHING
    if not all(map(math.isfinite, values)):
        return shown(max(values, key=abs))
    mean = shown(statistics.fmean(values))
    spread = shown(statistics.stdev(values)) if len(values) > 1 else shown(0.0)
    return mean if spread == shown(0.0) else f"{mean} ± {spread}"


def to_csv(lines: Sequence[Line]) -> str:
    """One row a run, one column for every number; nested names are joined by dots."""
    paths = _paths(lines)
    rows = []
    for line in lines:
        plain = line.to_plain()
        given = {path: _as_text(value) for path, value in plain.pop("parameters").items()}
        result = plain.pop("result", {})
        status = "done" if line.result else "failed"
        rows.append({**dict(_flat({"status": status, **plain, **result})), **given})
    columns = dict.fromkeys(["case", *paths, "seed", "status", *(key for row in rows for key in row)])
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(line: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in line.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{key}.")
        elif value is not None:
            yield f"{before}{key}", value


def _paths(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(path for line in lines for path in line.parameters))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)

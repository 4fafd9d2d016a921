"""The page of a sweep: one HTML file with its table, and each run with its verdict and its report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from fedplug_runs import units

from fedplug_lab.page import glossary, write_page
from fedplug_lab.records import Line
from fedplug_lab.sweep_table import Column, columns_of, parameter_words
from fedplug_lab.tables import sentence, table, text

_ON_TABLE = (
    "A row for each case and combination of parameters. Numbers are of the last round: means over seeds, ± standard "
    "deviations where there are several. Privacy: the largest epsilon that is guaranteed for a client toward each "
    "party; read it with the verdicts."
)


def write_sweep_page(folder: Path, lines: Sequence[Line], planned: int, command: str) -> Path:
    """Writes `sweep.html` into the folder of a sweep, whole or not at all.

    Args:
        folder: of the sweep.
        lines: what is known of its runs.
        planned: how many runs it has in all.
        command: that does it again, for a shell; empty where there is none.

    Returns:
        The path.
    """
    failed = [line for line in lines if line.result is None]
    done = f"{len(lines) - len(failed)} of {planned} runs"
    byline = f'<p class="byline">{done}{f" · {len(failed)} failed" if failed else ""}</p>'
    missing = planned - len(lines) + len(failed)
    again = f"<h3>Do it again</h3><pre><code>{text(command)}</code></pre>" if command else ""
    sections = [
        ("numbers", "Numbers", _numbers(lines)),
        ("runs", "Runs", _runs(folder, lines) + again),
        ("privacy", "Privacy, word for word", _verdicts(lines)),
    ]
    top = [] if not missing else [
        f'<p class="banner"><strong>Not complete.</strong> {missing} of {planned} runs have no numbers. The same '
        "command runs what is missing.</p>"
    ]  # fmt: skip
    return write_page(folder / "sweep.html", "sweep", folder.name, byline, top, sections)


def _numbers(lines: Sequence[Line]) -> str:
    columns = columns_of(lines)
    if not columns:
        return ""
    heads = [column for column in columns if not column.group]
    parts = [_grid(_ON_TABLE, heads)] if len(heads) == len(columns) else []
    for group, measured in itertools.groupby(columns[len(heads) :], key=lambda column: column.group):
        caption = "" if parts else _ON_TABLE  # said once
        parts += [f"<h3>{text(group.capitalize())}</h3>", _grid(caption, [*heads, *measured], len(heads))]
    return "".join(parts)


def _grid(caption: str, columns: Sequence[Column], numeric: int | bool = False) -> str:
    body = [[*map(text, cells)] for cells in zip(*(column.cells for column in columns), strict=True)]
    return table(caption, [column.title for column in columns], body, numeric=numeric, whole=True)


def _runs(folder: Path, lines: Sequence[Line]) -> str:
    body = []
    for line in lines:
        report = folder / line.run / "report.html" if line.run else None
        name = f'<span class="whole">{text(line.run or units.NOTHING)}</span>'
        if report is not None and report.is_file():
            name = f'<a href="{text(report.relative_to(folder))}">{name}</a>'
        found = line.result
        body.append([
            name, text(line.case or units.NOTHING), text(parameter_words(line) or units.NOTHING), str(line.seed),
            text(line.error) if found is None else
            f"{found.leads.name} {units.number(found.leading)}; {text(found.verdict.partition('.')[0])}",
        ])  # fmt: skip
    return table("Each run; its report has everything.", ["run", "case", "parameters", "seed", "outcome"], body)


def _verdicts(lines: Sequence[Line]) -> str:
    """Each verdict once, with the runs whose ledgers say it."""
    said: dict[str, list[Line]] = {}
    for line in lines:
        if line.result is not None:
            said.setdefault(line.result.verdict, []).append(line)
    body = [
        [f"{len(whose)} run{'s' if len(whose) > 1 else ''}", sentence(verdict or "none"), "<br>".join(
            text(", ".join(filter(None, [line.case, parameter_words(line), f"seed {line.seed}"]))) for line in whose)]
        for verdict, whose in said.items()
    ]  # fmt: skip
    listed = table("What the ledgers say, each sentence once.", ["", "verdict", "whose"], body)
    return listed + glossary() if listed else ""

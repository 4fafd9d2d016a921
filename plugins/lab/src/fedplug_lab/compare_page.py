"""The page of a comparison: one HTML file with the question, what does not compare, the table, the figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug_runs import units

from fedplug_lab.compare_figures import charts, colour_of
from fedplug_lab.compare_formats import BEST, grouped, side_by_side
from fedplug_lab.compare_table import Cell, Column, reasons
from fedplug_lab.compared import Compared, OneRun
from fedplug_lab.intervals import LEVEL
from fedplug_lab.leakage import leakage_tables
from fedplug_lab.page import figures, glossary, write_page
from fedplug_lab.tables import sentence, table_of_sides, text
from fedplug_lab.tables import table as html_table
from fedplug_lab.verdict_html import verdict_html

_ON_TABLE = (
    "Means ± standard deviations over seeds. Differences are taken seed by seed. Brackets hold the "
    f"{LEVEL:.0%} interval of the mean difference by Student's t, which assumes that differences are about normal, and "
    "n is the number of seeds. Several such intervals are less certain together than each alone. Privacy: what each "
    "party may learn about a client, in the run that promises least. The verdicts below state the assumptions of each "
    f"guarantee and what it leaves out. Bold: {BEST}."
)


def write_compare_page(
    path: Path, everyone: Sequence[Compared], table: Sequence[Column], about: Mapping[str, Any]
) -> Path:
    """Writes the page, whole or not at all.

    Args:
        path: of the file.
        everyone: what is compared.
        table: its numbers.
        about: `title`, `question`, `baseline`, `summary`, `warnings`, and the `command` that does it again.

    Returns:
        The path.
    """
    runs = sum(len(each.runs) for each in everyone)
    byline = f'<p class="byline">{len(everyone)} protocols · {runs} runs · baseline {text(about["baseline"])}</p>'
    sections = [
        ("numbers", "Numbers", _numbers(table)),
        ("figures", "Figures", figures(charts(everyone))),
        ("privacy", "Privacy, word for word", _verdicts(everyone) + glossary()),
        ("leakage", "Leakage", leakage_tables(everyone)),
        ("runs", "Runs", _runs(path.parent, everyone, about)),
    ]
    name = about["question"] or " · ".join(each.name for each in everyone)
    top = [_in_short(about["summary"]), _warned(about["warnings"])]
    return write_page(path, "comparison", name, byline, top, sections)


def _in_short(sentences: Sequence[str]) -> str:
    said = " ".join(map(sentence, sentences))
    return f'<section class="verdict" aria-labelledby="short"><h2 id="short">In short</h2><p>{said}</p></section>'


def _warned(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{text(warning)}</li>" for warning in warnings)
    return f'<div class="banner"><strong>Not everything here compares.</strong><ul class="warnings">{items}</ul></div>'


def _numbers(table: Sequence[Column]) -> str:
    """Protocols side by side, a row for each number, in groups; what few look at is folded away."""
    shown = [column for column in table if column.brief]
    rest = [column for column in table[1:] if not column.brief and column.group]
    gaps = "".join(f"<li>{text(reason)}</li>" for reason in reasons(shown))
    why = f"<details><summary>Why numbers and guarantees are missing</summary><ul>{gaps}</ul></details>" if gaps else ""
    more = ""
    if rest:
        tables = _side_by_side([table[0], *rest], "")
        more = f"<details><summary>More numbers: time by phase, memory</summary>{tables}</details>"
    return _side_by_side(shown, _ON_TABLE) + why + more


def _side_by_side(table: Sequence[Column], caption: str) -> str:
    pieces = []
    for piece in side_by_side(table):
        names = [cell.text for cell in piece[0].cells]
        rows: list[str | Sequence[str]] = []
        for heading, columns in grouped(piece):
            if heading:
                rows.append(f'<tr class="group"><th colspan="{len(names) + 1}">{text(heading)}</th></tr>')
            rows += [[text(column.title), *map(_cell, column.cells)] for column in columns]
        pieces.append(table_of_sides(caption, names, rows))
        caption = ""  # said once
    return "".join(pieces)


def _cell(cell: Cell) -> str:
    state = cell.values.get("state", "")
    said = f"<b>{sentence(cell.text)}</b>" if cell.best or state in _NO_GUARANTEE else sentence(cell.text)
    if state:
        said = f'<span class="{text(state)}">{said}</span>'
    return f'{said}<br><span class="note">{sentence(cell.note)}</span>' if cell.note else said


_NO_GUARANTEE = ("beyond", "none")


def _verdicts(everyone: Sequence[Compared]) -> str:
    """Of each protocol the whole verdict, of several seeds each that differs, folded away below its sentence."""
    parts = []
    for place, each in enumerate(everyone):
        seeds: dict[str, list[OneRun]] = {}
        for run in each.runs:
            seeds.setdefault(str(run.ledger.verdict), []).append(run)
        for runs in seeds.values():
            which = f" (seed {', '.join(str(run.seed) for run in runs)})" if len(seeds) > 1 else ""
            ledger = runs[0].ledger
            warnings = dict.fromkeys(warning for run in runs for warning in run.ledger.warnings)
            items = "".join(f"<li>{text(warning)}</li>" for warning in warnings)
            warned = f'<ul class="warnings">{items}</ul>' if items else ""
            head = f"{_named(place, each.name)}{which}: {sentence(ledger.verdict.headline)}"
            parts.append(f"<details><summary>{head}</summary>{verdict_html(ledger.verdict)}{warned}</details>")
    return "".join(parts)


def _named(place: int, name: str) -> str:
    return f'<span class="zone"><span class="key" style="--c:{colour_of(place)}"></span>{text(name)}</span>'


def _runs(here: Path, everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    body = []
    for place, each in enumerate(everyone):
        for run in each.runs:
            report = run.folder / "report.html"
            link = text(run.folder.name)
            if report.is_file():
                link = f'<a href="{text(os.path.relpath(report, here))}">{link}</a>'
            body.append([
                _named(place, each.name), str(run.seed), link, f"<code>{text(run.summary.digest[:12])}</code>",
                f"{text(run.result.leads.name)} {units.number(run.result.leading)}", text(run.ledger.verdict.opening),
                f"{text(run.summary.engine)}, {text(run.summary.device)}",
            ])  # fmt: skip
    header = ["protocol", "seed", "run, with its report", "digest", "leading figure", "privacy", "machine"]
    again = f"<h3>Do it again</h3><pre><code>{text(about['command'])}</code></pre>" if about["command"] else ""
    return html_table("Each run; its report has everything.", header, body, whole=True) + again

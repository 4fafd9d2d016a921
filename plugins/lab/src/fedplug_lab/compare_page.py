"""The page of a comparison: one HTML file with the question, what does not compare, the table, the figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api import units

from fedplug_lab.compare_figures import charts, colour_of
from fedplug_lab.compare_table import Cell, Column, reasons, verdicts_of
from fedplug_lab.compared import Compared
from fedplug_lab.intervals import LEVEL
from fedplug_lab.leakage import leakage_table
from fedplug_lab.page import figures, glossary, write_page
from fedplug_lab.tables import sentence, text
from fedplug_lab.tables import table as html_table
from fedplug_lab.words import VIEWS

_ON_TABLE = (
    "Numbers are means ± standard deviations over seeds. A difference is taken seed by seed; in brackets is the "
    f"{LEVEL:.0%} interval of its mean by Student's t, which takes the differences to be about normal; n is how many "
    "seeds it rests on. Several such intervals hold together less surely than each alone. Epsilons are the ledgers' "
    "own (zero-out, the largest over the runs); read them with the verdicts."
)


def write_compare_page(
    path: Path, everyone: Sequence[Compared], table: Sequence[Column], about: Mapping[str, Any]
) -> Path:
    """Writes the page, whole or not at all.

    Args:
        path: of the file.
        everyone: what is compared.
        table: its numbers.
        about: `title`, `question`, `baseline`, `warnings`, and the `command` that does it again.

    Returns:
        The path.
    """
    runs = sum(len(each.runs) for each in everyone)
    byline = f'<p class="byline">{len(everyone)} protocols · {runs} runs · baseline {text(about["baseline"])}</p>'
    sections = [
        ("numbers", "Numbers", _numbers(table)),
        ("figures", "Figures", figures(charts(everyone))),
        ("privacy", "Privacy, word for word", _verdicts(everyone) + glossary() + _views(table)),
        ("leakage", "Leakage", leakage_table(everyone)),
        ("runs", "Runs", _runs(path.parent, everyone, about)),
    ]
    name = about["question"] or " · ".join(each.name for each in everyone)
    return write_page(path, "comparison", name, byline, [_warned(about["warnings"])], sections)


def _warned(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{text(warning)}</li>" for warning in warnings)
    return f'<div class="banner"><strong>Not everything here compares.</strong><ul class="warnings">{items}</ul></div>'


def _numbers(table: Sequence[Column]) -> str:
    """Protocols side by side, a row for each number."""
    shown = [column for column in table[1:] if column.key != "verdict"]
    heads = [cell.text for cell in table[0].cells]
    body = [[text(column.title), *map(_cell, column.cells)] for column in shown]
    gaps = "".join(f"<li>{text(reason)}</li>" for reason in reasons([table[0], *shown]))
    why = f"<details><summary>Why there are dashes</summary><ul>{gaps}</ul></details>" if gaps else ""
    return html_table(_ON_TABLE, ["", *heads], body, numeric=1) + why


def _cell(cell: Cell) -> str:
    return f'<span title="{text(cell.why)}">{text(cell.text)}</span>' if cell.why else text(cell.text)


def _verdicts(everyone: Sequence[Compared]) -> str:
    body = [
        [_named(place, each.name),
         "<br>".join(map(sentence, verdicts_of(each))) or "its ledger holds no verdict",
         "<br>".join(dict.fromkeys(text(warning) for run in each.runs for warning in run.ledger.warnings))]
        for place, each in enumerate(everyone)
    ]  # fmt: skip
    return html_table("What the ledgers say; where seeds differ, each verdict.",
                      ["protocol", "verdict", "warnings"], body)  # fmt: skip


def _named(place: int, name: str) -> str:
    return f'<span class="zone"><span class="key" style="--c:{colour_of(place)}"></span>{text(name)}</span>'


def _views(table: Sequence[Column]) -> str:
    known = {column.key: column for column in table}
    body = [
        [text(title), *(text(cell.text if not cell.why else f"{units.NOTHING}: {cell.why}")
                        for cell in known[f"epsilon_{view}"].cells)]
        for view, title in VIEWS.items()
    ]  # fmt: skip
    caption = "What each view may learn: zero-out epsilon, or why the ledger gives none."
    return html_table(caption, ["view", *(cell.text for cell in table[0].cells)], body)


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
                units.number(run.result.accuracy), units.number(run.result.epsilon),
                f"{text(run.summary.engine)}, {text(run.summary.device)}",
            ])  # fmt: skip
    header = ["protocol", "seed", "run, with its report", "digest", "accuracy", "epsilon", "machine"]
    again = f"<h3>Do it again</h3><pre><code>{text(about['command'])}</code></pre>" if about["command"] else ""
    return html_table("Each run; its report has everything.", header, body) + again

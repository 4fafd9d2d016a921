"""The table of a comparison as text: for a terminal, and as CSV, JSON, LaTeX and Markdown."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedplug.api.records import json_ready

from fedplug_lab.compare_table import Column, reasons, verdicts_of
from fedplug_lab.compared import Compared
from fedplug_lab.intervals import LEVEL
from fedplug_lab.leakage import leaks_of


def print_table(table: Sequence[Column]) -> None:
    """The brief columns, as a terminal shows them: a row each, so that many fit."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    brief = [column for column in table if column.brief]
    names = [cell.text for cell in brief[0].cells]
    shown.add_column("")
    for name in names:
        shown.add_column(name, justify="right", overflow="fold")
    for column in brief[1:]:
        shown.add_row(column.title, *(Text(cell.text) for cell in column.cells))
    Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else 240).print(shown)


def to_csv(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """A line for each protocol, a column for each number: `accuracy_mean`, `accuracy_sd`, `accuracy_n`, ..."""
    rows = [
        {"_".join(filter(None, [column.key, end])): value
         for column in table for end, value in column.cells[place].values.items() if value is not None}
        for place in range(len(everyone))
    ]  # fmt: skip
    text = io.StringIO()
    ends = [(column.key, end) for column in table for cell in column.cells for end in cell.values]
    names = dict.fromkeys("_".join(filter(None, pair)) for pair in ends)
    writer = csv.DictWriter(text, list(names), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_json(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """Everything: question, warnings, numbers and gaps of each protocol, its runs with their folders and leaks."""
    protocols = [
        {
            "name": each.name,
            "numbers": {column.key: dict(column.cells[place].values) for column in table[1:]},
            "missing": {column.key: cell.why for column in table if (cell := column.cells[place]).why},
            "verdicts": verdicts_of(each),
            "runs": [
                {"seed": run.seed, "folder": str(run.folder), "digest": run.summary.digest,
                 **run.result.to_plain(for_json=True), "leaks": [vars(leak) for leak in leaks_of(run)]}
                for run in each.runs
            ],
        }
        for place, each in enumerate(everyone)
    ]  # fmt: skip
    return json.dumps(_plain({**about, "level": LEVEL, "protocols": protocols}), indent=2) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else json_ready(value)


def to_markdown(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """A table of the brief columns, below it verdicts, warnings and why there are dashes."""
    brief = [column for column in table if column.brief]
    rows = [[column.title for column in brief], ["---" if column.text else "---:" for column in brief]]
    rows += [[column.cells[place].text for column in brief] for place in range(len(everyone))]
    lines = ["| " + " | ".join(_in_markdown(cell) for cell in row) + " |" for row in rows]
    for title, sentences in _below(table, everyone, about):
        lines += ["", f"{title}:", "", *(f"* {_in_markdown(sentence)}" for sentence in sentences)]
    return "\n".join(lines) + "\n"


def to_latex(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """A tabular of the brief columns for the package booktabs; the rest as comments."""
    brief = [column for column in table if column.brief]
    lines = [f"% {_one_line(sentence)}" for title, found in _below(table, everyone, about)
             for sentence in (f"{title}:", *found)]  # fmt: skip
    lines += [
        f"\\begin{{tabular}}{{{''.join('l' if column.text else 'r' for column in brief)}}}",
        "\\toprule",
        " & ".join(_in_latex(column.title) for column in brief) + " \\\\",
        "\\midrule",
        *(" & ".join(_in_latex(column.cells[place].text) for column in brief) + " \\\\"
          for place in range(len(everyone))),
        "\\bottomrule",
        "\\end{tabular}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _below(
    table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]
) -> list[tuple[str, Sequence[str]]]:
    brief = [column for column in table if column.brief]
    verdicts = [f"{each.name}: {verdict}" for each in everyone for verdict in verdicts_of(each)]
    found: list[tuple[str, Sequence[str]]] = [
        ("Question", [about["question"]] if about["question"] else []), ("Verdicts", verdicts),
        ("Not comparable", about["warnings"]), ("Why there are dashes", reasons(brief)),
    ]  # fmt: skip
    return [(title, sentences) for title, sentences in found if sentences]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _in_markdown(text: str) -> str:
    return _one_line(text).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "ε": r"$\varepsilon$", "–": "--",
    "∞": r"$\infty$", "<": "$<$", ">": "$>$",
}  # fmt: skip


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


Writer = Callable[[Sequence[Column], Sequence[Compared], Mapping[str, Any]], str]
FORMATS: dict[str, tuple[str, Writer]] = {
    "csv": ("compare.csv", to_csv),
    "json": ("compare.json", to_json),
    "latex": ("compare.tex", to_latex),
    "markdown": ("compare.md", to_markdown),
}
"""By name: the file that a comparison writes, and what writes it."""

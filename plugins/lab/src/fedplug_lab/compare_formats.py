"""The table of a comparison as text: for a terminal, and as CSV, JSON, LaTeX and Markdown.

Where people read, numbers are rows and protocols columns; of many protocols there are several tables below each other.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedplug.api.records import json_ready

from fedplug_lab.comparable import ACCURACY, HEADINGS
from fedplug_lab.compare_table import Cell, Column, reasons, verdicts_of
from fedplug_lab.compared import Compared
from fedplug_lab.intervals import LEVEL
from fedplug_lab.leakage import leaks_of

MOST = 5
"""Protocols in one table: as many as fit side by side on a laptop and on paper."""
BEST = "the best of its row, and all that the spread over seeds does not distinguish from it"
"""The meaning of the mark on a number."""
_WIDEST, _TITLES, _PIPE = 34, 36, 240  # letters of a column, of the titles, and of a line that no terminal bounds


def side_by_side(table: Sequence[Column], most: int = MOST) -> list[list[Column]]:
    """The table in pieces of at most `most` protocols, each about as wide as the others."""
    count = len(table[0].cells)
    size = math.ceil(count / math.ceil(count / most))
    return [
        [dataclasses.replace(column, cells=column.cells[start : start + size]) for column in table]
        for start in range(0, count, size)
    ]


def grouped(table: Sequence[Column]) -> Iterator[tuple[str, list[Column]]]:
    """The numbers under the headings of their groups; what heads the table has none."""
    for group, columns in itertools.groupby(table[1:], key=lambda column: column.group):
        found = list(columns)
        # What a task is judged by is called after the figure that leads, which comes first.
        yield heading(found[0].title) if group == ACCURACY else HEADINGS.get(group, ""), found


def heading(title: str) -> str:
    """A title with a capital letter; one such as `mean IoU` or `R2` keeps the others."""
    return title[:1].upper() + title[1:]


def brief(table: Sequence[Column]) -> list[Column]:
    """What fits in a terminal or a paper."""
    return [column for column in table if column.brief]


def words(cell: Cell) -> str:
    """All that is said of a number in one line."""
    between = ", " if cell.values.get("state") in ("guaranteed", "weak") else ": "
    return f"{cell.text}{between}{cell.note}" if cell.note else cell.text


def print_table(table: Sequence[Column]) -> None:
    """The brief table, as a terminal shows it: a row for each number, in groups."""
    from rich.console import Console
    from rich.text import Text

    from fedplug_lab.terminal import Rows, whole

    console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _PIPE)
    room = max(1, (console.width - _TITLES) // _WIDEST)
    for piece in side_by_side(brief(table), min(MOST, room)):
        rows = []
        for heading, columns in grouped(piece):
            if heading:
                rows.append([Text(heading, "bold")])
            for column in columns:
                title = Text(f"  {column.title}" if heading else column.title)
                rows.append([title, *map(_in_terminal, column.cells)])
        console.print(Rows(["", *(cell.text for cell in piece[0].cells)], rows, most=_WIDEST), crop=False)
    if any(cell.best for column in brief(table) for cell in column.cells):
        console.print(whole(Text(f"* {BEST}", "dim")), crop=False)


def _in_terminal(cell: Cell) -> Any:
    from rich.text import Text

    return Text(f"{words(cell)} *", "bold") if cell.best else Text(words(cell))


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
    """Everything: sentences, warnings; of each protocol numbers, gaps, best values, and runs with their leaks."""
    protocols = [
        {
            "name": each.name,
            "numbers": {column.key: dict(column.cells[place].values) for column in table[1:]},
            "missing": {column.key: cell.why for column in table if (cell := column.cells[place]).why},
            "best": [column.key for column in table if column.cells[place].best],
            "verdicts": verdicts_of(each),
            "runs": [
                {"seed": run.seed, "folder": str(run.folder), "digest": run.summary.digest,
                 "lines": [line.to_plain(for_json=True) for line in run.ledger.verdict.lines],
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
    """The sentences, the brief table in groups, below it verdicts, warnings and why there are dashes."""
    lines = [_in_markdown(sentence) for sentence in about["summary"]]
    for piece in side_by_side(brief(table)):
        rows = [["", *(cell.text for cell in piece[0].cells)], ["---"] * (1 + len(piece[0].cells))]
        for heading, columns in grouped(piece):
            rows += [[f"**{heading}**", *[""] * len(piece[0].cells)]] if heading else []
            rows += [[column.title, *map(_bold, column.cells)] for column in columns]
        lines += ["", *("| " + " | ".join(_in_markdown(cell) for cell in row) + " |" for row in rows)]
    lines += ["", f"Bold: {BEST}."] if any(cell.best for column in brief(table) for cell in column.cells) else []
    for title, sentences in _below(table, everyone, about):
        lines += ["", f"{title}:", "", *(f"* {_in_markdown(sentence)}" for sentence in sentences)]
    return "\n".join(lines) + "\n"


def _bold(cell: Cell) -> str:
    return f"**{words(cell)}**" if cell.best else words(cell)


def to_latex(table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]) -> str:
    """The brief table in groups for the package booktabs; the rest as comments. Its columns of words break lines."""
    found: list[tuple[str, Sequence[str]]] = [("In words", about["summary"]), *_below(table, everyone, about)]
    lines = [f"% {_one_line(sentence)}" for title, said in found for sentence in (f"{title}:", *said)]
    for piece in side_by_side(brief(table)):
        count = len(piece[0].cells)
        lines += [
            f"\\begin{{tabular}}{{l*{{{count}}}{{p{{{0.75 / count:.2f}\\textwidth}}}}}}",
            "\\toprule",
            " & ".join(["", *(_in_latex(cell.text) for cell in piece[0].cells)]) + " \\\\",
        ]
        for heading, columns in grouped(piece):
            over = f"\\multicolumn{{{count + 1}}}{{l}}{{\\textit{{{heading}}}}} \\\\"
            lines += ["\\midrule", over] if heading else []
            rows = [[_in_latex(column.title), *map(_strong, column.cells)] for column in columns]
            lines += [" & ".join(row) + " \\\\" for row in rows]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def _strong(cell: Cell) -> str:
    return f"\\textbf{{{_in_latex(words(cell))}}}" if cell.best else _in_latex(words(cell))


def _below(
    table: Sequence[Column], everyone: Sequence[Compared], about: Mapping[str, Any]
) -> list[tuple[str, Sequence[str]]]:
    verdicts = [f"{each.name}: {verdict}" for each in everyone for verdict in verdicts_of(each)]
    found: list[tuple[str, Sequence[str]]] = [
        ("Question", [about["question"]] if about["question"] else []), ("Verdicts", verdicts),
        ("Not comparable", about["warnings"]), ("Why numbers and guarantees are missing", reasons(brief(table))),
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

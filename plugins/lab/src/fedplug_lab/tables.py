"""Plain data as HTML: text, lists, tables with captions. Every string is escaped here and nowhere else."""

from __future__ import annotations

import html
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug_runs import units

from fedplug_lab.canvas import ZONE_COLOURS
from fedplug_lab.words import UNBROKEN, capital, in_words, is_name

_TAG = re.compile("<[^>]*>")
_LONG = 40
_INLINE = 12  # a longer list of plain values is folded away


def text(value: Any) -> str:
    """The value as escaped text, for element content and quoted attributes."""
    return html.escape(str(value))


def sentence(words: str) -> str:
    """A sentence as HTML in which no line ends inside a number."""
    # Every second piece is what was matched.
    pieces = [text(piece) for piece in UNBROKEN.split(words)]
    return "".join(f'<span class="whole">{piece}</span>' if i % 2 else piece for i, piece in enumerate(pieces))


def title_of(key: Any) -> str:
    """A heading for a key: `never_covered` is `Never covered`, `he` is `HE`."""
    words = in_words(key)
    return words.upper() if len(words) <= 2 else capital(words)


def bullets(lines: Sequence[str]) -> str:
    """A list of warnings and such, from HTML; nothing for none."""
    return f'<ul class="warnings">{"".join(f"<li>{line}</li>" for line in lines)}</ul>' if lines else ""


def again(command: str) -> str:
    """The command that does it again; nothing where there is none."""
    return f"<h3>Do it again</h3><pre><code>{text(command)}</code></pre>" if command else ""


def report_link(run_dir: Path, here: Path, words: str) -> str:
    """HTML that leads to the report of a run, seen from a folder; without a report the words alone."""
    report = run_dir / "report.html"
    return f'<a href="{text(os.path.relpath(report, here))}">{words}</a>' if report.is_file() else words


def zone_label(name: str) -> str:
    """The text, with the swatch of its colour where it names a zone."""
    if name not in ZONE_COLOURS:
        return text(name)
    return f'<span class="zone"><span class="key" style="--c:{ZONE_COLOURS[name]}"></span>{text(name)}</span>'


def render(value: Any, caption: str = "") -> str:
    """Any plain data as HTML: mappings of mappings and lists of mappings become a table, the rest lists and text.

    Tables do not nest: what is deeper than one becomes lists in its cells.
    """
    if isinstance(value, Mapping) and value and all(isinstance(inner, Mapping) for inner in value.values()):
        return _records([{"": in_words(key), **inner} for key, inner in value.items()], caption)
    if isinstance(value, list | tuple) and value and all(isinstance(inner, Mapping) for inner in value):
        return _records(value, caption)
    return _cell(value)


def _records(records: Sequence[Mapping[str, Any]], caption: str) -> str:
    """Records as one table with the union of their keys: a row a record, or a row a key where those are many."""
    keys = list(dict.fromkeys(key for record in records for key in record))
    body = [[_cell(record[key]) if key in record else units.NOTHING for key in keys] for record in records]
    header = [in_words(key) for key in keys]
    if len(keys) > 8 and len(records) <= 4:
        columns = list(zip(*body, strict=True))
        body = [[text(title), *cells] for title, cells in zip(header[1:], columns[1:], strict=True)]
        return table(caption or header[0], ["", *(in_words(next(iter(record.values()))) for record in records)], body)
    count = f"{len(records)} {'entry' if len(records) == 1 else 'entries'}"
    return table(caption or count, header, body)


def _cell(value: Any) -> str:
    if value is None:
        return units.NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        items = "".join(f"<dt>{text(in_words(key))}</dt><dd>{_cell(inner)}</dd>" for key, inner in value.items())
        return f'<dl class="facts">{items}</dl>' if items else units.NOTHING
    if isinstance(value, list | tuple):
        return _list(value)
    return "∞" if value == "inf" else text(in_words(value)) if is_name(str(value)) else zone_label(str(value))


def _number(value: float) -> str:
    if not math.isfinite(value):
        return units.number(value)
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(int(value))
    return f"{value:.6g}"


def _list(values: Sequence[Any]) -> str:
    if not values:
        return "none"
    if any(isinstance(value, Mapping | list | tuple) for value in values) or max(len(str(v)) for v in values) > 40:
        return f"<ul>{''.join(f'<li>{_cell(value)}</li>' for value in values)}</ul>"
    joined = ", ".join(map(_cell, values))
    if len(values) <= _INLINE:
        return joined
    return f"<details><summary>{len(values)} values</summary>{joined}</details>"


def _length(cell: str) -> str:
    """Marks a cell that holds sentences, for which a column must not become too narrow."""
    return ' class="long"' if len(_TAG.sub("", cell)) > _LONG else ""


def table_of_sides(caption: str, sides: Sequence[str], rows: Sequence[str | Sequence[str]]) -> str:
    """A table that sets a few things side by side and fits any page: nothing scrolls, long words break.

    Args:
        caption: text; empty for none.
        sides: what is set side by side, as text.
        rows: of each what it is about and a cell a side, as HTML; or a whole row, such as a heading of a group.
    """
    head = "".join(f'<th scope="col">{text(side)}</th>' for side in sides)
    body = "".join(
        row if isinstance(row, str) else f'<tr><th scope="row">{row[0]}</th>' + "".join(
            f'<td data-of="{text(side)}">{cell}</td>' for side, cell in zip(sides, row[1:], strict=True)) + "</tr>"
        for row in rows
    )  # fmt: skip
    said = f"<caption>{text(caption)}</caption>" if caption else ""
    return f'<table class="sides">{said}<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>\n'


def table(
    caption: str, header: Sequence[str], body: Sequence[Sequence[str]], *, numeric: bool | int = False,
    whole: bool = False,
) -> str:  # fmt: skip
    """A table with caption and header cells; nothing for an empty body. Cells are HTML already, header is text.

    `numeric` says from which column on values are right-aligned; True means all but the first. One that is `whole` is
    not scrolled on a page that is wide enough for it.
    """
    if not body:
        return ""
    first = len(header) if numeric is False else int(numeric)
    kind = [' class="num"' if i >= first else "" for i in range(len(header))]
    head = "".join(f'<th scope="col"{kind[i]}>{text(title)}</th>' for i, title in enumerate(header))
    wide = ' class="wide"' if len(header) > 9 else ""
    rows = []
    for cells in body:
        inner = "".join(f"<td{kind[i] or _length(cell)}>{cell}</td>" for i, cell in enumerate(cells) if i)
        rows.append(f'<tr><th scope="row">{cells[0]}</th>{inner}</tr>')
    # The box can be scrolled with the keyboard, hence its place in the tab order. Of a table that is wider, the caption
    # stays in sight.
    kinds = "scroll whole-table" if whole else "scroll"
    said = f"<caption><span>{text(caption)}</span></caption>" if caption else ""
    return (f'<div class="{kinds}" tabindex="0"><table{wide}>{said}'
            f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>\n")  # fmt: skip

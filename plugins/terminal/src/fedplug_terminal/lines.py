"""Text in a terminal: every line ends between words, and a table without room becomes a list of `name: value` lines.

A terminal itself would end a line inside a word or a number. What is not a terminal gets whole lines.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

GAP = 2
"""Blanks between columns."""
_READABLE = 24
"""Characters that a column of sentences needs."""
_ITEM = re.compile(r"(?:[*-]|\d+\.) |[\w.*, ]+: ")


def width_of(stream: TextIO) -> int | None:
    """Columns of a terminal; None for all else."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def folded(text: str, stream: TextIO) -> str:
    """A text for a terminal, each line on its own: it continues two blanks further in. For all else as it is."""
    columns = width_of(stream)
    return text if columns is None else "\n".join(wrapped(line, columns) for line in text.split("\n"))


def wrapped(line: str, columns: int, onward: str | None = None) -> str:
    """One line in lines that end between words.

    Args:
        onward: what the lines after the first begin with; by default two blanks more than the first has.
    """
    if len(line) <= columns:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(), columns, initial_indent=indent, subsequent_indent=indent + "  " if onward is None else onward,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def documented(text: str, columns: int | None) -> str:
    """A docstring with its paragraphs, lists and arguments filled anew, if a line of it is too long."""
    if columns is None or all(len(line) <= columns for line in text.splitlines()):
        return text
    return "\n".join(
        wrapped(part, columns, part[: len(part) - len(part.lstrip())] + ("  " if _ITEM.match(part.lstrip()) else ""))
        for part in _parts(text)
    )


def _parts(text: str) -> Iterator[str]:
    """Paragraphs, items and arguments, each in one line; lines of examples one by one."""
    part, example = "", False
    for line in text.splitlines():
        inward, said = len(line) - len(line.lstrip()), line.strip()
        if not said:
            example = False
        elif not part and inward:
            example = True
        begins = not said or example or _ITEM.match(said) or part.endswith(":")
        if part and not begins and inward >= len(part) - len(part.lstrip()):
            part = f"{part} {said}"
            continue
        if part:
            yield part
        if not said:
            yield ""
        part = line.rstrip() if said else ""
    if part:
        yield part


def longest_word(texts: Sequence[str]) -> int:
    """Length of the longest word in any of them."""
    return max((len(word) for text in texts for word in text.split()), default=0)


def aligned(titles: Sequence[str], rows: Sequence[Sequence[str]], columns: int | None) -> Iterator[str]:
    """A table whose last column has as many lines as it needs; without room for that, `name: value` lines for each row.

    Args:
        titles: of the columns; empty: the table has no head.
        rows: texts.
        columns: of the terminal; None: whole lines.
    """
    table = [titles, *rows] if titles else [*rows]
    if not table:
        return
    widths = [max(map(len, column)) for column in list(zip(*table, strict=True))[:-1]]
    indent, last = sum(widths) + GAP * len(widths), [row[-1] for row in table]
    needed = max(longest_word(last), min(_READABLE, max(map(len, last))))
    if columns is not None and indent + needed > columns:
        for row in rows:
            yield from record(titles, row, columns)
        return
    for *cells, text in table:
        line = "".join(f"{cell:<{width + GAP}}" for cell, width in zip(cells, widths, strict=True)) + text
        if columns is None or len(line) <= columns:
            yield line.rstrip()
        else:
            first, *rest = textwrap.wrap(text, columns - indent, break_on_hyphens=False, break_long_words=False)
            yield line[:indent] + first
            yield from (" " * indent + each for each in rest)


def record(titles: Sequence[str], row: Sequence[str], columns: int) -> Iterator[str]:
    """A row as lines: its first text, and indented `name: value` for each other that is not empty."""
    names = [f"{title}: " for title in titles] or [""] * len(row)
    first, *others = [(name, text.rstrip()) for name, text in zip(names, row, strict=True) if text.strip()]
    indent = first[1][: len(first[1]) - len(first[1].lstrip())]
    yield wrapped(first[1], columns)
    for name, text in others:
        yield wrapped(f"{indent}  {name}{text}", columns)


def tell(text: str, stream: TextIO | None = None) -> None:
    """Prints lines that end between words, by default to the standard output."""
    stream = stream or sys.stdout
    print(folded(text, stream), file=stream)

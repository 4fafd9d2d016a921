"""Tables in a terminal that never break a word: without room for their columns they become `name: value` lines."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Sequence

from fedplug_terminal.lines import GAP, longest_word
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

_TITLE, _NAME = "bold", "dim"
_PIPE = 240  # letters of a line that no terminal bounds


def console() -> Console:
    """Where tables are printed, with `crop=False`. A program that reads a pipe wants whole lines."""
    return Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _PIPE)


@dataclasses.dataclass
class Rows:
    """Rows of texts in columns that are as wide as their longest words need.

    Attributes:
        titles: of the columns; empty: the table has no head, and its rows without room are lines of their texts.
        rows: the cells; a row may be shorter than others.
        right: columns whose cells end at the right.
        solid: columns whose cells stay in one line.
        most: the widest that a column gets, unless its longest word needs more; 0: any width.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[Text]]
    right: Iterable[int] = ()
    solid: Iterable[int] = ()
    most: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.rows and not self.titles:
            return
        if (widths := self.widths(options.max_width)) is not None:
            yield self._table(widths)
        else:
            for row in self.rows:
                yield from self._record(row)

    def widths(self, room: int) -> list[int] | None:
        """The width of each column in a terminal with this room; None: the longest words do not fit."""
        columns, solid = self._columns(), {*self.solid}
        wished = [max(map(len, column), default=0) for column in columns]
        widths = [wish if place in solid else longest_word(column)
                  for place, (column, wish) in enumerate(zip(columns, wished, strict=True))]  # fmt: skip
        if self.most:
            wished = [max(least, min(wish, self.most)) for least, wish in zip(widths, wished, strict=True)]
        left = room - sum(widths) - GAP * max(0, len(widths) - 1)
        if left < 0:
            return None
        while short := [place for place, wish in enumerate(wished) if widths[place] < wish][:left]:
            for place in short:
                widths[place] += 1
            left -= len(short)
        return widths

    def _columns(self) -> list[list[str]]:
        count = max([len(self.titles), *map(len, self.rows)], default=0)
        given = [[Text(title) for title in self.titles], *self.rows]
        return [
            [line for row in given if place < len(row) for line in row[place].plain.split("\n")]
            for place in range(count)
        ]  # fmt: skip

    def _table(self, widths: Sequence[int]) -> Table:
        # Gaps are columns: releases of rich differ in whether the padding of the last column counts.
        table = Table(box=None, padding=0, pad_edge=False, header_style=_TITLE, show_header=bool(self.titles))
        titles = [*self.titles, *[""] * (len(widths) - len(self.titles))]
        right = {*self.right}
        for place, (title, width) in enumerate(zip(titles, widths, strict=True)):
            if place:
                table.add_column("", width=GAP)
            table.add_column(Text(title), width=width, justify="right" if place in right else "left")
        for row in self.rows:
            cells = [*row, *[Text()] * (len(widths) - len(row))]
            table.add_row(cells[0], *(each for cell in cells[1:] for each in (Text(), cell)))
        return table

    def _record(self, row: Sequence[Text]) -> Iterable[RenderableType]:
        names = [*self.titles, *[""] * (len(row) - len(self.titles))]
        first = True
        for name, cell in zip(names, row, strict=False):
            if cell.plain.strip():
                before = "" if first else "  "
                said = Text.assemble((f"{before}{name.strip()}: " if name.strip() else before, _NAME), cell)
                yield Whole(said, "" if first else "    ")
                first = False


@dataclasses.dataclass
class Whole:
    """A text in lines that end between words, also where one word is longer than a line. Print it with `crop=False`.

    `onward` begins the lines after the first.
    """

    text: Text
    onward: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(1, options.max_width - len(self.onward))
        # Not by `wrap` of rich, which either breaks a long word or keeps the whole text in one line.
        for line in self.text.split(allow_blank=True):
            for place, part in enumerate(line.divide(_breaks(line.plain, room))):
                part.rstrip()
                yield Text.assemble(self.onward if place else "", part, no_wrap=True, overflow="ignore")


def _breaks(line: str, room: int) -> Iterable[int]:
    """Where the further lines of a text begin."""
    used = 0
    for found in re.finditer(r"\s*(\S+)\s*", line):
        if used and used + len(found[0].rstrip()) > room:
            yield found.start(1)
            used = 0
        used += len(found[0])

"""The live picture of a run in a terminal: rounds, the current phase, the last rows, the time left.

The accuracy of a round travels with the next round's first message, so a round's row arrives when the next round has
begun. The picture therefore keeps what is finished (a table of rows) apart from what is going on (a line for the
current phase), and lists rounds in between as waiting for their accuracy.

`phase` is called for every client of every phase; it only stores four values. The picture is redrawn from them by
rich's own thread, a few times a second, whatever the number of calls.
"""

from __future__ import annotations

import abc
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.data import ACCURACY
from fedplug_ledger.verdict import Verdict
from fedplug_runs import units
from fedplug_runs.onward import resume_command
from fedplug_runs.pace import Pace
from fedplug_runs.row_text import best_of, cells, grouped_title, thin_out, totals
from fedplug_runs.rows import Row
from fedplug_runs.shown import interruption
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedplug_lab.terminal import Rows, Whole

_WAITING = "on its way"
_GAP = 2  # blanks between columns
_LAST_ROWS = 40
"""A table of so many rounds is still read; of more rounds, it shows some."""
_OPTIONAL = {"personal mean", "fine-tuned mean", "simulated"}
"""Columns that belong to few recipes; a table without a number there does without them."""
_LEAST_FIRST = (
    "on all classes", "time", "simulated", "sealed", "down", "up", "loss", "clients", "epsilon", "fine-tuned mean",
    "personal mean",
)  # fmt: skip
"""Columns that a narrow terminal drops, in this order, before figures of the task."""


def terminal() -> Console | None:
    """Where to draw a picture that moves: this process's terminal; None where there is none."""
    # Not `console.is_terminal`: FORCE_COLOR, as continuous integration sets it, would turn a log file into a terminal.
    if not sys.stdout.isatty():
        return None
    console = Console()
    return None if console.is_dumb_terminal else console


def make_display() -> LiveDisplay | None:
    """The live picture, where this process's standard output is a terminal that can draw it."""
    console = terminal()
    return None if console is None else LiveDisplay(console)


class Picture(abc.ABC):
    """A picture that is redrawn in place, with lines that stay above it.

    Args:
        console: where to draw.
        clock: seconds, monotonic; for tests.
        refresh: redraws a second; 0 redraws only when `redraw` is called.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, refresh: float = 8) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._live = Live(get_renderable=self.picture, console=console, auto_refresh=refresh > 0,
                          refresh_per_second=refresh or 1, transient=True)  # fmt: skip

    @abc.abstractmethod
    def picture(self) -> RenderableType:
        """The state as rich draws it."""

    def note(self, text: str) -> None:
        self._console.print(Whole(Text.assemble(("note ", "yellow"), text), "  "), crop=False)

    def close(self) -> None:
        self._live.stop()

    def redraw(self) -> None:
        """Draws now, where nobody draws in the background."""
        if self._live.is_started and not self._live.auto_refresh:
            self._live.refresh()

    def path(self, label: str, path: str) -> None:
        """A path or a command on a separate line: never wrapped, so that it survives copy and paste."""
        self._console.print(Text.assemble((label, "bold"), path), soft_wrap=True)


def known_facts(facts: Mapping[str, Any]) -> RenderableType:
    """Facts to show at the start, a line each. Print it with `crop=False`."""
    return Rows((), [(Text(str(key), "dim"), Text(str(value))) for key, value in facts.items()])


def progress(pace: Pace, width: int, whole: str, parts: str, said: str = "") -> Table:
    """How far all is, with the time that is left, and below it how far the current phase is.

    Args:
        pace: of what goes on.
        width: of the terminal.
        whole: what there are several of, such as `round`.
        parts: of what each phase has several, such as `clients`.
        said: more on the current phase.
    """
    grid, now = Table.grid(padding=(0, 2)), pace.now
    planned, left = pace.planned or 0, pace.left()
    size = min(30, max(0, width - 50))
    bar = ProgressBar(total=max(planned, 1), completed=pace.rounds_done(), width=size)
    current = min(now.round or 1, planned or now.round)
    title = f"{whole} {current} of {planned}" if planned else f"{whole} {current}"
    rest = "" if left is None else f", about {clock_time(left)} left" if width >= 60 else f", {clock_time(left)} left"
    so_far = f"{clock_time(pace.so_far())} so far" if width >= 60 else clock_time(pace.so_far())
    _add_bar(grid, size, Text(title, "bold"), bar, f"{so_far}{rest}")
    counted = f"{now.done} of {now.total} {parts}" if now.total > 1 else ""
    pulse = now.total <= 1
    bar = ProgressBar(total=None if pulse else now.total, completed=now.done, width=size, pulse=pulse)
    _add_bar(grid, size, Text(now.phase, "cyan"), bar, ", ".join(filter(None, [counted, said])))
    return grid


def _add_bar(grid: Table, size: int, title: Text, bar: ProgressBar, words: str) -> None:
    """A line of a grid: what, how far, and how far in words; a bar that is too short says nothing and is left out."""
    said = Text(words, "dim")
    grid.add_row(*((title, bar, said) if size >= 8 else (title, said)))


class LiveDisplay(Picture):
    """Rounds, the current phase, the last rows, the time left; for the arguments see `Picture`."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, refresh: float = 8) -> None:
        self._facts: Mapping[str, Any] = {}
        self.pace = Pace(clock)
        self._rows: list[Row] = []
        super().__init__(console, clock, refresh)  # draws the first picture

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)
        self.pace.start(self._facts.get("rounds"))
        steps = Rows(
            ("hook", "component", "what it does here"),
            [(Text(hook, "cyan"), Text(component), Text(text, "dim")) for hook, component, text in plan],
        )
        self._console.print(Group(known_facts(facts), Text(), steps, Text()), crop=False)
        self._live.start()

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        self.pace.phase(round, phase, done, total)

    def round_done(self, row: Row) -> None:
        self._rows.append(row)
        self.redraw()

    def finish(self, rows: Sequence[Row], verdict: Verdict, pages: Sequence[Path], run_dir: Path) -> None:
        self.close()
        self._table(rows)
        self._console.print(Group(Text(), known_facts(totals(rows)), Text()), crop=False)
        self._console.print(verdict_table(verdict), crop=False)
        self.path("Folder   ", str(run_dir))
        for page in pages:
            self.path(f"{page.stem.capitalize():9}", str(page))

    def interrupted(self, round: int, run_dir: Path) -> None:
        self.close()
        self._table(self._rows)
        self._console.print(Whole(Text(f"{interruption(round)} To continue:")), crop=False)
        self.path("", f"  {resume_command(run_dir)}")

    def _table(self, rows: Sequence[Row]) -> None:
        shown = thin_out(rows, _LAST_ROWS, rows.index(best_of(rows)) if rows else None)
        if shown:
            self._console.print(rounds_table(shown, width=self._console.width))
        if len(shown) < len(rows):
            self._console.print(Text(f"{len(shown)} of {len(rows)} rounds; the report has all of them", "dim"))

    # ---- the picture

    def picture(self) -> RenderableType:
        """The state as rich draws it."""
        now, rows = self.pace.now, list(self._rows)
        steps = ""
        if self._console.width >= 60 and (training := self.pace.training()):
            steps = f"client {training.client_id}: step {training.done:,} of {training.steps:,}"
        parts: list[RenderableType] = [progress(self.pace, self._console.width, "round", "clients", steps)]
        # Leave room for the progress, the head of the table and the prompt in a low terminal.
        room = max(1, min(8, self._console.height - 9))
        known = {row.round for row in rows}
        waiting = [round for round in sorted(self.pace.starts) if round < now.round and round not in known]
        if rows or waiting:
            parts += [Text(), rounds_table(rows[-room:], waiting[-2:], self._console.width)]
        # The last line is empty, not blank: at the end of a full one, the terminal's ^C would begin another, and the
        # picture would be wiped one line too low.
        return Group(*parts, Text())


def rounds_table(rows: Sequence[Row], waiting: Sequence[int] = (), width: int | None = None) -> Table:
    """The rows as a table; `waiting` are rounds whose accuracy is still on its way.

    What does not fit into `width` characters is left out, column by column, the least important first.
    """
    shown = {"round": [str(row.round) for row in rows] + [str(round) for round in waiting]} | cells(rows)
    shown = {title: texts for title, texts in shown.items() if title not in _OPTIONAL or {*texts} - {units.NOTHING}}
    leads = rows[-1].leads.name if rows else ACCURACY.name
    of_groups = grouped_title(rows[-1]) if rows else ""
    if of_groups in shown and not {*shown.get(leads, [])} - {units.NOTHING}:
        shown.pop(leads, None)  # of rounds that nobody evaluated, in a run whose groups have models each
    shown.setdefault(of_groups if of_groups in shown else leads, []).extend([_WAITING] * len(waiting))
    wide = {title: max(map(len, [title, *texts])) + _GAP for title, texts in shown.items()}
    # Columns that say nothing go before any that do; of the task's figures the first stays longest.
    figures = [title for title in reversed(shown) if title not in (*_LEAST_FIRST, "round", leads, of_groups)]
    droppable = [title for title in (*_LEAST_FIRST, *figures) if title in shown]
    for title in sorted(droppable, key=lambda title: bool(set(shown[title]) - {units.NOTHING})):
        if width is not None and sum(wide.values()) - _GAP > width:
            del wide[title]
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for title in wide:
        table.add_column(title, justify="right", no_wrap=True)
    for index in range(len(rows) + len(waiting)):
        style = "dim" if index >= len(rows) else ""
        table.add_row(*(Text(shown[title][index], style) if index < len(shown[title]) else "" for title in wide))
    return table


_COLOURS: dict[str, str] = {
    "nothing": "green", "strict": "green", "moderate": "green4", "loose": "yellow", "weak": "yellow", "part": "yellow",
    "some": "yellow", "beyond": "red", "none": "red", "absent": "dim",
}  # fmt: skip
"""By tier: of those that say no more, none is in the green of those that do."""


def verdict_table(verdict: Verdict) -> RenderableType:
    """The status and a row a party, in colours; the signs and words say the same."""
    status = Text.assemble((f"{verdict.opening}.", f"bold {_COLOURS[verdict.tier]}"), f" {verdict.headline}")
    lines = []
    for line in verdict.lines:
        colour = _COLOURS[line.tier]
        mark, said = Text(f"{line.mark} {line.who}", colour), Text(line.guarantee, colour)
        why = "\n".join(part for part in (line.rest, f"sees {line.sees}" if line.sees else "") if part)
        lines.append((mark, said, Text(why, "dim" if line.state == "absent" else "")))
    caveat = [Whole(Text(verdict.caveat))] if verdict.caveat else []
    return Group(Text(), Whole(status), Rows((), lines, solid=[0]), *caveat, Text())


def clock_time(seconds: float) -> str:
    """`0:41`, `12:05`, `1:02:03`: a time that does not jump about while it is being redrawn."""
    whole = max(0, int(seconds))
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes:>05}" if whole >= 3600 else minutes

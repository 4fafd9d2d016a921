"""The live picture of a run in a terminal: rounds, the current phase, the last rows, the time left.

The accuracy of a round travels with the next round's first message, so a round's row arrives when the next round has
begun. The picture therefore keeps what is finished (a table of rows) apart from what is going on (a line for the
current phase), and lists rounds in between as waiting for their accuracy.

`phase` is called for every client of every phase; it only stores four values. The picture is redrawn from them by
rich's own thread, a few times a second, whatever the number of calls.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedplug import units
from fedplug.display import COLUMNS, Row, interruption, resume_command, thin_out, totals


@dataclasses.dataclass
class _Now:
    """What is going on."""

    round: int = 0
    phase: str = "starting"
    done: int = 0
    total: int = 0


class LiveDisplay:
    """A picture that is redrawn in place: rounds, the current phase, the last rows, the time left.

    Args:
        console: where to draw.
        clock: seconds, monotonic; for tests.
        refresh: redraws a second; 0 redraws only when a row arrives.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, refresh: float = 8) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._facts: Mapping[str, Any] = {}
        self._now = _Now()
        self._starts: dict[int, float] = {}  # when the first phase of each round was seen
        self._rows: list[Row] = []
        self._live = Live(get_renderable=self.picture, console=console, auto_refresh=refresh > 0,
                          refresh_per_second=refresh or 1, transient=True)  # fmt: skip

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        self._facts, self._began = dict(facts), self._clock()
        steps = Table("hook", "component", "what it does here", box=None, header_style="bold", pad_edge=False)
        for hook, component, text in plan:
            steps.add_row(Text(hook, "cyan"), Text(component), Text(text, "dim"))
        known = Table.grid(padding=(0, 2))
        for key, value in facts.items():
            known.add_row(Text(str(key), "dim"), Text(str(value), overflow="fold"))
        self._console.print(Group(known, Text(), steps, Text()))
        self._live.start()

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        if round not in self._starts:
            self._starts[round] = self._clock()
        # One assignment, so that the drawing thread never sees half of it.
        self._now = _Now(round, phase, done, total)

    def round_done(self, row: Row) -> None:
        self._rows.append(row)
        if self._live.is_started and not self._live.auto_refresh:
            self._live.refresh()

    def note(self, text: str) -> None:
        self._console.print(Text.assemble(("note ", "yellow"), text))

    def finish(self, rows: Sequence[Row], verdict: str, report: Path, run_dir: Path) -> None:
        self.close()
        facts = Table.grid(padding=(0, 2))
        for label, value in totals(rows).items():
            facts.add_row(Text(label, "dim"), Text(value))
        self._table(rows)
        self._console.print(Group(Text(), facts, Text()))
        self._console.print(Text.assemble(("Verdict  ", "bold"), verdict))
        self._path("Folder   ", str(run_dir))
        self._path("Report   ", str(report))

    def interrupted(self, round: int, run_dir: Path) -> None:
        self.close()
        self._table(self._rows)
        self._console.print(Text(f"{interruption(round)} To go on:"))
        self._path("", f"  {resume_command(run_dir)}")

    def close(self) -> None:
        self._live.stop()

    def _table(self, rows: Sequence[Row]) -> None:
        shown = thin_out(rows, 12)
        if shown:
            self._console.print(rounds_table(shown))
        if len(shown) < len(rows):
            self._console.print(Text(f"{len(shown)} of {len(rows)} rounds; the report has all of them", "dim"))

    def _path(self, label: str, path: str) -> None:
        # Never wrapped: a path or command must survive copy and paste.
        self._console.print(Text.assemble((label, "bold"), path), soft_wrap=True)

    # ---- the picture

    def picture(self) -> RenderableType:
        """The state as rich draws it."""
        now, rows = self._now, list(self._rows)
        parts: list[RenderableType] = [self._progress(now, rows)]
        # Leave room for the progress, the head of the table and the prompt in a low terminal.
        room = max(1, min(8, self._console.height - 9))
        known = {row.get("round") for row in rows}
        waiting = [round for round in sorted(self._starts) if round < now.round and round not in known]
        if rows or waiting:
            parts += [Text(), rounds_table(rows[-room:], waiting[-2:])]
        return Padding(Group(*parts), (0, 0, 1, 0))

    def _progress(self, now: _Now, rows: list[Row]) -> Table:
        grid = Table.grid(padding=(0, 2))
        planned = int(units.as_float(self._facts.get("rounds") or 0) or 0)
        left = self.seconds_left()
        bar = ProgressBar(total=max(planned, 1), completed=self.rounds_done(), width=30)
        current = min(now.round or 1, planned or now.round)
        title = f"round {current} of {planned}" if planned else f"round {current}"
        rest = f", about {clock_time(left)} left" if left is not None else ""
        grid.add_row(Text(title, "bold"), bar, Text(f"{clock_time(self._clock() - self._began)} so far{rest}", "dim"))
        counted = f"{now.done} of {now.total} clients" if now.total > 1 else ""
        pulse = now.total <= 1
        bar = ProgressBar(total=None if pulse else now.total, completed=now.done, width=30, pulse=pulse)
        grid.add_row(Text(now.phase, "cyan"), bar, Text(counted, "dim"))
        return grid

    def seconds_per_round(self) -> float | None:
        """Mean over the last five whole rounds; None before the first one is over."""
        starts = [self._starts[round] for round in sorted(self._starts)][-6:]
        return (starts[-1] - starts[0]) / (len(starts) - 1) if len(starts) > 1 else None

    def seconds_left(self) -> float | None:
        """Expected time to the end; None while there is nothing to go by."""
        pace, planned = self.seconds_per_round(), units.as_float(self._facts.get("rounds"))
        if pace is None or math.isnan(planned):
            return None
        current = max(self._starts)
        spent = self._clock() - self._starts[current]
        return max(0.0, pace - spent) + pace * max(0.0, planned - current)

    def rounds_done(self) -> float:
        """Rounds finished, the current one counted by the time it has taken so far."""
        current, pace = self._now.round, self.seconds_per_round()
        if current < 1:
            return 0.0
        share = min(0.95, (self._clock() - self._starts[current]) / pace) if pace else 0.0
        return current - 1 + share


def rounds_table(rows: Sequence[Row], waiting: Sequence[int] = ()) -> Table:
    """The rows as a table; `waiting` are rounds whose accuracy is still on its way."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("round", *COLUMNS):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(str(row.get("round", "?")), *(cell(row) for cell in COLUMNS.values()))
    for round in waiting:
        table.add_row(Text(str(round), "dim"), Text("on its way", "dim"))
    return table


def clock_time(seconds: float) -> str:
    """`0:41`, `12:05`, `1:02:03`: a time that does not jump about while it is being redrawn."""
    whole = max(0, int(seconds))
    minutes = f"{whole // 60 % 60}:{whole % 60:02d}"
    return f"{whole // 3600}:{minutes:>05}" if whole >= 3600 else minutes

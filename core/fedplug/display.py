"""What a person sees while a run goes on: a live picture in a terminal, plain lines everywhere else.

The accuracy of a round travels with the next round's first message, so a round's row arrives when the next round has
begun. The live display therefore keeps what is finished (a table of rows) apart from what is going on (a line for the
current phase), and lists rounds in between as waiting for their accuracy.

`phase` is called for every client of every phase; it only stores four values. The picture is redrawn from them by
rich's own thread, a few times a second, whatever the number of calls.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedplug import units

Row = Mapping[str, Any]


class Display(Protocol):
    """What the protocol tells of its progress. Every round number is 1-based."""

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        """Before anything runs: the plan as (hook, component, what it does here), and facts about the run.

        Of the facts, `name`, `rounds` and `clients` are used later; all are shown.
        """

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """`done` of `total` parties have finished this phase. Cheap; may be called thousands of times a second."""

    def round_done(self, row: Row) -> None:
        """The complete metrics of a round; may come after the next round's first phases."""

    def note(self, text: str) -> None:
        """A warning that should stay visible, such as a client that dropped out."""

    def finish(self, rows: Sequence[Row], verdict: str, report: Path, run_dir: Path) -> None:
        """The run is complete."""

    def interrupted(self, round: int, run_dir: Path) -> None:
        """The run was stopped during `round`; says how to go on."""

    def close(self) -> None:
        """Gives the terminal back. May be called more than once, also after an error."""


def make_display(quiet: bool) -> Display:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end of the run only.
    """
    console = Console()
    # Not `console.is_terminal`: FORCE_COLOR, as continuous integration sets it, would turn a log file into a terminal.
    if quiet or not sys.stdout.isatty() or console.is_dumb_terminal:
        return PlainDisplay(sys.stdout, quiet=quiet)
    return LiveDisplay(console)


class PlainDisplay:
    """One line a round, flushed at once: for logs, pipes and continuous integration."""

    def __init__(self, stream: TextIO, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._rounds: Any = None

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        self._rounds = facts.get("rounds")
        if self._quiet:
            return
        self._print(", ".join(f"{key} {value}" for key, value in facts.items()))
        widths = [max((len(step[i]) for step in plan), default=0) for i in (0, 1)]
        for hook, component, text in plan:
            self._print(f"  {hook:<{widths[0]}}  {component:<{widths[1]}}  {text}".rstrip())

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """A log needs no line for this."""

    def round_done(self, row: Row) -> None:
        if not self._quiet:
            of = f"/{self._rounds}" if self._rounds else ""
            cells = [f"{title} {cell(row)}" for title, cell in COLUMNS.items() if cell(row) != units.NOTHING]
            self._print("  ".join([f"round {row.get('round', '?')}{of}", *cells]))

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def finish(self, rows: Sequence[Row], verdict: str, report: Path, run_dir: Path) -> None:
        for label, value in totals(rows).items():
            self._print(f"{label}: {value}")
        self._print(f"verdict: {verdict}")
        self._print(f"run folder: {run_dir}")
        self._print(f"report: {report}")

    def interrupted(self, round: int, run_dir: Path) -> None:
        self._print(f"interrupted in round {round}; nothing before it is lost. To go on: {resume_command(run_dir)}")

    def close(self) -> None:
        self._stream.flush()

    def _print(self, line: str) -> None:
        # A log in another encoding than UTF-8 must not end the run at a sign it cannot hold.
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        print(line.encode(encoding, "replace").decode(encoding), file=self._stream, flush=True)


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
        self._console.print(Group(rounds_table(thin_out(rows, 12)), Text(), facts, Text()))
        self._console.print(Text.assemble(("Verdict  ", "bold"), verdict))
        self._path("Folder   ", str(run_dir))
        self._path("Report   ", str(report))

    def interrupted(self, round: int, run_dir: Path) -> None:
        self.close()
        if self._rows:
            self._console.print(rounds_table(thin_out(self._rows, 12)))
        self._console.print(Text(f"Interrupted in round {round}; nothing before it is lost. To go on:"))
        self._path("", f"  {resume_command(run_dir)}")

    def close(self) -> None:
        self._live.stop()

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
        elapsed = units.duration(int(self._clock() - self._began)) if self._began else ""
        bar = ProgressBar(total=max(planned, 1), completed=self.rounds_done(), width=30)
        title = f"round {now.round or 1} of {planned}" if planned else f"round {now.round or 1}"
        rest = f"about {units.duration(left)} left" if left is not None else "time left: known after a round"
        grid.add_row(Text(title, "bold"), bar, Text(f"{elapsed} so far, {rest}", "dim"))
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
        if pace is None or planned != planned:
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


# ---- rows as text, for both displays

COLUMNS: dict[str, Callable[[Row], str]] = {
    "accuracy": lambda row: units.number(row.get("accuracy")),
    "loss": lambda row: units.number(row.get("loss")),
    "HE": lambda row: units.percent(units.read(row, "zones", "encrypted")),
    "up": lambda row: units.size(units.read(row, "bytes", "up", "total")),
    "down": lambda row: units.size(units.read(row, "bytes", "down", "total")),
    "epsilon": lambda row: units.number(row.get("epsilon")),
    "clients": lambda row: _clients(row),
    "time": lambda row: units.duration(units.read(row, "seconds", "wall")),
}
"""Title and text of each column of a row."""


def _clients(row: Row) -> str:
    asked, answered = units.read(row, "clients", "asked"), units.read(row, "clients", "answered")
    return units.NOTHING if asked != asked or answered != answered else f"{answered:.0f}/{asked:.0f}"


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


def thin_out(rows: Sequence[Row], most: int) -> list[Row]:
    """At most `most` rows, evenly spread, with the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]


def totals(rows: Sequence[Row]) -> dict[str, str]:
    """What a whole run came to: accuracy, bytes, epsilon, time."""
    measured = [(accuracy, row) for row in rows if (accuracy := units.read(row, "accuracy")) == accuracy]
    result = {"rounds": str(len(rows))}
    if measured:
        best, row = max(measured, key=lambda pair: pair[0])
        result["accuracy"] = f"{units.number(measured[-1][0])} (best {units.number(best)} after round {row.get('round')})"
    result["bytes"] = f"{units.size(units.total(rows, 'bytes', 'up', 'total'))} up, " \
                      f"{units.size(units.total(rows, 'bytes', 'down', 'total'))} down"  # fmt: skip
    epsilon = units.last(rows, "epsilon")
    if epsilon == epsilon:
        result["epsilon"] = units.number(epsilon)
    result["time"] = units.duration(units.total(rows, "seconds", "wall"))
    return result


def resume_command(run_dir: Path) -> str:
    """The command that continues the run, ready to paste into a shell."""
    return f"fedplug resume {shlex.quote(str(run_dir))}"

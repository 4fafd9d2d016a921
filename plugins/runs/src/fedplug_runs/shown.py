"""How a run is shown: by lines, by a display of the caller's own, or in a terminal by what plugins offer.

A `Display` hears the events of a run. An entry point of the group `fedplug.display` makes one for a terminal, or gives
None where it cannot draw; the one named `plain` gets a stream, and serves what is no terminal too.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TextIO, cast

from fedplug.api.errors import SetupError
from fedplug.api.events import Event, Events, Note, ReplyArrived, RoundStarted
from fedplug.recipe.catalog import DISPLAY, installed
from fedplug_ledger.verdict import Verdict

from fedplug_runs import units
from fedplug_runs.events import RowComplete, RunFinished, RunStarted, RunStopped
from fedplug_runs.pace import TRAINING, Pace
from fedplug_runs.row_text import filled
from fedplug_runs.rows import Row

Shown = Literal["lines", "terminal"]
PLAIN = "plain"
"""The display of what is no terminal, such as a log."""


class Display(Protocol):
    """Receives the progress of a protocol. Every round number is 1-based."""

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        """Before anything runs: the plan as (hook, component, what it does here), and facts about the run.

        All facts are shown; `rounds`, how many are planned, is also what the expected end is reckoned from.
        """

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """`done` of `total` parties have finished this phase. Cheap; may be called thousands of times a second."""

    def round_done(self, row: Row) -> None:
        """The complete metrics of a round; may come after the next round's first phases."""

    def note(self, text: str) -> None:
        """A warning that should stay visible, such as a client that dropped out."""

    def finish(self, rows: Sequence[Row], verdict: Verdict, pages: Sequence[Path], run_dir: Path) -> None:
        """The run is complete; `pages` show it."""

    def interrupted(self, round: int, run_dir: Path) -> None:
        """The run was stopped; says how to continue. `round` is the last round in the checkpoint, 0 if none is."""

    def close(self) -> None:
        """Gives the terminal back. May be called more than once, also after an error."""


def display_of(shown: Shown | Display, quiet: bool) -> Display:
    """The display that was asked for; in a terminal what a plugin draws there, or else `plain`, or lines.

    Raises:
        SetupError: it is a word that means nothing.
        PluginError: what draws in terminals cannot be imported.
    """
    if shown == "lines":
        return LinesDisplay(sys.stdout, quiet)
    if shown != "terminal":
        if isinstance(shown, str) or not hasattr(shown, "round_done"):
            raise SetupError(f"display={shown!r} must be 'lines', 'terminal', or your own display")
        return shown
    offered = installed(DISPLAY)
    plain = offered.pop(PLAIN, None)
    if not quiet and sys.stdout.isatty():
        for entry in offered.values():
            if (display := entry.imported()()) is not None:
                return cast("Display", display)
    return cast("Display", plain.imported()(sys.stdout, quiet)) if plain else LinesDisplay(sys.stdout, quiet)


def show(display: Display, events: Events) -> None:
    """Has a display show what happens from here on."""
    rounds, at_once, again = 0, 1, _Again()

    def hear(event: Event) -> None:
        nonlocal rounds, at_once
        match event:
            case RunStarted(plan=plan, facts=facts):
                rounds = int(facts["rounds"])
                rate = (event.recipe.get("sampling") or {}).get("rate") or 1
                at_once = max(1, round(rate * int(facts["clients"])))
                display.start(plan, facts)
            case RoundStarted():
                display.phase(event.round + 1, TRAINING, 0, at_once)
            case ReplyArrived():  # what comes behind the last round counts as of it
                display.phase(min(event.round + 1, rounds), event.phase, event.answered, event.asked)
            case RowComplete(row=row):
                display.round_done(row)
            case Note(text=text):
                if again.is_new(text):
                    display.note(text)
            case RunStopped():
                again.tell(display)
                if event.error is None:
                    display.interrupted(event.round, event.folder)
            case RunFinished():
                again.tell(display)
                display.finish(event.rows, event.verdict, sorted(event.folder.glob("*.html")), event.folder)

    for kind in (RunStarted, RoundStarted, ReplyArrived, RowComplete, Note, RunStopped, RunFinished):
        events.subscribe(kind, hear)


_ROUND = re.compile(r"\bround \d+")


class _Again:
    """Counts notes that differ in their round alone: the first is shown when it comes, the others at the end."""

    def __init__(self) -> None:
        self._more: dict[str, int] = {}
        self._last: dict[str, str] = {}

    def is_new(self, text: str) -> bool:
        """Whether there was none like it; counts it otherwise."""
        kind = _ROUND.sub("round", text)
        if kind not in self._more:
            self._more[kind] = 0
            return True
        self._more[kind] += 1
        self._last[kind] = text
        return False

    def tell(self, display: Display) -> None:
        """Says how often what was shown once has come again, and forgets that."""
        for kind, text in self._last.items():
            often = "once more" if self._more[kind] == 1 else f"{self._more[kind]} times more, the last time"
            display.note(f"{often}: {text}")
            self._more[kind] = 0
        self._last.clear()


SILENT = 30.0
"""Seconds after which a run that prints lines says that it goes on."""
_LEAST = 10.0  # seconds that are left: to say so of fewer is no help


class LinesDisplay:
    """For scripts and notebooks: a line for the run, one a round, and one where a round takes long; where it is quiet,
    only warnings.
    """

    def __init__(self, stream: TextIO, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._quiet = quiet
        self._rounds: Any = None
        self._clock, self._pace, self._said = clock, Pace(clock), clock()
        self._over = threading.Event()

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        self._rounds = facts.get("rounds")
        self._pace.start(self._rounds)
        if not self._quiet:
            threading.Thread(target=self._beats, daemon=True).start()
            self._print(", ".join(f"{key} {value}" for key, value in facts.items()))

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """A log needs a line for this only after a while; see `beat`."""
        self._pace.phase(round, phase, done, total)

    def round_done(self, row: Row) -> None:
        if not self._quiet:
            of = f"/{self._rounds}" if self._rounds else ""
            self._print("  ".join([f"round {row.round}{of}", *filled(row), *self._left()]))

    def beat(self) -> None:
        """Says where the run is, if nothing was said for a while."""
        now = self._pace.now
        if self._clock() - self._said < SILENT:
            return
        of = f"/{self._rounds}" if self._rounds else ""
        where = f"round {min(now.round, self._pace.planned or now.round)}{of}" if now.round > 0 else "before round 1"
        said = [f"{where}: {now.phase}"]
        if now.total > 1:
            said.append(f"{now.done} of {now.total} clients have answered")
        if training := self._pace.training():
            said.append(f"client {training.client_id} trains, step {training.done:,} of {training.steps:,}")
        self._print("  ".join([", ".join(said), f"{units.duration(self._pace.so_far())} so far", *self._left()]))

    def _left(self) -> list[str]:
        left = self._pace.left()
        return [f"about {units.duration(left)} left"] if left is not None and left >= _LEAST else []

    def _beats(self) -> None:
        while not self._over.wait(SILENT / 6):
            with contextlib.suppress(ValueError, OSError):  # the stream is closed
                self.beat()

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def finish(self, rows: Sequence[Row], verdict: Verdict, pages: Sequence[Path], run_dir: Path) -> None:
        """The returned run has the results."""

    def interrupted(self, round: int, run_dir: Path) -> None:
        self._print(f"{interruption(round)} To continue: fedplug.resume({str(run_dir)!r})")

    def close(self) -> None:
        self._over.set()
        self._stream.flush()

    def _print(self, line: str) -> None:
        self._said = self._clock()
        say(self._stream, line)


def say(stream: TextIO, text: str, end: str = "\n") -> None:
    """Prints at once. A log in another encoding than UTF-8 must not end a run at a sign that it cannot hold.

    Nor must a reader such as `head` that has seen enough: later output is discarded.
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), end=end, file=stream, flush=True)
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
            unread = "nobody reads the standard output any more; the run continues, and its folder has everything"
            print(f"note: {unread}", file=sys.stderr)


def interruption(round: int) -> str:
    """The cost of an interruption, given the last round in the checkpoint."""
    return f"Interrupted; everything up to round {round} is saved." if round else "Interrupted in the first round."

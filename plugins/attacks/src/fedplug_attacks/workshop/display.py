"""The display of running attacks: lines in logs and pipes, and in a terminal a live picture below them.

The picture shows targets done, the current attack with its loss, and the time left. `progress` is called at every step
of an optimisation; it only stores a few values. The picture is redrawn from them by rich's own thread, a few times a
second, whatever the number of calls.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from fedplug_lab.live import Picture, known_facts, progress, terminal
from fedplug_lab.terminal import Rows, Whole
from fedplug_runs import units
from fedplug_runs.pace import Pace
from fedplug_runs.shown import say
from fedplug_terminal.lines import aligned
from rich.console import Console, Group, RenderableType
from rich.text import Text

from fedplug_attacks.workshop import words
from fedplug_attacks.workshop.records import AttackSummary, TargetResult

_COLOURS = dict(zip(words.STATES.values(), ("red", "yellow", "green", "dim"), strict=True))
"""Colours of an attack's outcomes; its success is the bad news."""


class AttackDisplay:
    """The progress of attacks, a line for each finished target. A target is one view of one update.

    Args:
        stream: receives the lines, each flushed at once.
        quiet: show warnings and the end only.
    """

    _place = ""  # of the current target among all

    def __init__(self, stream: TextIO, quiet: bool = False) -> None:
        self._stream, self._quiet = stream, quiet

    def start(self, total_targets: int, facts: Mapping[str, Any]) -> None:
        """Before anything runs: the number of targets, including those finished before, and facts to show."""
        said = [units.many(total_targets, "target"), *(f"{key} {value}" for key, value in facts.items())]
        self.say(", ".join(said), "")

    def target(self, key: str, form: str, number: int, total: int) -> None:
        """A form of the target `key` begins: the `number`-th target, counted from 1, of `total`."""
        self._place = f"[{number}/{total}] "

    def progress(self, done: int, total: int, loss: float | None) -> None:
        """The number of steps that the current attack has done, and the value of its objective, if it has one.

        Cheap; may be called thousands of times a second. A log needs no line for it.
        """

    def target_done(self, result: TargetResult) -> None:
        """A target is finished, in all its forms; the content of its file."""
        status = next((outcome.status for outcome in words.forms(result).values()), "")
        self.say(f"{self._place}{words.target_line(result)}", _COLOURS.get(words.STATES.get(status, ""), ""))

    def skipped(self, key: str) -> None:
        """A target was finished by an earlier execution and is not attacked again."""
        self.say(f"{key}: finished before", "dim")

    def say(self, line: str, colour: str) -> None:
        """A line on the work; a live display marks it with the colour."""
        if not self._quiet:
            self.tell(line)

    def note(self, text: str) -> None:
        """A warning that should stay visible."""
        self.tell(f"note: {text}")

    def finish(self, summary: AttackSummary, folder: Path, pages: Sequence[Path]) -> None:
        """All targets are done; the content of summary.json, the folder of the results, and pages that show them."""
        self.close()
        if found := words.findings(summary):
            self.table(found)
        for line in (*(words.idle(summary) if found else ()), words.conclusion(summary)):
            self.tell(line)
        self.path("attacks folder: ", str(folder))
        for page in pages:
            self.path(f"{page.stem}: ", str(page))

    def table(self, found: Sequence[words.Finding]) -> None:
        """A row for each question."""
        for line in aligned(words.HEADER, [finding.cells for finding in found], None):
            self.tell(line)

    def interrupted(self, done: int, total: int, folder: Path, command: str) -> None:
        """Stopped after `done` of `total` targets, which are kept; `command` continues with the rest."""
        self.close()
        self.tell(f"Interrupted; {done} of {total} targets are finished and kept in {folder}.")
        self.path("To go on: ", command)

    def tell(self, line: str) -> None:
        """A line that is always shown."""
        say(self._stream, line)

    def path(self, label: str, path: str) -> None:
        """A path or a command on a separate line."""
        self.tell(f"{label}{path}")

    def close(self) -> None:
        """Restores the terminal. May be called more than once, also after an error."""
        self._stream.flush()


class LiveAttackDisplay(Picture, AttackDisplay):
    """The same above a picture of the current attack; for the arguments see `Picture`."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, refresh: float = 8) -> None:
        self.pace = Pace(clock)  # a target is a round, and each of its forms a phase
        self._key, self._loss = "", ""
        super().__init__(console, clock, refresh)  # draws the first picture

    def start(self, total_targets: int, facts: Mapping[str, Any]) -> None:
        self.pace.start(total_targets)
        self._console.print(Group(known_facts(facts), Text()), crop=False)
        self._live.start(refresh=True)

    def target(self, key: str, form: str, number: int, total: int) -> None:
        self._key, self._loss = key, ""
        self.pace.phase(number, form, 0, 0)

    def progress(self, done: int, total: int, loss: float | None) -> None:
        self._loss = "" if loss is None else f"loss {units.number(loss)}"
        self.pace.phase(self.pace.now.round, self.pace.now.phase, done, total)

    def target_done(self, result: TargetResult) -> None:
        super().target_done(result)
        self.redraw()

    def say(self, line: str, colour: str) -> None:
        self._console.print(Text.assemble(("■ ", colour), line))

    def table(self, found: Sequence[words.Finding]) -> None:
        rows = [[*map(Text, one.cells[:-1]), Text(one.status, _COLOURS[one.state])] for one in found]
        self._console.print(Group(Text(), Rows(words.HEADER, rows), Text()), crop=False)

    def tell(self, line: str) -> None:
        self._console.print(Whole(Text(line, "bold")), crop=False)

    def picture(self) -> RenderableType:
        """The state, drawn by rich."""
        key = Text(self._key, "dim", no_wrap=True, overflow="ellipsis")
        # The last line is empty, not blank: at the end of a full one, the terminal's ^C would begin another, and the
        # picture would be wiped one line too low.
        return Group(key, progress(self.pace, self._console.width, "target", "steps", self._loss), Text())


def make_attack_display(quiet: bool) -> AttackDisplay:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end only.
    """
    console = None if quiet else terminal()
    return AttackDisplay(sys.stdout, quiet) if console is None else LiveAttackDisplay(console)

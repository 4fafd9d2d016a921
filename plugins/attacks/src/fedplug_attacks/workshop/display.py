"""The display of running attacks: lines in logs and pipes, and in a terminal a live picture below them.

The picture shows targets done, the current attack with its loss, and the time left. `progress` is called at every step
of an optimisation; it only stores three values. The picture is redrawn from them by rich's own thread, a few times a
second, whatever the number of calls.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from fedplug_lab.live import Picture, add_bar, clock_time, known_facts, terminal
from fedplug_lab.terminal import Rows, Whole
from fedplug_runs import units
from fedplug_runs.shown import say
from fedplug_terminal.lines import aligned
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedplug_attacks.workshop import words
from fedplug_attacks.workshop.records import AttackSummary, TargetResult

_COLOURS = dict(zip(words.STATES.values(), ("red", "yellow", "green", "dim"), strict=True))
"""Colours of an attack's outcomes; its success is the bad news."""
_FORMS = 2
"""Number of forms that a target is expected to have, before the first one is finished."""


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
        for line in (*words.idle(summary), words.conclusion(summary)):
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


@dataclasses.dataclass(frozen=True)
class _Step:
    """The progress of the current attack."""

    done: int = 0
    total: int = 0
    loss: float | None = None


class LiveAttackDisplay(Picture, AttackDisplay):
    """The same above a picture of the current attack; for the arguments see `Picture`."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, refresh: float = 8) -> None:
        self._total = self._done = self._skipped = 0
        self._key, self._step = "", _Step()
        self._forms: list[str] = []  # started forms of the current target
        self._forms_a_target = _FORMS  # number of forms of the last target
        super().__init__(console, clock, refresh)  # draws the first picture

    def start(self, total_targets: int, facts: Mapping[str, Any]) -> None:
        self._total, self._began = total_targets, self._clock()
        self._console.print(Group(known_facts(facts), Text()), crop=False)
        self._live.start(refresh=True)

    def target(self, key: str, form: str, number: int, total: int) -> None:
        self._total, self._step = total, _Step()
        self._forms = [*self._forms, form] if key == self._key else [form]
        self._key = key

    def progress(self, done: int, total: int, loss: float | None) -> None:
        # One assignment, so that the drawing thread never sees half of it.
        self._step = _Step(done, total, loss)

    def target_done(self, result: TargetResult) -> None:
        self._done += 1
        self._forms_a_target = max(1, len(self._forms))
        self._step, self._forms, self._key = _Step(), [], ""
        super().target_done(result)
        self.redraw()

    def skipped(self, key: str) -> None:
        self._skipped += 1
        super().skipped(key)

    def say(self, line: str, colour: str) -> None:
        self._console.print(Text.assemble(("■ ", colour), line))

    def table(self, found: Sequence[words.Finding]) -> None:
        rows = [[*map(Text, one.cells[:-1]), Text(one.status, _COLOURS[one.state])] for one in found]
        self._console.print(Group(Text(), Rows(words.HEADER, rows), Text()), crop=False)

    def tell(self, line: str) -> None:
        self._console.print(Whole(Text(line, "bold")), crop=False)

    # ---- the picture

    def picture(self) -> RenderableType:
        """The state, drawn by rich."""
        step, finished = self._step, self._done + self._skipped
        size = min(30, max(0, self._console.width - 60))
        grid = Table.grid(padding=(0, 2))
        left = self.seconds_left()
        rest = "" if left is None else f", about {clock_time(left)} left"
        whole = ProgressBar(total=max(self._total, 1), completed=finished + self.share(), width=size)
        spent = f"{clock_time(self._clock() - self._began)} so far{rest}"
        add_bar(grid, size, Text(f"target {min(finished + 1, self._total)} of {self._total}", "bold"), whole, spent)
        pulse = step.total <= 0
        inner = ProgressBar(total=None if pulse else step.total, completed=step.done, width=size, pulse=pulse)
        counted = "" if pulse else f"step {step.done} of {step.total}"
        if step.loss is not None:
            counted = ", ".join(filter(None, [counted, f"loss {units.number(step.loss)}"]))
        add_bar(grid, size, Text(self._forms[-1] if self._forms else "starting", "cyan"), inner, counted)
        # The last line is empty, not blank: at the end of a full one, the terminal's ^C would begin another, and the
        # picture would be wiped one line too low.
        return Group(Text(self._key, "dim", no_wrap=True, overflow="ellipsis"), grid, Text())

    def share(self) -> float:
        """The finished share of the current target, 0 to 0.95: its earlier forms and the steps of this one."""
        step, forms_before = self._step, len(self._forms) - 1
        inner = min(1.0, step.done / step.total) if step.total > 0 else 0.0
        return min(0.95, (forms_before + inner) / self._forms_a_target) if self._forms else 0.0

    def seconds_left(self) -> float | None:
        """Expected time to the end, at the pace of this execution; None while there is too little data."""
        worked = self._done + self.share()
        if worked < 0.1:
            return None
        remaining = self._total - self._skipped - worked
        return max(0.0, (self._clock() - self._began) / worked * remaining)


def make_attack_display(quiet: bool) -> AttackDisplay:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end only.
    """
    console = None if quiet else terminal()
    return AttackDisplay(sys.stdout, quiet) if console is None else LiveAttackDisplay(console)

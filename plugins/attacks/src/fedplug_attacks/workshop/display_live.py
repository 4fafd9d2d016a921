"""The live picture of attacks in a terminal: targets done, the current attack with its loss, the time left.

`progress` is called at every step of an optimisation; it only stores three values. The picture is redrawn from them by
rich's own thread, a few times a second, whatever the number of calls. A finished target becomes a line above it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug_lab.live import Picture, add_bar, clock_time, known_facts
from fedplug_lab.terminal import Rows, Whole
from fedplug_runs import units
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedplug_attacks.workshop import words
from fedplug_attacks.workshop.records import AttackSummary, TargetResult

_COLOURS = {"success": "red", "failed": "green", "inconclusive": "yellow", "not_applicable": "dim"}
"""Colours of an attack's outcomes; its success is the bad news."""
_STATES = dict(zip(words.STATES, ("red", "yellow", "green", "dim"), strict=True))
"""Colours of the outcome of all targets."""


@dataclasses.dataclass(frozen=True)
class _Step:
    """The progress of the current attack."""

    done: int = 0
    total: int = 0
    loss: float | None = None


class LiveAttackDisplay(Picture):
    """The current attack, and above it a line for each finished target; for the arguments see `Picture`."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, refresh: float = 8) -> None:
        self._total = self._done = self._skipped = 0
        self._key = ""
        self._forms: list[str] = []  # started forms of the current target
        self._forms_a_target = len(words.FORMS)  # number of forms of the last target; both at first
        self._step = _Step()
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
        tried = words.forms(result)
        outcome = tried.get(result.headline or next(iter(tried), ""))
        colour = _COLOURS.get(outcome.status, "") if outcome else ""
        self._console.print(Text.assemble(("■ ", colour), words.target_line(result)))
        self.redraw()

    def skipped(self, key: str) -> None:
        self._skipped += 1
        self._console.print(Text(f"■ {key}: finished before", "dim"))

    def finish(self, summary: AttackSummary, folder: Path, pages: Sequence[Path]) -> None:
        self.close()
        rows = Rows(words.HEADER, [
            [*map(Text, finding.cells[:-1]), Text(finding.status, _STATES[finding.state])]
            for finding in words.findings(summary)
        ])  # fmt: skip
        said = [*map(Whole, map(Text, words.idle(summary))), Whole(Text(words.conclusion(summary), "bold"))]
        self._console.print(Group(Text(), rows, Text(), *said, Text()), crop=False)
        self.path("Attacks  ", str(folder))
        for page in pages:
            self.path(f"{page.stem.capitalize():9}", str(page))

    def interrupted(self, done: int, total: int, folder: Path, command: str) -> None:
        self.close()
        self.path("", f"{words.interruption(done, total, folder)} To go on:")
        self.path("", f"  {command}")

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

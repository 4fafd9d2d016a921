"""The display of running attacks: a live picture in a terminal, plain lines everywhere else.

This module holds the interface of a display, and the display for logs and pipes; the live one is in
`fedplug_attacks.workshop.display_live`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from fedplug_runs.shown import say

from fedplug_attacks.workshop.records import AttackSummary, TargetResult
from fedplug_attacks.workshop.words import interruption, summary_lines, target_line


class AttackDisplay(Protocol):
    """The progress of attacks. A target is one view of one update; each is attacked in one or two forms."""

    def start(self, total_targets: int, facts: Mapping[str, Any]) -> None:
        """Before anything runs: the number of targets, including those finished before, and facts to show."""

    def target(self, key: str, form: str, number: int, total: int) -> None:
        """A form of the target `key` begins: the `number`-th target, counted from 1, of `total`."""

    def progress(self, done: int, total: int, loss: float | None) -> None:
        """The number of steps that the current attack has done, and the value of its objective, if it has one.

        Cheap; may be called thousands of times a second.
        """

    def target_done(self, result: TargetResult) -> None:
        """A target is finished, in all its forms; the content of its file."""

    def skipped(self, key: str) -> None:
        """A target was finished by an earlier execution and is not attacked again."""

    def note(self, text: str) -> None:
        """A warning that should stay visible."""

    def finish(self, summary: AttackSummary, folder: Path, pages: Sequence[Path]) -> None:
        """All targets are done; the content of summary.json, and the folder of the results."""

    def interrupted(self, done: int, total: int, folder: Path, command: str) -> None:
        """Stopped after `done` of `total` targets, which are kept; `command` continues with the rest."""

    def close(self) -> None:
        """Restores the terminal. May be called more than once, also after an error."""


def make_attack_display(quiet: bool) -> AttackDisplay:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end only.
    """
    if not quiet and sys.stdout.isatty():  # logs and pipes do without rich, which takes a while to import
        from fedplug_lab.live import terminal

        from fedplug_attacks.workshop.display_live import LiveAttackDisplay

        if (console := terminal()) is not None:
            return LiveAttackDisplay(console)
    return PlainAttackDisplay(sys.stdout, quiet=quiet)


class PlainAttackDisplay:
    """One line a finished target, flushed at once: for logs, pipes and continuous integration."""

    def __init__(self, stream: TextIO, quiet: bool = False) -> None:
        self._stream = stream
        self._quiet = quiet
        self._place = ""  # of the current target among all
        self._skipped = 0

    def start(self, total_targets: int, facts: Mapping[str, Any]) -> None:
        if not self._quiet:
            said = [f"{total_targets} target{'' if total_targets == 1 else 's'}"]
            self._print(", ".join([*said, *(f"{key} {value}" for key, value in facts.items())]))

    def target(self, key: str, form: str, number: int, total: int) -> None:
        self._place = f"[{number}/{total}] "

    def progress(self, done: int, total: int, loss: float | None) -> None:
        """A log needs no line for this."""

    def target_done(self, result: TargetResult) -> None:
        if not self._quiet:
            self._print(f"{self._place}{target_line(result)}")

    def skipped(self, key: str) -> None:
        if not self._quiet:
            self._print(f"{key}: finished before")

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def finish(self, summary: AttackSummary, folder: Path, pages: Sequence[Path]) -> None:
        for line in summary_lines(summary):
            self._print(line)
        self._print(f"attacks folder: {folder}")
        for page in pages:
            self._print(f"{page.stem}: {page}")

    def interrupted(self, done: int, total: int, folder: Path, command: str) -> None:
        self._print(f"{interruption(done, total, folder)} To go on: {command}")

    def close(self) -> None:
        self._stream.flush()

    def _print(self, line: str) -> None:
        say(self._stream, line)

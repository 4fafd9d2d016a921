"""The display of running attacks: a live picture in a terminal, plain lines everywhere else.

This module holds the interface of a display, the display for logs and pipes, and their common texts about a target; the
live one is in `fedplug_attacks.workshop.display_live`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from fedplug_runs import units
from fedplug_runs.shown import say

from fedplug_attacks.workshop.findings import HEADER, conclusion, findings, idle
from fedplug_attacks.workshop.records import AttackSummary, SummaryRow, TargetResult
from fedplug_attacks.workshop.words import forms, outcome_words


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


# ---- results as text, for both displays


def target_line(result: TargetResult) -> str:
    """A finished target in a line: its forms, the stronger first, each with number, trivial guess and time."""
    tried = forms(result)
    said = dict[str, list[str]]()  # forms with the same result share a line
    for form in sorted(tried, key=lambda form: form != result.headline):
        said.setdefault(outcome_words(result, form), []).append(form)
    parts = [
        f"{' and '.join(names)} {words}, {units.duration(sum(tried[form].seconds for form in names))}"
        for words, names in said.items()
    ]
    return f"{result.key}: {'; '.join(parts) or 'no form was tried'}"


def summary_lines(summary: AttackSummary) -> list[str]:
    """The results of all targets: a row for each attack and adversary, and the conclusion below them."""
    rows = [HEADER, *(finding.cells for finding in findings(summary))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]  # fmt: skip
    return [*lines, *idle(summary), conclusion(summary)] if len(rows) > 1 else idle(summary)


def is_stronger(row: SummaryRow, rows: Sequence[SummaryRow]) -> bool:
    """Whether this form learnt more than another of the same attack by the same adversary; False for equals."""
    metric = row.ranking.metric
    means = {str(other.metrics.get(metric)) for other in rows if _kind(other) == _kind(row)}
    return row.headline and len(means) > 1


def _kind(row: SummaryRow) -> tuple[str, str, int, int | None]:
    """The common key of two rows of a summary that differ in form only."""
    return row.attack, row.adversary, row.round, row.probe_batch_size


def tried(row: SummaryRow) -> str:
    """`4 of 5`: successes among the targets to which the attack applied; a dash where there were none."""
    return f"{row.succeeded} of {row.applicable}" if row.applicable else units.NOTHING


def interruption(done: int, total: int, folder: Path) -> str:
    """A sentence on the finished targets after an interruption."""
    return f"Interrupted; {done} of {total} targets are finished and kept in {folder}."

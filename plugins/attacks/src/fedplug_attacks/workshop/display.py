"""What a person sees while attacks run: a live picture in a terminal, plain lines everywhere else.

This module holds what attacks tell a display, the display for logs and pipes, and what both say of a target; the live
one is in `fedplug_attacks.workshop.display_live`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from fedplug.api import units
from fedplug.console.display import say

from fedplug_attacks.workshop.words import (
    forms,
    guess_words,
    headline_form,
    headline_metric,
    mean_words,
    outcome_words,
)

Result = Mapping[str, Any]
_SAME = ("attack", "adversary", "round", "probe_batch_size")
"""What two rows of a summary share that differ in form only."""


class AttackDisplay(Protocol):
    """What attacks tell of their progress. A target is one view of one update; each is attacked in one or two forms."""

    def start(self, total_targets: int, facts: Mapping[str, Any]) -> None:
        """Before anything runs: how many targets there are, those finished before included, and facts to show."""

    def target(self, key: str, form: str, number: int, total: int) -> None:
        """A form of the target `key` begins: the `number`-th target, counted from 1, of `total`."""

    def progress(self, done: int, total: int, loss: float | None) -> None:
        """The current attack has done so many of its steps, and where its objective stands, if it has one.

        Cheap; may be called thousands of times a second.
        """

    def target_done(self, result: Result) -> None:
        """A target is finished, in all its forms; the content of its file."""

    def skipped(self, key: str) -> None:
        """A target was finished by an earlier execution and is not attacked again."""

    def note(self, text: str) -> None:
        """A warning that should stay visible."""

    def finish(self, summary: Mapping[str, Any], folder: Path, pages: Sequence[Path]) -> None:
        """All targets are done; the content of summary.json, and where the results are."""

    def interrupted(self, done: int, total: int, folder: Path, command: str) -> None:
        """Stopped after `done` of `total` targets, which are kept; `command` goes on with the rest."""

    def close(self) -> None:
        """Gives the terminal back. May be called more than once, also after an error."""


def make_attack_display(quiet: bool) -> AttackDisplay:
    """The display for this process's standard output.

    Args:
        quiet: show warnings and the end only.
    """
    from fedplug.console.choice import terminal

    console = terminal(quiet)
    if console is None:
        return PlainAttackDisplay(sys.stdout, quiet=quiet)
    from fedplug_attacks.workshop.display_live import LiveAttackDisplay

    return LiveAttackDisplay(console)


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

    def target_done(self, result: Result) -> None:
        if not self._quiet:
            self._print(f"{self._place}{target_line(result)}")

    def skipped(self, key: str) -> None:
        if not self._quiet:
            self._print(f"{key}: finished before")

    def note(self, text: str) -> None:
        self._print(f"note: {text}")

    def finish(self, summary: Mapping[str, Any], folder: Path, pages: Sequence[Path]) -> None:
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


def target_line(result: Result) -> str:
    """A finished target in a line: its forms, the stronger first, each with number, trivial guess and time."""
    known, first = forms(result), headline_form(result)
    ordered = sorted(known, key=lambda form: form != first)
    parts = []
    for form in ordered:
        time = units.duration(known[form].get("seconds"))
        timed = "" if time == units.NOTHING else f", {time}"
        parts.append(f"{form} {outcome_words(result, form)}{timed}")
    return f"{result.get('key') or result.get('attack') or '?'}: {'; '.join(parts) or 'no form was tried'}"


def summary_rows(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The rows of a summary that are rows."""
    rows = summary.get("rows")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list | tuple) else []


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """What all targets came to, a line for each attack, adversary and form."""
    rows = summary_rows(summary)
    return [f"{title}: {said}" for title, said in (summary_row(row, rows) for row in rows)]


def is_stronger(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether this form learnt more than another of the same attack by the same adversary; not so among equals."""
    rivals = [other for other in rows if all(other.get(key) == row.get(key) for key in _SAME)]
    metric = (headline_metric(row) or ("", ""))[0]
    means = {str(units.mapping(other, "metrics").get(metric)) for other in rivals}
    return row.get("headline") is True and len(means) > 1


def tried(row: Mapping[str, Any]) -> str:
    """`4 of 5`: successes among the targets to which the attack applied; a dash where there were none."""
    unmet = units.read(row, "not_applicable")
    number = units.read(row, "targets") - (unmet if unmet > 0 else 0)
    return f"{_whole(units.read(row, 'succeeded'))} of {_whole(number)}" if number != 0 else units.NOTHING


def summary_row(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Title and text of a row of a summary, which has these `rows`."""
    size, when = row.get("probe_batch_size"), row.get("round")
    parts = [str(row.get(key) or "?") for key in ("attack", "adversary")]
    parts += [f"round {when}"] if when is not None else []
    parts += [f"probes of {size}"] if size is not None else []
    parts.append(f"{row.get('form') or '?'}{' (the stronger form)' if is_stronger(row, rows) else ''}")
    said = [f"{tried(row)} succeeded"] if tried(row) != units.NOTHING else []
    for key in ("diverged", "not_applicable"):
        if units.read(row, key) > 0:
            said.append(f"{_whole(units.read(row, key))} {key.replace('_', ' ')}")
    metrics = units.mapping(row, "metrics")
    ranking = headline_metric(row) or (next(iter(metrics), ""), "")
    if ranking[0] in metrics:
        said.append(f"{mean_words(metrics, ranking[0])}{guess_words(row, *ranking)}")
    return " ".join(parts), ", ".join(said)


def interruption(done: int, total: int, folder: Path) -> str:
    """What an interruption left."""
    return f"Interrupted; {done} of {total} targets are finished and kept in {folder}."


def _whole(value: float) -> str:
    return f"{value:.0f}" if value == value else "?"

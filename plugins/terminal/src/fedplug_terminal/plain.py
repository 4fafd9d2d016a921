"""A run as plain lines: for logs, pipes and continuous integration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug_ledger.verdict import Verdict
from fedplug_runs.onward import resume_command
from fedplug_runs.row_text import totals
from fedplug_runs.rows import Row
from fedplug_runs.shown import LinesDisplay, interruption

from fedplug_terminal.lines import folded


class PlainDisplay(LinesDisplay):
    """One line a round, flushed at once: for logs, pipes and continuous integration."""

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        super().start(plan, facts)
        widths = [max((len(step[i]) for step in plan), default=0) for i in (0, 1)]
        for hook, component, text in () if self._quiet else plan:
            self._print(f"  {hook:<{widths[0]}}  {component:<{widths[1]}}  {text}".rstrip())

    def finish(self, rows: Sequence[Row], verdict: Verdict, pages: Sequence[Path], run_dir: Path) -> None:
        for label, value in totals(rows).items():
            self._print(f"{label}: {value}")
        for line in verdict.text():
            self._print(folded(line, self._stream))
        self._print(f"run folder: {run_dir}")
        for page in pages:
            self._print(f"{page.stem}: {page}")

    def interrupted(self, round: int, run_dir: Path) -> None:
        self._print(f"{interruption(round)} To continue: {resume_command(run_dir)}")

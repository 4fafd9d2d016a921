"""What a script or a notebook sees while a run goes on: a line a round. The run that is returned says the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedplug.api.rows import Row
from fedplug.console.display import PlainDisplay, interruption


class LinesDisplay(PlainDisplay):
    """One line for the run and one a round; where it is quiet, only warnings."""

    def start(self, plan: Sequence[tuple[str, str, str]], facts: Mapping[str, Any]) -> None:
        self._rounds = facts.get("rounds")
        if not self._quiet:
            self._print(", ".join(f"{key} {value}" for key, value in facts.items()))

    def finish(self, rows: Sequence[Row], verdict: str, pages: Sequence[Path], run_dir: Path) -> None:
        """The run that is returned says what it came to."""

    def interrupted(self, round: int, run_dir: Path) -> None:
        self._print(f"{interruption(round)} To go on: fedplug.resume({str(run_dir)!r})")

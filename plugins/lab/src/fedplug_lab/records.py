"""What a sweep keeps of its runs: `sweep.jsonl`, one line a run, read from the run's own folder."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedplug.api import units
from fedplug.api.errors import RecipeError, SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import load_recipe
from fedplug.round.checkpoint import Checkpoints
from fedplug.runs.files import read_ledger, read_rows, read_summary
from fedplug.runs.folder import write_text

from fedplug_lab.grid import Combination
from fedplug_lab.sections import sections_of_plugins

Line = dict[str, Any]


@contextlib.contextmanager
def at_work(folder: Path) -> Iterator[None]:
    """Inside, this process alone runs what the folder of a sweep lacks.

    Raises:
        SetupError: another process is at it, or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot create {folder} ({error}); choose another place with --output") from error
    with (folder / "sweep.lock").open("w", encoding="utf-8") as lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # Windows has other locks; there the user sees to it
            pass
        except OSError as error:
            remedy = "wait for it, or take another --output"
            raise SetupError(f"another fedplug sweep is at work in {folder}; {remedy}") from error
        yield


class Records:
    """`sweep.jsonl`: one line for each run that ended, well or not; the last line of a combination counts.

    Args:
        folder: of the sweep; need not exist.

    Raises:
        SetupError: a line is damaged. A last line that was cut off by a kill is forgotten: its run is still there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "sweep.jsonl"
        self.lines: list[Line] = []
        text = self.file.read_text(encoding="utf-8") if self.file.is_file() else ""
        pieces = text.splitlines()
        for number, piece in enumerate(pieces, 1):
            try:
                line = json.loads(piece)
                line["digest"], line["status"], line["case"], line["parameters"]
            except (ValueError, LookupError, TypeError) as error:
                if number == len(pieces) and not text.endswith("\n"):
                    break
                remedy = "remove the line, and its combination runs again"
                raise SetupError(f"{self.file}, line {number}, is damaged: {piece[:60]!r}; {remedy}") from error
            self.lines.append(line)

    def is_done(self, one: Combination) -> bool:
        """Whether the combination has run to its end."""
        line = self.of(one)
        return line is not None and line["status"] == "done"

    def of(self, one: Combination) -> Line | None:
        """The combination's last line."""
        return next((line for line in reversed(self.lines) if line["digest"] == one.recipe.digest), None)

    def add(self, line: Line) -> None:
        """Adds a line; the file is never half written. Only inside `at_work`."""
        self.lines.append(line)
        write_text(self.file, "".join(json.dumps(each) + "\n" for each in self.lines))

    def unfinished(self, catalog: Catalog) -> dict[str, Path]:
        """Run folders without a line that have a checkpoint, by digest: of runs that were cut off."""
        known = {line.get("run") for line in self.lines}
        found = {}
        for file in sorted(self.folder.glob("*/recipe.yaml")):
            if file.parent.name not in known and Checkpoints(file.parent).rounds():
                try:
                    found[load_recipe(file, (), catalog).digest] = file.parent
                except RecipeError:
                    continue  # of a plugin that has changed since: it is run anew
        return found


def result_of(run_dir: Path) -> Line:
    """What a sweep records of a run that ended: read from its folder.

    Returns:
        rounds, accuracy, loss, segmentation figures and epsilons of the last round, the best accuracy, personal
        accuracies over clients (None where there are no personal models), zone shares and logs of the last round,
        seconds per phase and bytes per direction over the run, simulated seconds (None without profiles), the verdict,
        assessments, and what plugins know of the run, such as what attacks reached.
    """
    rows, ledger, summary = read_rows(run_dir), read_ledger(run_dir), read_summary(run_dir)
    last = rows[-1] if rows else {}
    measured = [accuracy for row in rows if math.isfinite(accuracy := units.read(row, "accuracy"))]
    simulated = [seconds for row in rows if math.isfinite(seconds := units.read(row, "simulated", "seconds"))]
    return {
        "rounds": len(rows),
        "accuracy": last.get("accuracy"),
        "best_accuracy": max(measured, default=None),
        "loss": last.get("loss"),
        **{key: _spread(last, key) for key in ("personal_accuracy", "personal_public_accuracy")},
        "segmentation": last.get("segmentation"),
        "zones": last.get("zones", {}),
        "log": last.get("log", {}),
        "seconds": {phase: units.total(rows, "seconds", phase) for phase in units.names(rows, "seconds")},
        "simulated_seconds": math.fsum(simulated) if simulated else None,
        "bytes": {way: int(units.total(rows, "bytes", way, "total")) for way in units.names(rows, "bytes")},
        "epsilon": last.get("epsilon"),
        "record_epsilon": last.get("record_epsilon"),
        "verdict": ledger.get("verdict"),
        "assessments": summary.get("assessments", {}),
        **{section.key: section.record(run_dir) for section in sections_of_plugins()},
    }


def _spread(row: Mapping[str, Any], key: str) -> dict[str, float] | None:
    found = units.spread(row, key)
    return dict(zip(("min", "mean", "max"), found, strict=True)) if found else None

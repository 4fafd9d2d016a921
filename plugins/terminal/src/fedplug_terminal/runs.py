"""The body of `fedplug runs`."""

from __future__ import annotations

import sys
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug_runs.listing import Listed, runs_below
from fedplug_runs.units import NOTHING

from fedplug_terminal.as_json import document
from fedplug_terminal.lines import aligned, tell, width_of

_HEAD = ("run", "began", "recipe", "rounds", "figure", "state", "verdict")


def list_runs(folder: Path, as_json: bool) -> int:
    """Prints the runs below a folder; gives the exit code, 1 where the files of a run are damaged.

    Raises:
        SetupError: there is no such folder.
    """
    if not folder.is_dir():
        raise SetupError(
            f"there is no folder {folder}; runs are in the folder that --output named, by default ./runs, or that the "
            "config file names: fedplug runs FOLDER"
        )
    found = runs_below(folder)
    damaged = [run for run in found if run.problem]
    if as_json:
        plain = [{**vars(run), "resumable": bool(run.resume)} for run in found]
        print(document("runs", [run.problem for run in damaged], folder=str(folder), runs=plain))
        return 1 if damaged else 0
    if not found:
        print(f"there are no runs in {folder}")
        return 0
    print("\n".join(aligned(_HEAD, [_row(run, folder) for run in found], width_of(sys.stdout))))
    for run in damaged:
        tell(f"damaged: {_printable(run.problem)}", sys.stderr)
    stopped = [run for run in found if run.resume]
    if stopped:
        tell(f"{len(stopped)} can be resumed, the last one by: {_printable(stopped[-1].resume)}")
    return 1 if damaged else 0


def _row(run: Listed, folder: Path) -> tuple[str, ...]:
    path = Path(run.folder)
    name = str(path.relative_to(folder)) if path != folder else path.name
    state = "stopped, can be resumed" if run.resume else run.state
    cells = name, run.date[:16] or NOTHING, run.recipe, run.done, run.judged, state, run.verdict or NOTHING
    return tuple(map(_printable, cells))


def _printable(text: str) -> str:
    """A text without what would steer a terminal: a run folder may come from somebody else."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)

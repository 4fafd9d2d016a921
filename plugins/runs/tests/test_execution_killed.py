"""`kill -9` of `fedplug run` at any moment, then `fedplug resume`: nothing is lost, and the result is the same."""

from __future__ import annotations

import dataclasses
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ended import SIGNALLED, gone
from fedplug.recipe.recipe import Recipe
from fedplug_runs import execution
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.folder import read_rows
from fedplug_runs.rows import Row, Sent, Traffic
from fedplug_runs.settings import Settings
from toy_components import UNANIMOUS, paraaegis, toy_catalog
from toy_protocol import read_saved

ROUNDS = 12
FEDPLUG = [sys.executable, "-c", "import sys; from fedplug_terminal.main import main; sys.exit(main())"]


def plain_recipe() -> dict[str, Any]:
    train = {"use": "std.sgd", "epochs": 6, "batch_size": 8, "lr": 0.02}
    plain = paraaegis(rounds=ROUNDS, decay=0.95, train=train, score_parameters=[UNANIMOUS])
    return {**plain, "name": "kill"}


def killed_at(rounds: int, delay: float, output: Path, *arguments: str) -> tuple[Path, list[int]]:
    """A command that ends as by `kill -9`, `delay` seconds after a checkpoint; gives the run folder and the children
    that the process had.
    """
    note = output.with_suffix(".children")
    words = [str(int(signal.SIGKILL)), str(rounds), str(delay), str(note), *arguments]
    done = subprocess.run([sys.executable, "-c", SIGNALLED, *words], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = output.glob("kill-*")
    return folder, [int(child) for child in note.read_text().split()]


def results(folder: Path) -> tuple[list[Row], list[np.ndarray], list[Any]]:
    """The final state of a run: its metrics without times and bytes, its models, and its ledger's record."""
    rows = read_rows(folder)
    nothing = Traffic(Sent(), Sent(), Sent())
    rows = [dataclasses.replace(row, seconds={}, wall_seconds=0.0, cpu_seconds=0.0, bytes=nothing) for row in rows]
    models = list(read_saved(Checkpoints(folder).path(ROUNDS))[0].values())
    return rows, models, json.loads((folder / "ledger.json").read_text())["log"]


def assert_equal_ends(folder: Path, reference: Path) -> None:
    (rows, models, log), (other_rows, other_models, other_log) = results(folder), results(reference)
    assert [row.round for row in rows] == list(range(1, ROUNDS + 1))
    assert rows == other_rows  # the loss of the last row is a fingerprint of the final model
    assert all(np.array_equal(one, other) for one, other in zip(models, other_models, strict=True))
    assert log == other_log


def test_killed_twice_and_resumed_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    """Begun on worker processes, which must not outlive the kill, killed again on the local engine, and finished."""
    recipe = tmp_path / "kill.yaml"
    recipe.write_text(json.dumps(plain_recipe()))
    parsed = Recipe.from_plain(plain_recipe(), toy_catalog())
    code, reference = execution.start(parsed, Settings(output=tmp_path / "whole", quiet=True))
    assert code == 0

    output = tmp_path / "killed"
    moments = [(random.randint(0, 3), random.uniform(0, 0.05)), (random.randint(4, 8), random.uniform(0, 0.05))]
    print("killed at (checkpoint, seconds after it):", moments)
    words = ["run", str(recipe), "--output", str(output), "--quiet", "--engine", "processes", "--workers", "1"]
    folder, workers = killed_at(*moments[0], output, *words)
    assert workers
    killed_at(*moments[1], output, "resume", str(folder), "--quiet")
    assert gone(workers)
    last = subprocess.run([*FEDPLUG, "resume", str(folder), "--quiet"], capture_output=True, text=True, check=False)
    assert last.returncode == 0, last.stderr
    assert_equal_ends(folder, reference)
    assert (folder / "report.html").is_file()

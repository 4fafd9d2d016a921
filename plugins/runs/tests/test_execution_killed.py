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
import pytest
from ended import SIGNALLED, gone
from fedplug.recipe.recipe import Recipe
from fedplug_runs import execution
from fedplug_runs.checkpoint import Checkpoints
from fedplug_runs.folder import read_rows
from fedplug_runs.rows import Row, Sent, Traffic
from fedplug_runs.settings import Settings
from forked import FEDPLUG, ran
from toy_components import UNANIMOUS, paraaegis, toy_catalog
from toy_protocol import read_saved

ROUNDS = 8
NOTED = """
import multiprocessing, sys
from fedplug_runs.checkpoint import Checkpoints


def noted(self, *given, write=Checkpoints.write, note=sys.argv[4] + ".workers"):
    with open(note, "w") as file:
        file.write(" ".join(str(each.pid) for each in multiprocessing.active_children()))
    return write(self, *given)


Checkpoints.write = noted
"""
"""Before `SIGNALLED`: the program notes its workers too, who are children of another process that it has started."""


def plain_recipe() -> dict[str, Any]:
    train = {"use": "std.sgd", "epochs": 6, "batch_size": 8, "lr": 0.02}
    plain = paraaegis(rounds=ROUNDS, decay=0.95, train=train, score_parameters=[UNANIMOUS])
    return {**plain, "name": "kill"}


def interpreted(code: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A program in a new interpreter, after its end."""
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False)


def killed_at(run: Any, rounds: int, delay: float, output: Path, *arguments: object) -> tuple[Path, list[int]]:
    """A command that ends as by `kill -9`, `delay` seconds after a checkpoint; gives the run folder and the children
    and workers that the process had.
    """
    note = output.with_suffix(".children")
    done = run(NOTED + SIGNALLED, int(signal.SIGKILL), rounds, delay, note, *arguments)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = output.glob("kill-*")
    noted = note.read_text() + " " + note.with_suffix(".children.workers").read_text()
    return folder, [int(pid) for pid in noted.split()]


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


@pytest.mark.parametrize("run", [ran, pytest.param(interpreted, marks=pytest.mark.slow)])
def test_killed_twice_and_resumed_ends_as_if_nothing_had_happened(tmp_path: Path, run: Any) -> None:
    """Begun on worker processes, which must not outlive the kill, killed again on the local engine, and finished."""
    recipe = tmp_path / "kill.yaml"
    recipe.write_text(json.dumps(plain_recipe()))
    parsed = Recipe.from_plain(plain_recipe(), toy_catalog())
    code, reference = execution.start(parsed, Settings(output=tmp_path / "whole", quiet=True))
    assert code == 0

    output = tmp_path / "killed"
    moments = [(random.randint(0, 2), random.uniform(0, 0.05)), (random.randint(3, 5), random.uniform(0, 0.05))]
    print("killed at (checkpoint, seconds after it):", moments)
    words = ["run", recipe, "--output", output, "--quiet", "--engine", "processes", "--workers", "1"]
    folder, workers = killed_at(run, *moments[0], output, *words)
    assert workers
    killed_at(run, *moments[1], output, "resume", folder, "--quiet")
    assert gone(workers)
    last = run(FEDPLUG, "resume", folder, "--quiet")
    assert last.returncode == 0, last.stderr
    assert_equal_ends(folder, reference)
    assert (folder / "report.html").is_file()

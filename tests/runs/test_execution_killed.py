"""`kill -9` of `fedplug run` at any moment, then `fedplug resume`: nothing is lost, and the result is the same."""

from __future__ import annotations

import dataclasses
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ended import gone
from fedplug.api.rows import Row, Sent, Traffic
from fedplug.recipe.recipe import Recipe
from fedplug.round.checkpoint import Checkpoints
from fedplug.runs import execution
from fedplug.runs.folder import read_rows
from fedplug.runs.settings import Settings
from toy_components import UNANIMOUS, paraaegis, toy_catalog
from toy_protocol import read_saved

ROUNDS = 12
FEDPLUG = [sys.executable, "-c", "import sys; from fedplug.cli.main import main; sys.exit(main())"]


def plain_recipe() -> dict[str, Any]:
    train = {"use": "std.sgd", "epochs": 6, "batch_size": 8, "lr": 0.02}
    plain = paraaegis(rounds=ROUNDS, decay=0.95, train=train, score_parameters=[UNANIMOUS])
    return {**plain, "name": "kill"}


def fedplug(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*FEDPLUG, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def kill_at(
    process: subprocess.Popen[bytes], output: Path, rounds: int, delay: float, before: Callable[[], None] = lambda: None
) -> Path:
    """Ends the process as `kill -9` does, `delay` seconds after a checkpoint was written; gives the run folder."""
    deadline = time.monotonic() + 300
    while not list(output.glob(f"kill-*/checkpoint/round-{rounds:04d}")):
        assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.002)
    before()
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run was over before it could be killed"
    (folder,) = output.glob("kill-*")
    return folder


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


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
    engine = ("--engine", "processes", "--workers", "1")
    workers: set[int] = set()
    first = fedplug("run", str(recipe), "--output", str(output), "--quiet", *engine)
    folder = kill_at(first, output, *moments[0], before=lambda: workers.update(children_of(first.pid)))
    assert workers
    kill_at(fedplug("resume", str(folder), "--quiet"), output, *moments[1])
    assert gone(workers)
    last = fedplug("resume", str(folder), "--quiet")
    assert last.wait(120) == 0, last.stderr.read().decode() if last.stderr else ""
    assert_equal_ends(folder, reference)
    assert (folder / "report.html").is_file()

"""`fedplug run` and `fedplug resume` as a user meets them: the run folder, interruption, and errors."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from ended import SIGNALLED
from fedplug.recipe.catalog import Catalog
from fedplug_runs import execution
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_terminal.main import main
from forked import FEDPLUG, ran

ENGINES = sorted(Catalog.discover().groups["engine"])
"""Those of the core and of the installed plugins."""
RECIPE = """
name: small
seed: 3
rounds: 2
data: {use: std.digits, clients: 4, train_size: 400, partition: {use: iid}}
model: {use: std.mlp, hidden: [16]}
train: {use: std.sgd, epochs: 1, lr: 0.05}
score_parameters: [{use: paraaegis.magnitude}]
negotiate_mask: {use: paraaegis.vote, ratio: 0.2}
protect:
  encrypted: [{use: std.bfv, key_holder: key_server}]
  noised: [{use: std.clip, norm: 0.1}, {use: std.gaussian, epsilon: 8, delta: 1.0e-5}]
aggregate: {use: std.mean}
postprocess: {encrypted: [std.bfv]}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The recipe as a file, with no data folder and no user config in sight."""
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    file = tmp_path / "small.yaml"
    file.write_text(RECIPE, encoding="utf-8")
    return file


def fedplug(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    """Runs the command line in this process and gives its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedplug", *map(str, words)])
    return int(main() or 0)


def only_run(tmp_path: Path) -> Path:
    (run_dir,) = (tmp_path / "runs").iterdir()
    return run_dir


@pytest.mark.usefixtures("reports")
def test_a_run_leaves_what_the_guide_promises(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedplug(monkeypatch, "run", recipe, "--output", tmp_path / "runs", "--record-wire") == 0
    run_dir, shown = only_run(tmp_path), capsys.readouterr().out
    rows = read_rows(run_dir)
    ledger = json.loads((run_dir / "ledger.json").read_text())
    assert [row.round for row in rows] == [1, 2]
    assert all(0 <= row.accuracy <= 1 and len(row.client_accuracy) == 4 for row in rows)
    assert ledger["verdict"]["status"] == "no_protection"
    for line in read_ledger(run_dir).verdict.text():
        assert line in shown
    assert (run_dir / "report.html").stat().st_size > 10_000
    assert str(run_dir / "report.html") in shown
    assert sorted(path.name for path in (run_dir / "wire").iterdir()) == [f"round-000{n}.wire" for n in range(4)]
    assert json.loads((run_dir / "summary.json").read_text())["versions"]["fedplug-paraaegis"]
    for row in rows:  # phases and zones are two ways to cut the same bytes
        for sent in (row.bytes.up, row.bytes.down, row.bytes.key_server):
            assert sent.total == sum(sent.phases.values()) == sum(sent.zones.values())


def test_a_run_says_what_its_recipe_has_lost(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(f"extends: {recipe.name}\nrounds: 1\ntrain: {{use: baselines.blur, lr: 0.05, norm: 2}}\n")
    recipe.write_text(RECIPE.replace("epochs: 1", "epochs: 3"))
    assert fedplug(monkeypatch, "run", child, "--output", tmp_path / "runs") == 0
    assert f"note: {child}:3:8: baselines.blur does not take over the options" in capsys.readouterr().out


def test_the_last_epsilon_is_the_one_that_was_asked_for(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fedplug(monkeypatch, "run", recipe, "--output", tmp_path / "runs", "-q") == 0
    rows = (only_run(tmp_path) / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["epsilon"] == pytest.approx(8, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--set", "data.use=std.mnist"], "FEDPLUG_DATA"),
        (["--set", "data.use=std.mnist", "--data", "."], "train-images-idx3-ubyte"),
        (["--engine", "proceses"], "did you mean processes"),
        (["--device", "cuda:7"], "cuda"),
        (["--set", "negotiate_mask.ratio=1.2"], "ratio=1.2 must be <= 1"),
        (["--set", "protect.encrypted.0.max_clients=2"], "max_clients"),
    ],
)
def test_what_cannot_run_says_why_without_a_traceback(
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    expected: str,
) -> None:
    assert fedplug(monkeypatch, "run", recipe, "--output", tmp_path / "runs", *words) == 1
    shown = capsys.readouterr().err
    assert expected in shown
    assert "Traceback" not in shown
    assert not list(tmp_path.glob("runs/*"))  # nothing ran, so nothing is left behind


def test_an_output_that_is_a_file_is_an_error(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedplug(monkeypatch, "run", recipe, "--output", recipe) == 1
    assert "--output" in capsys.readouterr().err


def test_resuming_what_is_no_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedplug(monkeypatch, "resume", tmp_path) == 1
    assert "recipe.yaml" in capsys.readouterr().err


@pytest.mark.usefixtures("reports")
def test_ctrl_c_ends_cleanly_says_how_to_resume_and_resume_finishes(recipe: Path, tmp_path: Path) -> None:
    words = ["run", recipe, "--output", tmp_path / "runs", "--set", "rounds=10", "--set", "train.epochs=3"]
    process = ran(SIGNALLED, int(signal.SIGINT), 2, 0.01, tmp_path / "children", *words)
    shown = process.stdout + process.stderr
    assert process.returncode == 130
    assert "fedplug resume" in shown
    assert "Traceback" not in shown
    run_dir = only_run(tmp_path)
    assert (run_dir / "report.html").exists()
    done = ran(FEDPLUG, "resume", run_dir, "--without", "lab.report")  # which imports libraries for seconds
    assert done.returncode == 0, done.stderr
    rows = read_rows(run_dir)
    assert [row.round for row in rows] == list(range(1, 11))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--engine", "foo"], f"there is no engine 'foo'; for engine there is {', '.join(ENGINES)}"),
        (["--engine", "std.mlp"], "there is no engine 'std.mlp'; it is a model component"),
        (["--data", "/nope"], "the folder of data sets /nope does not exist"),
        (["--device", "tpu"], "device=tpu must be auto"),
    ],
)
def test_settings_are_judged_before_anything_is_loaded_or_printed(
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    complaint: str,
) -> None:
    def loaded(*_: object) -> None:
        raise AssertionError("data were loaded")

    monkeypatch.setattr(execution, "World", loaded)
    assert fedplug(monkeypatch, "run", recipe, "--output", tmp_path / "runs", *words) == 1
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.out == ""
    assert not list((tmp_path / "runs").iterdir())


def test_too_little_memory_is_said_before_the_plan(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--output", tmp_path / "runs"]
    assert fedplug(monkeypatch, "run", recipe, *output, "--set", "model.hidden=[100000000000000000]") == 1
    captured = capsys.readouterr()
    assert "it does not fit into this machine's memory of " in captured.err
    assert "examples of shape" not in captured.err
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 38}.__getitem__)
    # 4 clients, 1,210 parameters, an update and scores of 4 bytes each: 38.7 kB.
    assert fedplug(monkeypatch, "run", recipe, *output) == 1
    captured = capsys.readouterr()
    assert "4 clients with a model of 1,210 parameters: that takes over 38.7 kB" in captured.err
    assert "this machine has 38.0 kB" in captured.err
    assert captured.out == ""


def test_a_dry_run_says_what_a_run_takes_and_leaves_nothing(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert fedplug(monkeypatch, "run", recipe, "--dry-run", "--set", "rounds=20") == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].startswith("estimate for 20 rounds, from two rounds measured here")
    assert re.search(r"time: about .+, .+ a round\n  bytes: about .+ up, .+ down\n  memory: about ", shown)
    assert "by the ledger, after 20 rounds:" in shown
    assert sorted(tmp_path.rglob("*")) == before
    assert fedplug(monkeypatch, "run", recipe, "--dry-run", "--set", "data.use=std.mnist") == 1
    assert "FEDPLUG_DATA" in capsys.readouterr().err

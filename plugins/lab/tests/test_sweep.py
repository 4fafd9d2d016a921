"""`fedplug sweep`: what is kept of the runs, and that nothing is lost or run twice."""

from __future__ import annotations

import csv
import functools
import io
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from ended import gone
from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import Catalog
from fedplug.round.protocol import Protocol
from fedplug_lab import study
from fedplug_lab import sweep as sweeps
from fedplug_lab.records import Line, at_work
from fedplug_lab.sections import Result
from fedplug_lab.sweep import columns_of
from fedplug_runs import yaml_source
from fedplug_runs.folder import read_ledger, read_rows
from fedplug_runs.settings import Settings
from fedplug_terminal.main import main
from run_toys import stopped
from sweep_toys import GRID, grid_of
from toy_components import recipe_of


def lines_of(settings: Settings) -> list[Line]:
    return [Line.from_json(line) for line in (settings.output / "sweep.jsonl").read_text().splitlines()]


def results_of(lines: list[Line]) -> list[Result]:
    """Of runs none of which failed."""
    results = [line.result for line in lines if line.result]
    assert len(results) == len(lines)
    return results


# -- running -----------------------------------------------------------------------------------------------------------


def test_a_sweep_runs_everything_and_keeps_a_line_each(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_of(tmp_path, "parameters: {train.scale: [0.01, 0.5]}")
    assert sweeps.sweep(recipe, grid, settings, seeds=[1, 2], catalog=catalog) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("1/4 scale=0.01 seed=1: accuracy 0.")
    assert shown[3].startswith("4/4 scale=0.5 seed=2: accuracy 0.")
    assert re.split(r"\s{2,}", shown[4].strip()) == [
        "scale", "runs", "accuracy", "best", "clear", "toward server", "toward model", "MB up", "MB down", "seconds"
    ]  # fmt: skip
    assert [row.split()[:2] for row in shown[5:7]] == [["0.01", "2"], ["0.5", "2"]]
    lines = lines_of(settings)
    assert len(lines) == 4
    for line, result in zip(lines, results_of(lines), strict=True):
        run = settings.output / line.run
        last = read_rows(run)[-1]
        assert result.accuracy == last.accuracy
        assert result.bytes.up == last.bytes.up.total
        assert result.zones["clear"] == 1.0
        assert result.seconds.keys() >= {"train", "protect"}
        assert result.wall_seconds > 0
        assert result.verdict == str(read_ledger(run).verdict)
        assert result.verdict.startswith("No protection by any guarantee. The server: no guarantee: reads ")
        assert (line.resumed, result.personal_accuracy) == (False, None)
        assert run.name.startswith(f"scale={line.parameters['train.scale']}-seed={line.seed}-20")
    table = list(csv.DictReader(io.StringIO((settings.output / "sweep.csv").read_text())))
    assert [float(row["train.scale"]) for row in table] == [line.parameters["train.scale"] for line in lines]
    accuracies = [result.accuracy for result in results_of(lines)]
    assert [float(row["accuracy"]) for row in table] == accuracies
    assert len(set(accuracies)) == 4, "the parameters do something"


def test_what_is_done_is_not_run_again(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = "parameters: {train.scale: [0.01]}", "parameters: {train.scale: [0.02, 0.01]}"
    assert sweeps.sweep(recipe, grid_of(tmp_path, one), settings, catalog=catalog) == 0
    first = lines_of(settings)
    capsys.readouterr()
    assert sweeps.sweep(recipe, grid_of(tmp_path, two), settings, catalog=catalog) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 of 2 are done already\n1/2 scale=0.02: accuracy")
    assert "2/2" not in shown
    assert [line.parameters["train.scale"] for line in lines_of(settings)] == [0.02, 0.01]
    assert lines_of(settings)[1:] == first
    # Another recipe under the same parameters is another run.
    assert sweeps.sweep(recipe, grid_of(tmp_path, one), settings, ["min_clients=3"], catalog=catalog) == 0
    assert [line.digest for line in lines_of(settings)] != [line.digest for line in first]


THREE = "parameters: {train.scale: [0.01, 0.02, 0.03]}"


def ended_in_the_second_run(round: int, error: BaseException | None = None) -> AbstractContextManager[None]:
    """Inside, the second of the three runs ends with an error, or by Ctrl-C, when that round (0-based) begins."""
    return stopped(lambda protocol, now: protocol.recipe.train.options.scale == 0.02 and now == round, error)  # type: ignore[attr-defined]


def test_a_failed_run_is_recorded_the_others_go_on_and_it_is_tried_again(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_of(tmp_path, THREE)
    with ended_in_the_second_run(0, RuntimeError("the toy broke")):
        assert sweeps.sweep(recipe, grid, settings, catalog=catalog) == 1
    printed = capsys.readouterr()
    assert "2/3 scale=0.02: failed: RuntimeError: the toy broke" in printed.out
    assert "1 of 3 runs failed; the same command tries them again" in printed.err
    assert [bool(line.result) for line in lines_of(settings)] == [True, False, True]
    columns = {column.title: column.cells for column in columns_of(lines_of(settings))}
    assert columns["runs"] == ["1", "0 of 1", "1"]
    assert sweeps.sweep(recipe, grid, settings, catalog=catalog) == 0
    assert [bool(line.result) for line in lines_of(settings)] == [True, True, True]
    assert len(capsys.readouterr().out.splitlines()) == 8, "done already, one run, the table, its file, the page"


def test_a_sweep_leaves_a_page_that_names_every_run(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog
) -> None:
    grid = grid_of(tmp_path, THREE)
    with ended_in_the_second_run(0, RuntimeError("the <toy> broke")):
        sweeps.sweep(recipe, grid, settings, catalog=catalog)
    page = (settings.output / "sweep.html").read_text("utf-8")
    assert "Not complete." in page
    assert "1 of 3 runs have no numbers" in page
    assert "the &lt;toy&gt; broke" in page
    sweeps.sweep(recipe, grid, settings, catalog=catalog)
    page = (settings.output / "sweep.html").read_text("utf-8")
    assert "Not complete." not in page
    first, *_ = lines_of(settings)
    assert first.result is not None
    assert f'<span class="whole">{first.run}</span>' in page
    assert f"accuracy {first.result.accuracy:.3f}" in page
    assert "scale 0.02" in page
    assert page.count("No protection by any guarantee. The server:") == 1, "a verdict that all have is said once"


def test_an_interrupted_sweep_goes_on_and_resumes_the_run(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    grid = grid_of(tmp_path, THREE)
    with ended_in_the_second_run(1):
        assert sweeps.sweep(recipe, grid, settings, ["rounds=2"], catalog=catalog) == 130
    assert "Interrupted; 1 of 3 runs are complete" in capsys.readouterr().out
    assert len(lines_of(settings)) == 1
    assert (settings.output / "sweep.csv").read_text().count("\n") == 2
    rounds: list[tuple[float, int]] = []
    whole = Protocol.round

    def watched(protocol: Protocol, round: int) -> None:
        rounds.append((protocol.recipe.train.options.scale, round))  # type: ignore[attr-defined]
        whole(protocol, round)

    monkeypatch.setattr(Protocol, "round", watched)
    assert sweeps.sweep(recipe, grid, settings, ["rounds=2"], catalog=catalog) == 0
    assert rounds == [(0.02, 1), (0.03, 0), (0.03, 1)], "the interrupted run goes on in its second round"
    lines = lines_of(settings)
    assert [line.resumed for line in lines] == [False, True, False]
    assert [result.rounds for result in results_of(lines)] == [2, 2, 2]
    assert len([path for path in settings.output.iterdir() if path.is_dir()]) == 3


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the processes of a process are listed in /proc")
@pytest.mark.parametrize("number", [
    # Of which the tests of signals and of interrupted sweeps show the parts.
    pytest.param(signal.SIGTERM, id="terminated", marks=pytest.mark.slow), pytest.param(signal.SIGKILL, id="killed"),
])  # fmt: skip
def test_no_run_goes_on_without_the_sweep_that_wants_it(tmp_path: Path, number: signal.Signals) -> None:
    grid = grid_of(tmp_path, "parameters: {train.lr: [0.01, 0.02]}")
    recipe = Path(__file__).parents[3] / "recipes/fedavg.yaml"
    command = ["sweep", recipe, grid, "--set", "rounds=100000", "--jobs", "2", "--output", tmp_path / "runs"]
    words = [sys.executable, "-m", "fedplug", *map(str, command)]
    in_background = functools.partial(signal.signal, signal.SIGINT, signal.SIG_IGN)  # as shells start it there
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, preexec_fn=in_background) as process:
        try:
            until(lambda: len([*tmp_path.glob("runs/*/metrics.jsonl")]) == 2)  # both are past their first round
            workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert len(workers) >= 2
            process.send_signal(number)
            process.wait(300)
            assert gone(map(int, workers), 300)
        finally:
            process.kill()
    assert len([*tmp_path.glob("runs/*/ledger.json")]) == 2, "what an interrupted run writes"


def until(done: Callable[[], bool], seconds: float = 300.0) -> None:
    begun = time.monotonic()
    while not done():
        assert time.monotonic() - begun < seconds
        time.sleep(0.05)


def test_a_run_that_cannot_be_resumed_starts_anew(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_of(tmp_path, "parameters: {train.scale: [0.01]}")
    assert sweeps.sweep(recipe, grid, settings, catalog=catalog) == 0
    for rows in settings.output.glob("*/metrics.jsonl"):
        rows.write_text("")
    for state in settings.output.glob("*/checkpoint/*/server.state"):
        state.write_bytes(b"damaged")
    capsys.readouterr()
    assert sweeps.sweep(recipe, grid, settings, catalog=catalog) == 0
    assert "it starts anew" in capsys.readouterr().out
    assert [line.resumed for line in lines_of(settings)] == [False]


def test_ctrl_c_between_two_runs(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(study, "start", stop)
    assert sweeps.sweep(recipe, grid_of(tmp_path, GRID), settings, catalog=catalog) == 130


def test_what_would_stop_every_run_stops_the_sweep(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog
) -> None:
    grid = grid_of(tmp_path, GRID)
    for changes, expected in (
        ({"engine": "foo"}, "there is no engine 'foo'"),
        ({"data": tmp_path / "nowhere"}, "does not exist"),
        ({"device": "cuda:7"}, "cuda"),
        ({"output": recipe}, "--output"),
    ):
        with pytest.raises(SetupError, match=expected):
            sweeps.sweep(recipe, grid, settings.replace(changes), catalog=catalog)
    assert not settings.output.exists()


def test_only_one_sweep_works_in_a_folder(tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog) -> None:
    with at_work(settings.output, "sweep"), pytest.raises(SetupError, match="another fedplug sweep is at work"):
        sweeps.sweep(recipe, grid_of(tmp_path, GRID), settings, catalog=catalog)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def plain_recipe_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.yaml"
    file.write_text(yaml_source.dump(recipe_of(rounds=1)), encoding="utf-8")
    return file


def fedplug(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["fedplug", *map(str, words)])
    return int(main() or 0)


def test_the_command_line(
    plain_recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_of(tmp_path, "parameters: {train.lr: [0.1, 0.2]}")
    words = ("sweep", plain_recipe_file, grid, "--set", "data.clients=3", "--seeds", 1, 2)
    assert fedplug(monkeypatch, *words, "--dry-run") == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in shown] == [
        f"{2 * i + seed}/4 lr={lr} seed={seed}" for i, lr in enumerate((0.1, 0.2)) for seed in (1, 2)
    ]
    assert not (tmp_path / "runs").exists(), "a dry run leaves nothing behind"
    assert fedplug(monkeypatch, *words, "--jobs", 1, "-q") == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("lr ")
    assert len(lines_of(Settings(output=tmp_path / "runs/sweep-small-grid"))) == 4
    assert fedplug(monkeypatch, *words, "--dry-run") == 0
    assert all("  there: runs/sweep-small-grid/lr=" in line for line in capsys.readouterr().out.splitlines())
    shutil.rmtree(tmp_path / "runs")
    assert fedplug(monkeypatch, "sweep", plain_recipe_file, grid, "--set", "train.lr=1") == 1
    assert "train.lr is given by --set as well" in capsys.readouterr().err
    assert fedplug(monkeypatch, "sweep", plain_recipe_file, grid, "--seeds", 1, -2) == 2

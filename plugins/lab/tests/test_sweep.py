"""`fedplug sweep`: which runs a grid makes, what is kept of them, and that nothing is lost or run twice."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fedplug.api.errors import RecipeError, SetupError
from fedplug.cli.main import main
from fedplug.recipe import yaml_source
from fedplug.recipe.catalog import Catalog
from fedplug.round.protocol import Protocol
from fedplug.runs.files import read_rows
from fedplug.runs.settings import Settings
from fedplug_lab import jobs
from fedplug_lab import sweep as sweeps
from fedplug_lab.grid import Choice, combinations, read_grid, short_names
from fedplug_lab.records import Line, Records, Result, at_work
from fedplug_lab.sweep_table import columns_of
from run_toys import stopped
from toy_components import recipe_of, toy_catalog

GRID = "parameters: {train.scale: [0.01, 0.5], data.partition.alpha: [0.5, 5]}"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return toy_catalog()


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """FedAvg with a push in place of training, as a file."""
    file = tmp_path / "toy.yaml"
    file.write_text(yaml_source.dump(recipe_of(rounds=1, train={"use": "toy.push"})), encoding="utf-8")
    return file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(output=tmp_path / "sweep", device="cpu")


def grid_of(folder: Path, text: str) -> Path:
    file = folder / "grid.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def lines_of(settings: Settings) -> list[Line]:
    return Records(settings.output).lines


def results_of(lines: list[Line]) -> list[Result]:
    """Of runs none of which failed."""
    results = [line.result for line in lines if line.result]
    assert len(results) == len(lines)
    return results


# ---- which runs a grid makes


def test_every_combination_in_order(tmp_path: Path, recipe: Path, catalog: Catalog) -> None:
    text = "{parameters: {train.scale: [1, 2], rounds: [3, 4]}, cases: [{name: a}, {name: b, set: {min_clients: 3}}]}"
    grid = read_grid(grid_of(tmp_path, text), seeds=[5, 6])
    made = combinations(recipe, grid, [], catalog)
    seen = [(one.case, *one.parameters.values(), one.recipe.seed) for one in made]
    assert seen == [
        (case, scale, rounds, seed) for case in "ab" for scale in (1, 2) for rounds in (3, 4) for seed in (5, 6)
    ]
    assert len(grid) == len(made) == 16
    for one in made:
        assert one.recipe.train.options.scale == one.parameters["train.scale"]  # type: ignore[attr-defined]
        assert one.recipe.rounds == one.parameters["rounds"]
        assert one.recipe.min_clients == (3 if one.case == "b" else 2)
    assert made[0].label == "a scale=1 rounds=3 seed=5"


def test_values_of_any_kind_reach_the_recipe_as_they_are(tmp_path: Path, recipe: Path, catalog: Catalog) -> None:
    text = "parameters: {model: [{use: std.mlp, hidden: []}, {use: std.mlp, hidden: [4, 3]}], name: ['1e5', off]}"
    made = combinations(recipe, read_grid(grid_of(tmp_path, text)), [], catalog)
    assert [(one.recipe.model.options.hidden, one.recipe.name) for one in made] == [  # type: ignore[attr-defined]
        ((), "1e5"), ((), "off"), ((4, 3), "1e5"), ((4, 3), "off"),
    ]  # fmt: skip


def test_set_holds_for_every_run_and_the_recipes_seed_is_the_default(
    tmp_path: Path, recipe: Path, catalog: Catalog
) -> None:
    made = combinations(recipe, read_grid(grid_of(tmp_path, GRID)), ["rounds=9"], catalog)
    assert [one.recipe.rounds for one in made] == [9] * 4
    assert [one.recipe.seed for one in made] == [7] * 4
    seeds = read_grid(grid_of(tmp_path, "parameters: {seed: [1, 2]}"))
    assert [one.recipe.seed for one in combinations(recipe, seeds, [], catalog)] == [1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "grid.yaml:1:1: a grid is a mapping with parameters, cases or both; this one is empty"),
        ("[1]", "this one is a list"),
        ("{}", "a grid needs parameters, cases or both"),
        ("parameters: {a: [1", "not YAML"),
        ("param: {a: [1]}", "grid.yaml:1:1: unknown key 'param'; did you mean parameters?"),
        ("parameters: []", "parameters must map paths to lists"),
        ("parameters:\n  rounds: 5", "grid.yaml:2:11: rounds: what to try must be a list; write [5]"),
        ("parameters:\n  rounds: []", "grid.yaml:2:11: rounds: the list is empty; give at least one value"),
        ("parameters:\n  rounds: [1, 2, 1]", "grid.yaml:2:18: rounds: 1 is given twice"),
        ("parameters: {a..b: [1]}", "'a..b' is not a path into a recipe"),
        ("parameters: {a=b: [1]}", "'a=b' is not a path into a recipe"),
        ("cases: {name: a}", "cases must be a list"),
        ("cases: []", "cases must be a list"),
        ("cases: [{set: {rounds: 1}}]", "grid.yaml:1:9: a case is a mapping {name: text, set: {path: value}}"),
        ("cases: [{name: a, sett: {rounds: 1}}]", "unknown key 'sett'; did you mean set?"),
        ("cases: [{name: a, set: [1]}]", "set must map paths to values"),
        ("cases: [{name: a}, {name: a}]", "the case 'a' is there already"),
        ("{parameters: {rounds: [1]}, cases: [{name: a, set: {rounds: 2}}]}", "case 'a' sets rounds too"),
        ("parameters: {rounds: [1], min_clients: [2]}", "min_clients is given by --set as well"),
        ("cases: [{name: a, set: {min_clients: 2}}]", "min_clients is given by --set as well"),
        ("parameters: {seed: [1]}", "--seeds is given as well"),
        (f"parameters: {{a: {list(range(101))}, b: {list(range(100))}}}", "10,100 runs; a sweep has at most 10,000"),
    ],
)
def test_a_grid_that_is_wrong_says_where_and_what(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(RecipeError) as caught:
        read_grid(grid_of(tmp_path, text), seeds=[1], sets=["min_clients=2"])
    assert [problem for problem in caught.value.problems if expected in problem], caught.value.problems


def test_a_seed_given_twice_and_a_grid_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--seeds: a seed is given twice"):
        read_grid(grid_of(tmp_path, GRID), seeds=[1, 2, 1])
    with pytest.raises(RecipeError, match=r"cannot read the grid: there is no such file"):
        read_grid(tmp_path / "none.yaml")


def test_mistakes_of_all_combinations_are_reported_at_once_each_at_its_place(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog
) -> None:
    text = (
        "parameters:\n  train.scale: [0.1, -1]\n  data.partition.alhpa: [1, 2]\n"
        "cases:\n  - {name: good}\n  - {name: bad, set: {protect.clear: null}}\n"
    )
    with pytest.raises(RecipeError) as caught:
        sweeps.sweep(recipe, grid_of(tmp_path, text), settings, catalog=catalog)
    grid = tmp_path / "grid.yaml"
    scale, option, zone = sorted(caught.value.problems, key=lambda p: (not p.startswith(f"{grid}:2"), "alhpa" not in p))
    assert scale.startswith(f"{grid}:2:22: toy.push: scale=-1 must be >= 0")
    assert option.startswith(f"{grid}:3:3: unknown option 'alhpa'")
    assert zone.startswith(f"{recipe}:")
    assert "which nothing covers" in zone
    assert zone.endswith("(with bad scale=0.1 alhpa=1 and 3 more)")
    assert not settings.output.exists(), "nothing has run"


def test_what_is_wrong_with_the_recipe_itself_is_said_once(tmp_path: Path, recipe: Path, catalog: Catalog) -> None:
    recipe.write_text(recipe.read_text().replace("std.mean", "std.mena"))
    with pytest.raises(RecipeError) as caught:
        combinations(recipe, read_grid(grid_of(tmp_path, GRID)), [], catalog)
    (problem,) = caught.value.problems
    assert problem.endswith("did you mean std.mean?")


def test_two_combinations_that_are_the_same_recipe(tmp_path: Path, recipe: Path, catalog: Catalog) -> None:
    with pytest.raises(RecipeError, match="b and a are the same recipe; remove one of them"):
        combinations(recipe, read_grid(grid_of(tmp_path, "cases: [{name: a}, {name: b}]")), [], catalog)


def test_short_names_are_the_shortest_that_differ() -> None:
    paths = ["negotiate_mask.tau", "protect.noised.0.norm", "protect.other.0.norm", "rounds", "x.rounds"]
    assert list(short_names(paths).values()) == ["tau", "noised.0.norm", "other.0.norm", "rounds", "x.rounds"]


def test_an_assignment_reads_back(tmp_path: Path) -> None:
    for value in (0.1, 1e-5, "1e-5", None, [1, {"a": True}], "two\nlines", float("inf")):
        path, _, text = Choice("a.b", value, "", "").assignment.partition("=")
        assert (path, yaml_source.read_text(text, "here").data) == ("a.b", value)


# ---- running


def test_a_sweep_runs_everything_and_keeps_a_line_each(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_of(tmp_path, "parameters: {train.scale: [0.01, 0.5]}")
    assert sweeps.sweep(recipe, grid, settings, seeds=[1, 2], catalog=catalog) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("1/4 scale=0.01 seed=1: accuracy 0.")
    assert shown[3].startswith("4/4 scale=0.5 seed=2: accuracy 0.")
    assert re.split(r"\s{2,}", shown[4].strip()) == [
        "scale", "runs", "accuracy", "best", "clear", "seconds", "MB up", "MB down"
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
        assert result.verdict == json.loads((run / "ledger.json").read_text())["verdict"]
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
    assert [line.parameters["train.scale"] for line in lines_of(settings)] == [0.01, 0.02]
    assert lines_of(settings)[:1] == first
    # Another recipe under the same parameters is another run.
    assert sweeps.sweep(recipe, grid_of(tmp_path, one), settings, ["min_clients=3"], catalog=catalog) == 0
    assert len(lines_of(settings)) == 3


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
    assert [cells for title, cells, _ in columns_of(lines_of(settings)) if title == "runs"] == [["1", "0 of 1", "1"]]
    assert sweeps.sweep(recipe, grid, settings, catalog=catalog) == 0
    assert [bool(line.result) for line in lines_of(settings)] == [True, False, True, True]
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
    assert page.count("NO DP") == 1, "a verdict that all have is said once"


def test_an_interrupted_sweep_goes_on_and_resumes_the_run(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    grid = grid_of(tmp_path, THREE)
    with ended_in_the_second_run(1):
        assert sweeps.sweep(recipe, grid, settings, ["rounds=2"], catalog=catalog) == 130
    assert "Interrupted; 1 of 3 runs are recorded" in capsys.readouterr().out
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


def test_a_run_that_cannot_be_resumed_starts_anew(
    tmp_path: Path, recipe: Path, settings: Settings, catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = grid_of(tmp_path, "parameters: {train.scale: [0.01]}")
    assert sweeps.sweep(recipe, grid, settings, catalog=catalog) == 0
    (settings.output / "sweep.jsonl").write_text("")
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

    monkeypatch.setattr(jobs, "start", stop)
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


# ---- the command


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
    assert fedplug(monkeypatch, *words, "-q") == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("lr ")
    assert len(Records(tmp_path / "runs/sweep-small-grid").lines) == 4
    assert fedplug(monkeypatch, *words, "--dry-run") == 0
    assert all(line.endswith("done") for line in capsys.readouterr().out.splitlines())
    shutil.rmtree(tmp_path / "runs")
    assert fedplug(monkeypatch, "sweep", plain_recipe_file, grid, "--set", "train.lr=1") == 1
    assert "train.lr is given by --set as well" in capsys.readouterr().err
    assert fedplug(monkeypatch, "sweep", plain_recipe_file, grid, "--seeds", 1, -2) == 2

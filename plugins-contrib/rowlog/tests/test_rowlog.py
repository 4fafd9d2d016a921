"""A run with the extension, requested in each of the possible ways."""

from __future__ import annotations

import ast
import csv
import json
import sys
from pathlib import Path
from typing import Any

import fedplug
import fedplug_rowlog.table
import pytest
from fedplug_kit.static import check_component
from fedplug_terminal.main import main

RECIPE: dict[str, Any] = {
    "name": "logged",
    "seed": 1,
    "rounds": 2,
    "data": {"use": "std.digits", "clients": 2, "train_size": 100, "partition": {"use": "std.iid"}},
    "model": {"use": "std.mlp", "hidden": []},
    "train": {"use": "std.sgd", "epochs": 1},
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
    "protect": {"clear": []},
    "aggregate": {"use": "std.mean"},
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")


def lines(file: str) -> list[dict[str, str]]:
    with open(file, newline="", encoding="utf-8") as rows:
        return list(csv.DictReader(rows))


def test_conforms() -> None:
    check_component("rowlog.csv")


def test_uses_the_public_api_only() -> None:
    nodes = list(ast.walk(ast.parse(Path(fedplug_rowlog.table.__file__).read_text(encoding="utf-8"))))
    taken = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and "fedplug" in str(node.module)}
    assert taken == {"fedplug", "fedplug.api.events", "fedplug_runs.events", "fedplug_runs.files"}


def test_python_asks_for_it() -> None:
    run = fedplug.run(RECIPE, listeners=["rowlog.csv", {"use": "rowlog.csv", "file": "own.csv", "columns": ["loss"]}])
    assert [line["round"] for line in lines("rows.csv")] == ["1", "2"]
    assert [float(line["accuracy"]) for line in lines("rows.csv")] == [row.accuracy for row in run.metrics]
    assert [float(line["loss"]) for line in lines("own.csv")] == [row.loss for row in run.metrics]
    fedplug.run(RECIPE, rounds=1, quiet=True, listeners=["rowlog.csv"])
    assert [line["round"] for line in lines("rows.csv")] == ["1", "2", "1"]  # one header, then more lines


def test_a_recipe_asks_for_it() -> None:
    run = fedplug.run(RECIPE, extensions=[{"use": "rowlog.csv", "file": "recipe.csv"}], rounds=1)
    assert len(lines(str(run.folder / "recipe.csv"))) == 1


def test_the_command_line_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("r.yaml").write_text(json.dumps(RECIPE), encoding="utf-8")  # JSON is YAML
    words = ["run", "r.yaml", "--with", "{use: rowlog.csv, file: shell.csv}", "--set", "rounds=1", "-q"]
    monkeypatch.setattr(sys, "argv", ["fedplug", *words])
    assert main() == 0
    assert len(lines("shell.csv")) == 1


@pytest.mark.parametrize("file", ["../../mine.csv", "/tmp/rowlog-mine.csv"])
def test_a_recipe_alone_writes_nothing_outside_its_run(file: str, tmp_path: Path) -> None:
    inside = {**RECIPE, "extensions": [{"use": "rowlog.csv", "file": file}]}
    with pytest.raises(fedplug.FedplugError, match=r"outside the run folder.*--allow-outside"):
        fedplug.run(inside, quiet=True)
    assert not Path(file).exists()
    assert not list(tmp_path.rglob("*.csv"))


def test_of_a_recipe_the_file_is_in_the_run_folder_unless_the_user_allows_more() -> None:
    inside = {**RECIPE, "extensions": [{"use": "rowlog.csv", "file": "sub/rows.csv"}]}
    folder = fedplug.run(inside, quiet=True).folder
    assert [line["round"] for line in lines(str(folder / "sub/rows.csv"))] == ["1", "2"]
    fedplug.run({**RECIPE, "extensions": [{"use": "rowlog.csv", "file": "mine.csv"}]}, quiet=True, allow_outside=True)
    assert [line["round"] for line in lines("mine.csv")] == ["1", "2"]

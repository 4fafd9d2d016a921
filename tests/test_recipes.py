"""Every recipe in the repository is sound, and those that need no data folder really run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fedplug.catalog import Catalog
from fedplug.recipe import Recipe, load_recipe
from fedplug.run_command import start
from fedplug.settings import Settings

ROOT = Path(__file__).parents[1]
RECIPES = sorted(
    path
    for folder in (ROOT / "recipes", ROOT / "plugins", ROOT / "plugins-contrib")
    for path in folder.rglob("*.yaml")
    if "recipes" in path.parts and ".venv" not in path.parts
)
PAPER = ROOT / "recipes" / "paper"
SMALL = ["rounds=2", "data.clients=4", "train.epochs=1"]
DIGITS = ["data.use=std.digits", "model={use: std.mlp, hidden: [16]}"]

FIRST = [path for path in RECIPES if PAPER not in path.parents]
FASHION = [path for path in RECIPES if path.parent.name == "fashion-mnist"]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.discover()


def test_there_are_recipes() -> None:
    assert len(FIRST) >= 10
    assert len(FASHION) >= 20


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_the_recipe_passes_the_check(path: Path, catalog: Catalog) -> None:
    recipe = load_recipe(path, catalog=catalog)
    assert Recipe.from_plain(recipe.to_plain(), catalog).digest == recipe.digest


@pytest.mark.parametrize("path", RECIPES, ids=name)
def test_the_recipe_begins_by_saying_what_it_shows(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    if PAPER not in path.parents:
        comments = [line for line in lines if line.startswith("#")]
        assert any(line.startswith("# Expect: ") and "TODO" not in line for line in comments)
        assert any(line.startswith("# Change: ") for line in comments)


@pytest.mark.parametrize("path", FIRST, ids=name)
def test_the_recipe_runs(path: Path, tmp_path: Path) -> None:
    sampled = "sampling" in path.read_text(encoding="utf-8")
    run(path, [*SMALL, *(["data.clients=10"] if sampled else [])], tmp_path)


# Rows that differ in one number only (a ratio, a clipping threshold, a number of clients) run once.
@pytest.mark.parametrize(
    "row",
    ["fedavg", "dp-fedavg", "ckks-fedavg", "serial-dp-he", "varying-dp", "static-p0.1", "dynamic-p0.2-g0.9"]
    + ["strategy-min", "strategy-random", "clip-0.01"],
)
def test_the_row_of_the_paper_runs_on_digits(row: str, tmp_path: Path) -> None:
    run(PAPER / "paraaegis" / "fashion-mnist" / f"{row}.yaml", [*SMALL, *DIGITS], tmp_path)


@pytest.mark.parametrize("path", FASHION, ids=name)
def test_both_sizes_of_the_paper_have_the_same_rows(path: Path) -> None:
    assert (path.parents[1] / "imagenette" / path.name).is_file()


def run(path: Path, sets: list[str], tmp_path: Path) -> None:
    """Runs a recipe for two rounds and looks at what it leaves."""
    recipe = load_recipe(path, sets)
    code, run_dir = start(recipe, Settings(output=tmp_path, quiet=True, device="cpu"))
    assert code == 0
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2]
    assert all(row["accuracy"] is not None for row in rows[-1:])
    assert json.loads((run_dir / "ledger.json").read_text())["verdict"]

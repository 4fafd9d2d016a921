"""Which runs a grid makes, and where a grid or a recipe is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug_lab import sweep as sweeps
from fedplug_lab.grid import Choice, combinations, read_grid, short_names
from fedplug_runs import yaml_source
from fedplug_runs.settings import Settings
from sweep_toys import GRID, grid_of


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


def test_long_values_that_begin_alike_are_told_apart(tmp_path: Path, recipe: Path, catalog: Catalog) -> None:
    begin = "x" * 50
    grid = read_grid(grid_of(tmp_path, f"parameters: {{name: [{begin}1, {begin}2]}}"))
    assert len(combinations(recipe, grid, [], catalog)) == 2


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
        ("", "grid.yaml:1:1: a grid is a mapping with parameters or cases; this one is empty"),
        ("[1]", "this one is a list"),
        ("{}", "a grid needs parameters, cases or both"),
        ("parameters: {a: [1", "not YAML"),
        ("param: {a: [1]}", "grid.yaml:1:1: unknown key 'param'; did you mean parameters?"),
        ("parameters: []", "parameters=[] must be a mapping (what to try, by path"),
        ("parameters:\n  rounds: 5", "grid.yaml:2:11: the grid: parameters.rounds=5 must be a list, such as [5]"),
        ("parameters:\n  rounds: []", "grid.yaml:2:11: the grid: parameters.rounds=[] must be at least 1 long"),
        ("parameters:\n  rounds: [1, 2, 1]", "grid.yaml:2:11: the grid: parameters.rounds=[1, 2, 1]: 1 is given twice"),
        ("parameters: {a..b: [1]}", "'a..b' is not a path into a recipe"),
        ("parameters: {a=b: [1]}", "'a=b' is not a path into a recipe"),
        ("cases: {name: a}", "must be a list (each with every combination"),
        ("cases: []", "a grid needs parameters, cases or both"),
        ("cases: [{set: {rounds: 1}}]", "grid.yaml:1:9: the grid: cases.0 needs 'name' (of the case, different from"),
        ("cases: [{name: a, sett: {rounds: 1}}]", "unknown option 'sett' of the grid; did you mean set?"),
        ("cases: [{name: a, set: [1]}]", "cases.0.set=[1] must be a mapping (values by path"),
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

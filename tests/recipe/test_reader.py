"""Every mistake of a recipe is reported at once, each at its place, and no input causes a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examples import examples
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_runs import yaml_source
from fedplug_runs.overlay import load_recipe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recipe_texts import GOOD, PLAIN_DATA, changed, problems, write


def test_three_mistakes_are_three_problems_with_place_and_remedy(tmp_path: Path, fake_catalog: Catalog) -> None:
    text = GOOD.replace("ratio: 0.25", "ratio: 1.2").replace("epsilon: 8", "epsilon: 0").replace("std.mean", "std.maen")
    assert problems(write(tmp_path, text), fake_catalog) == [
        "r.yaml:9:41: acme.vote: ratio=1.2 must be <= 1 (share that is encrypted)",
        "r.yaml:12:73: std.gaussian: epsilon=0 must be > 0; to switch the noise off, write noised: []",
        "r.yaml:13:12: unknown aggregate component 'std.maen'; did you mean std.mean?",
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"ronds": 3}, "recipe.ronds: unknown key 'ronds'; did you mean rounds?"),
        (
            {"engine": "local"},
            "recipe.engine: unknown key 'engine'; it is a setting of the run, not of the protocol: --engine",
        ),
        (
            {"record_wire": True},
            "recipe.record_wire: unknown key 'record_wire'; it is a setting of the run, not of the "
            "protocol: --record-wire",
        ),
        ({"rounds": "many"}, "recipe.rounds: rounds='many' must be a whole number"),
        ({"seed": -1}, "recipe.seed: seed=-1 must be >= 0"),
        ({"name": "a/b"}, "recipe.name: name='a/b' must be text of the form"),
        ({"buffers": "men"}, "recipe.buffers: buffers='men' must be 'local' or 'mean'; did you mean mean?"),
        ({"delta": 1}, "recipe.delta: delta=1 must be < 1"),
        (
            {"sampling": {"rate": 0.5, "sheme": "fixed"}},
            "recipe.sampling.sheme: unknown option 'sheme'; did you mean scheme?",
        ),
        ({"sampling": {"scheme": "fixed"}}, "recipe.sampling: sampling needs 'rate' (share of the clients"),
        (
            {"sampling": {"rate": 0.25}},
            "recipe.sampling.rate: rate=0.25 gives 1 of 4 clients a round, fewer than "
            "min_clients=2; raise it to 0.5 or more",
        ),
        ({"train": 3}, "recipe.train: a component is written {use: name, option: value} or as a name, not 3"),
        ({"train": {"lr": 1}}, "recipe.train: train needs 'use'; for trainer there is std.sgd"),
        (
            {"train": {"use": "std.clip", "norm": 1}},
            "recipe.train.use: unknown trainer component 'std.clip'; it is a protect "
            "component; for trainer there is std.sgd",
        ),
        ({"train": {"use": "std.sgd", "lr": [1]}}, "recipe.train.lr: std.sgd: lr=[1] must be a number"),
        ({"train": {"use": "std.sgd", "name": "a b"}}, "recipe.train.name: name='a b' must be letters"),
        ({"train": {"use": "std.sgd", "name": "fedplug"}}, "recipe.train.name: name='fedplug' must be letters"),
        (
            {"train": {"use": "std.sgd", "name": "x"}, "model": {"use": "std.mlp", "name": "x"}},
            "recipe.train.name: name 'x' is given twice",
        ),
        (
            {"model": {"use": "std.mlp", "hidden": [8, "x"]}},
            "recipe.model.hidden.1: std.mlp: hidden.1='x' must be a whole number",
        ),
        ({"data": "std.digits"}, "recipe.data: data must be a mapping"),
        (
            {"data": {"use": "std.digits", "clients": 0, "partition": "dirichlet"}},
            "recipe.data.clients: data: clients=0 must be >= 1",
        ),
        (
            {"data": {"use": "std.digits", "clients": True, "partition": "dirichlet"}},
            "recipe.data.clients: data: clients=true must be a whole number",
        ),
        ({"data": {"use": "std.digits", "partition": "dirichlet"}}, "recipe.data: data needs 'clients'"),
        (
            {"accountant": "fedre.x"},
            "recipe.accountant: unknown accountant component 'fedre.x'; no installed plugin offers fedre.*",
        ),
    ],
)
def test_each_mistake_is_named(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, change: dict[str, Any], expected: str
) -> None:
    found = changed(plain_recipe, fake_catalog, **change)
    assert any(problem.startswith(expected) for problem in found), found


@pytest.mark.parametrize(
    "key", ["name", "seed", "rounds", "data", "model", "train", "negotiate_mask", "protect", "aggregate"]
)
def test_required_keys(plain_recipe: dict[str, Any], fake_catalog: Catalog, key: str) -> None:
    del plain_recipe[key]
    assert f"recipe: the recipe needs {key!r}" in " ".join(changed(plain_recipe, fake_catalog))


def test_files_that_are_no_recipe(tmp_path: Path, fake_catalog: Catalog) -> None:
    assert "there is no such file" in problems(tmp_path / "absent.yaml", fake_catalog)[0]
    assert "Is a directory" in problems(tmp_path, fake_catalog)[0]
    assert "this one is empty" in problems(write(tmp_path, ""), fake_catalog, "rounds=3")[0]
    assert "this one is a list" in problems(write(tmp_path, "[1]"), fake_catalog)[0]
    (tmp_path / "latin").write_bytes(b"name: \xe9")
    assert "not UTF-8" in problems(tmp_path / "latin", fake_catalog)[0]


PATHS = st.sampled_from(
    [
        "name",
        "seed",
        "rounds",
        "data",
        "data.clients",
        "data.partition",
        "data.partition.alpha",
        "model",
        "model.use",
        "train",
        "negotiate_mask",
        "negotiate_mask.ratio",
        "protect",
        "protect.encrypted",
        "protect.encrypted.0",
        "protect.noised",
        "protect.noised.0",
        "protect.noised.0.norm",
        "protect.noised.1.use",
        "aggregate",
        "postprocess",
        "postprocess.encrypted",
        "postprocess.encrypted.0",
        "sampling",
        "sampling.rate",
        "min_clients",
        "buffers",
        "delta",
        "attack",
        "extensions",
        "accountant",
        "score_parameters",
        "extends",
        "x.y",
        "0",
    ]
)


WORDS = st.sampled_from(
    ["std.clip", "std.ckks", "clip", "acme.vote", "std.spy", "", "@", "{use: std.clip}", "[std.ckks]"]
)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(PATHS, WORDS | PLAIN_DATA.map(yaml_source.dump)), min_size=1, max_size=3))
def test_no_input_is_answered_with_a_traceback(
    fake_catalog: Catalog, tmp_path: Path, changes: list[tuple[str, str]]
) -> None:
    path = tmp_path / "r.yaml"
    if not path.exists():
        path.write_text(GOOD)
    try:
        recipe = load_recipe(path, [f"{where}={value}" for where, value in changes], fake_catalog)
    except RecipeError as error:
        refused = error.problems
    else:
        assert Recipe.from_plain(recipe.to_plain(), fake_catalog).digest == recipe.digest
        refused = ["nothing: it is a valid recipe"]
    assert refused
    assert all(": " in problem for problem in refused)

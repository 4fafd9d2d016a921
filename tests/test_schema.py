"""The JSON schema accepts what `fedplug check` accepts, and refuses common mistakes."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_lab.schema import recipe_schema


def errors(schema: dict[str, Any], recipe: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(recipe)]


@pytest.fixture
def schema(fake_catalog: Catalog) -> dict[str, Any]:
    built, failures = recipe_schema(fake_catalog)
    assert failures == []
    return built


def test_the_schema_is_a_schema_and_json(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema


def test_it_accepts_recipes_short_and_resolved(
    schema: dict[str, Any], plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    assert errors(schema, plain_recipe) == []
    changes = {"sampling": {"rate": 0.5}, "extensions": ["std.spy"], "accountant": "std.book", "delta": 1e-6}
    recipe = Recipe.from_plain(plain_recipe | changes, fake_catalog)
    assert errors(schema, recipe.to_plain()) == []


def test_it_accepts_data_at_sites(
    schema: dict[str, Any], plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    agreed = {"shape": [1, 8, 8], "classes": ["a", "b"], "mean": [0.5], "std": [0.25]}
    data = {"use": "std.digits", "clients": 4, "at": "sites", "agreed": agreed}
    assert errors(schema, plain_recipe | {"data": data}) == []
    assert errors(schema, Recipe.from_plain(plain_recipe | {"data": data}, fake_catalog).to_plain()) == []
    for wrong in ({"at": "home"}, {"agreed": {"shape": [1]}}):
        assert errors(schema, plain_recipe | {"data": data | wrong}) != []


def test_a_recipe_that_extends_another_may_leave_things_out(schema: dict[str, Any]) -> None:
    assert errors(schema, {"extends": "a.yaml", "rounds": 2, "negotiate_mask": {"ratio": 0.5}}) == []
    assert errors(schema, {"rounds": 2, "negotiate_mask": {"ratio": 0.5}}) != []


@pytest.mark.parametrize(
    "change",
    [
        {"ronds": 3},
        {"rounds": 0},
        {"rounds": "x"},
        {"sampling": {"rate": 2}},
        {"negotiate_mask": {"use": "acme.vote", "ratio": 1.2}},
        {"negotiate_mask": {"use": "acme.vote", "ties": "frist"}},
        {"negotiate_mask": {"use": "acme.vote", "rato": 0.1}},
        {"negotiate_mask": {"ratio": 0.1}},
        {"aggregate": {"use": "std.clip", "norm": 1}},
        {"protect": {"noised": [{"use": "std.clip"}]}},
        {"protect": {"noised": {"use": "std.clip", "norm": 1}}},
        {"data": {"use": "std.digits", "clients": 4}},
        {"data": {"use": "std.digits", "clients": 0, "partition": "std.dirichlet"}},
        {"model": None},
    ],
)
def test_it_refuses_what_check_refuses(
    schema: dict[str, Any], plain_recipe: dict[str, Any], fake_catalog: Catalog, change: dict[str, Any]
) -> None:
    assert errors(schema, plain_recipe | change) != []
    with pytest.raises(Exception, match="recipe"):
        Recipe.from_plain(plain_recipe | change, fake_catalog)


def test_the_installed_plugins_are_in_it() -> None:
    built, failures = recipe_schema(Catalog.discover())
    assert failures == []
    jsonschema.Draft202012Validator.check_schema(built)
    json.dumps(built, allow_nan=False)
    names = {entry.name for entry in Catalog.discover() if entry.group == "protect"}
    assert {f"protect:{name}" for name in names} <= set(built["$defs"])
    ratio = built["$defs"]["negotiate_mask:paraaegis.vote"]["properties"]["ratio"]
    assert ratio["description"]
    assert ratio["maximum"] == 1


def test_a_component_that_cannot_be_imported_is_left_out_and_named(fake_catalog: Catalog) -> None:
    from fedplug.recipe.catalog import Entry

    fake_catalog.groups["protect"]["x.gone"] = Entry("x.gone", "protect", "no_such_module:X", "x-plugin", "1")
    built, failures = recipe_schema(fake_catalog)
    assert len(failures) == 1
    assert "x-plugin" in failures[0]
    assert "protect:x.gone" not in built["$defs"]

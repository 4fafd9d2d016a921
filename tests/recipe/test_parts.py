"""The parts of a recipe: the order of zones, the keys of `data`, and reading a place back."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.parts import Split, zone_order
from fedplug.recipe.recipe import Recipe
from pydantic import ValidationError
from recipe_texts import changed


def test_zones_of_a_recipes_own_come_last_and_sorted() -> None:
    assert zone_order({"later", "clear", "also"}) == ("encrypted", "noised", "retained", "clear", "also", "later")


@pytest.mark.parametrize("given", [{}, {"clients": 0}, {"clients": "4"}, {"clients": 4, "public": -1}])
def test_the_split_of_data_is_whole_numbers(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Split.model_validate(given)


def test_a_reference_is_written_as_a_name(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    recipe = Recipe.from_plain(plain_recipe, fake_catalog)
    (opener,) = recipe.postprocess["encrypted"]
    assert opener.is_reference
    assert opener.to_plain() == opener.name
    assert recipe.data.to_plain()["clients"] == recipe.clients
    assert recipe.data.partition.section == "partition"


AGREED = {"shape": [3, 8, 8], "classes": ["cat", "dog"], "mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
SITES = {"use": "std.digits", "clients": 4, "at": "sites", "agreed": AGREED}


def test_data_at_sites_reads_back_and_is_in_the_digest(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    recipe = Recipe.from_plain(plain_recipe | {"data": SITES}, fake_catalog)
    assert recipe.data.partition is None
    assert {use.section for use in recipe.uses}.isdisjoint({"partition"})
    again = Recipe.from_plain(recipe.to_plain(), fake_catalog)
    assert again == recipe
    digests = {recipe.digest, Recipe.from_plain(plain_recipe, fake_catalog).digest}
    for change in ({"shape": [3, 9, 8]}, {"classes": ["dog", "cat"]}, {"std": [0.25, 0.25, 0.2]}, {"kinds": ["a"]}):
        data = SITES | {"agreed": AGREED | change}
        digests.add(Recipe.from_plain(plain_recipe | {"data": data}, fake_catalog).digest)
    assert len(digests) == 6


def test_data_that_is_split_is_written_as_it_was_before_there_were_sites(
    plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    """So the digest of a recipe without sites does not change, and its runs can be resumed."""
    plain = Recipe.from_plain(plain_recipe, fake_catalog).data.to_plain()
    assert list(plain) == ["use", "name", "clients", "public", "partition"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"agreed": None}, "recipe.data: data: at: sites needs 'agreed', what the data of all sites has in common"),
        ({"at": "here", "partition": "std.dirichlet"}, "recipe.data: data: agreed is for data at sites; write"),
        ({"at": "home"}, "recipe.data.at: data: at='home' must be 'here' or 'sites'"),
        ({"public": 3}, "recipe.data: data: public=3, but nobody has the examples of all sites"),
        ({"partition": "std.dirichlet"}, "recipe.data.partition: data at sites is not split: each client has what"),
        ({"agreed": AGREED | {"mean": [0.5]}}, "recipe.data.agreed: data: agreed.mean has 1 numbers, but examples of"),
        ({"agreed": AGREED | {"std": [0.5, 0.5, 0]}}, "recipe.data.agreed.std.2: data: agreed.std.2=0 must be > 0"),
        ({"agreed": AGREED | {"shape": []}}, "recipe.data.agreed.shape: data: agreed.shape=[]"),
        ({"agreed": AGREED | {"size": 3}}, "recipe.data.agreed.size: unknown option 'size' of data"),
    ],
)
def test_what_is_wrong_with_data_at_sites(
    plain_recipe: dict[str, Any], fake_catalog: Catalog, change: dict[str, Any], expected: str
) -> None:
    problems = changed(plain_recipe, fake_catalog, data=SITES | change)
    assert problems[0].startswith(expected), problems

"""The parts of a recipe: the order of zones, the keys of `data`, and what a place reads back from."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.parts import Split, zone_order
from fedplug.recipe.recipe import Recipe
from pydantic import ValidationError


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
    assert recipe.partition.section == "partition"

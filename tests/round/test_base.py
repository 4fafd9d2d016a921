"""The protocol's own steps are called like a component, under a name that no component can have."""

from __future__ import annotations

import pytest
from fedplug import RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import NAME
from toy_components import recipe_of, toy_catalog


def test_no_component_can_take_the_name_of_the_steps() -> None:
    with pytest.raises(RecipeError, match=NAME):
        Recipe.from_plain(recipe_of(train={"use": "toy.push", "name": NAME}), toy_catalog())

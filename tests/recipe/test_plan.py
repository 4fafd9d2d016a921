"""The plan of a run names every component in the order in which it acts."""

from __future__ import annotations

from typing import Any

from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.plan import plan_of
from fedplug.recipe.recipe import Recipe


def test_the_plan_names_every_component_once_in_the_order_of_a_round(
    plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    recipe = Recipe.from_plain(plain_recipe, fake_catalog)
    plan = plan_of(recipe, Composition(recipe, fake_catalog))
    hooks = [hook for hook, _, _ in plan]
    assert hooks[:2] == ["data", "partition"]
    assert hooks.index("train") < hooks.index("negotiate_mask") < hooks.index("aggregate")
    assert hooks[-1].startswith("postprocess")
    named = {name for _, name, _ in plan if name != "–"}
    assert named >= {use.name for use in recipe.uses() if use.group != "extension"} - {"–"}
    assert all(text for _, _, text in plan)

"""The plan of a run names every component in the order in which it acts."""

from __future__ import annotations

from typing import Any

from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug_runs.plan import plan_of


def test_the_plan_names_every_component_once_in_the_order_of_a_round(
    plain_recipe: dict[str, Any], fake_catalog: Catalog
) -> None:
    recipe = Recipe.from_plain(plain_recipe, fake_catalog)
    plan = plan_of(recipe, Composition(recipe))
    hooks = [hook for hook, _, _ in plan]
    assert hooks[:2] == ["data", "partition"]
    assert hooks.index("train") < hooks.index("negotiate_mask") < hooks.index("aggregate")
    assert hooks[-1].startswith("postprocess")
    named = {name for _, name, _ in plan if name != "–"}
    assert named >= {use.name for use in recipe.uses if use.group != "extension"} - {"–"}
    assert all(text for _, _, text in plan)


def test_the_plan_says_what_sites_have_agreed_on(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    agreed = {"shape": [1, 28, 28], "classes": ["no", "yes"], "mean": [0.5], "std": [0.25]}
    data = {"use": "std.digits", "clients": 4, "at": "sites", "agreed": agreed}
    recipe = Recipe.from_plain(plain_recipe | {"data": data}, fake_catalog)
    (_, _, text) = plan_of(recipe, Composition(recipe))[1]
    assert text == (
        "each of 4 clients has what lies at its site, the server nothing; inputs 1x28x28, 2 classes, mean 0.5, std 0.25"
    )

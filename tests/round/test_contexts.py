"""The context of a party: the public facts of its own copy of the recipe."""

from __future__ import annotations

from fedplug import Server
from fedplug.api.types import Layout
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.contexts import make_context
from toy_components import recipe_of, toy_catalog


def test_a_context_holds_the_recipes_facts_for_one_party_and_round() -> None:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(rounds=7, seed=11), catalog)
    composition, layout, party = Composition(recipe, catalog), Layout.of([("w", (2, 3))]), Server()
    ctx = make_context(recipe, composition, layout, 4, party)
    assert (ctx.round, ctx.rounds, ctx.seed, ctx.digest) == (4, 7, 11, recipe.digest)
    assert (ctx.num_clients, ctx.min_clients, ctx.zones) == (recipe.data.clients, recipe.min_clients, recipe.zones)
    assert ctx.layout is layout
    assert ctx.party is party
    assert ctx.public is None  # as at the key server
    assert ctx.components is composition.components
    assert [step.link.hook for step in ctx.steps("clear")] == ["aggregate"]
    assert make_context(recipe, composition, layout, 4, Server()).rng("a").random() == ctx.rng("a").random()

"""The name of the protocol's own steps, and the public facts of a round, as any party has them from its own recipe."""

from __future__ import annotations

import dataclasses

import pytest
from fedplug import RecipeError
from fedplug.api.blocks import Layout
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import NAME, facts_of
from fedplug_std.mean import Mean
from toy_components import recipe_of, toy_catalog


def test_no_component_can_take_the_name_of_the_steps() -> None:
    with pytest.raises(RecipeError, match=NAME):
        Recipe.from_plain(recipe_of(train={"use": "toy.push", "name": NAME}), toy_catalog())


def test_facts_are_those_of_the_recipe_and_round() -> None:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(rounds=7, seed=11), catalog)
    composition, layout = Composition(recipe), Layout.of([("w", (2, 3))])
    facts = facts_of(composition, layout, 4)
    assert (facts.round, facts.rounds, facts.seed, facts.digest) == (4, 7, 11, recipe.digest)
    assert (facts.num_clients, facts.min_clients) == (recipe.data.clients, recipe.min_clients)
    assert facts.zones == recipe.zones
    assert facts.layout is layout
    assert facts.public is None  # as at the key server
    assert facts.published == {}
    assert facts.components.keys() == composition.components.keys()
    assert [step.link.hook for step in facts.steps("clear")] == ["aggregate"]
    assert facts_of(composition, layout, 4).rng("a").random() == facts.rng("a").random()


def test_links_are_folded_once_a_round() -> None:
    composition, layout = Composition(Recipe.from_plain(recipe_of(), toy_catalog())), Layout.of([("w", (2, 3))])
    facts = facts_of(composition, layout, 1)
    assert facts.steps("clear") is facts.steps("clear")
    fewer = dataclasses.replace(facts, layout=Layout.of([("w", (5,))]))
    assert fewer.steps("clear")[0].before.layers == (5,)


def test_components_of_facts_are_made_of_options_alone() -> None:
    composition = Composition(Recipe.from_plain(recipe_of(), toy_catalog()))
    layout = Layout.of([("w", (2, 3))])
    facts, others = (facts_of(composition, layout, 1) for _ in range(2))
    mean = facts.component("std.mean")
    assert mean is facts.component("std.mean")
    assert mean is not composition.components["std.mean"]
    assert mean is not others.component("std.mean")
    assert (type(mean), mean.name, mean.options) == (Mean, "std.mean", composition.aggregator.options)


def test_facts_of_a_round_have_what_was_published_by_then() -> None:
    composition = Composition(Recipe.from_plain(recipe_of(), toy_catalog()))
    published = {0: {"std.mean": {"a": 1}}, 2: {"std.mean": {"a": 2}}}
    of = [facts_of(composition, Layout(()), round, published=published).of("std.mean") for round in range(-1, 4)]
    assert of == [{}, {"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}]

"""The name of the protocol's own steps, and the context of a party: the public facts of its own copy of the recipe."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest
from fedplug import RecipeError, Scale, Server, WeightedSum, hookimpl
from fedplug.api.blocks import Layout
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.base import NAME, facts_of
from toy_components import recipe_of, toy_catalog


def test_no_component_can_take_the_name_of_the_steps() -> None:
    with pytest.raises(RecipeError, match=NAME):
        Recipe.from_plain(recipe_of(train={"use": "toy.push", "name": NAME}), toy_catalog())


def test_a_context_holds_the_recipes_facts_for_one_party_and_round() -> None:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(rounds=7, seed=11), catalog)
    composition, layout, party = Composition(recipe), Layout.of([("w", (2, 3))]), Server()
    facts = facts_of(recipe, composition, layout, 4, party)
    assert (facts.round, facts.rounds, facts.seed, facts.digest) == (4, 7, 11, recipe.digest)
    assert (facts.num_clients, facts.min_clients) == (recipe.data.clients, recipe.min_clients)
    assert facts.zones == recipe.zones
    assert facts.layout is layout
    assert facts.party is party
    assert facts.public is None  # as at the key server
    assert facts.components is composition.components
    assert [step.link.hook for step in facts.steps("clear")] == ["aggregate"]
    assert facts_of(recipe, composition, layout, 4, Server()).rng("a").random() == facts.rng("a").random()


def test_parties_of_a_process_fold_links_once_where_nothing_follows_from_the_party(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(), catalog)
    composition, layout = Composition(recipe), Layout.of([("w", (2, 3))])
    folded: dict[str, Any] = {}
    one, other = (facts_of(recipe, composition, layout, 1, Server(), folded=folded) for _ in range(2))
    assert one.steps("clear") is other.steps("clear")
    assert facts_of(recipe, composition, layout, 1, Server()).steps("clear") is not one.steps("clear")
    fewer = dataclasses.replace(one, layout=Layout.of([("w", (5,))]))
    assert fewer.steps("clear")[0].before.layers == (5,)

    def of_the_party(self: Any, known: Any, facts: Any) -> Any:
        return (WeightedSum(), Scale(0.5)) if facts.party.log else (WeightedSum(),)

    aggregator = type(composition.aggregator)
    monkeypatch.setattr(aggregator, "aggregate", hookimpl(functools.wraps(aggregator.aggregate)(of_the_party)))
    composition = Composition(recipe)
    folded.clear()
    one, other = (facts_of(recipe, composition, layout, 1, Server(), folded=folded) for _ in range(2))
    other.party.log["a"] = 1.0
    assert [len(facts.steps("clear")[0].operations) for facts in (one, other)] == [1, 2]
    assert not folded

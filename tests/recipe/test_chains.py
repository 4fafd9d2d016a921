"""The links of a recipe's zones, in order, with the party at which each runs; and which zones sampling hides."""

from __future__ import annotations

from typing import Any

from fedplug.recipe.catalog import Catalog
from fedplug.recipe.chains import amplified
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Sampling
from fedplug.recipe.recipe import Recipe
from toy_components import recipe_of
from toy_protocol import run_protocol


def test_links_follow_the_recipe_and_retained_has_none(plain_recipe: dict[str, Any], fake_catalog: Catalog) -> None:
    recipe = Recipe.from_plain(plain_recipe, fake_catalog)
    links = Composition(recipe, fake_catalog).links
    assert "retained" not in links
    for zone, chain in links.items():
        expected = [(use.name, "protect", "client") for use in recipe.protect[zone]]
        expected.append((recipe.aggregate.name, "aggregate", "server"))
        assert [(link.name, link.hook, link.site) for link in chain][: len(expected)] == expected
        opened = [link.name for link in chain if link.hook == "postprocess"]
        assert opened == [use.name for use in recipe.postprocess.get(zone, ())]


def test_only_central_noise_on_a_poisson_sample_is_hidden_by_sampling() -> None:
    clip = {"use": "std.clip", "norm": 1.0}
    central = {"use": "std.central_gaussian", "noise_multiplier": 1.0, "norm": 1.0}
    local = {"use": "std.gaussian", "noise_multiplier": 1.0}
    for plain, hidden in (
        (recipe_of("noised", [clip], postprocess={"noised": [central]}), {"noised"}),
        (recipe_of("noised", [clip, local]), set()),
    ):
        ctx = run_protocol(plain | {"rounds": 1}).protocol.server.ctx
        assert amplified(Sampling(rate=0.5), ctx) == hidden
        assert amplified(Sampling(rate=0.5, scheme="fixed"), ctx) == set()
        assert amplified(None, ctx) == set()

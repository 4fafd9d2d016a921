"""What the ledger asks of a recipe."""

from __future__ import annotations

import pytest
from account_toys import Labels
from fedplug.api.errors import RecipeError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from toy_components import recipe_of, toy_catalog

NOISED = {"negotiate_mask": {"use": "std.single_zone", "zone": "noised"}}


def test_noise_for_another_delta_than_the_ledgers_is_noted() -> None:
    chain = [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "epsilon": 8, "delta": 1e-6}]
    plain = NOISED | {"protect": {"noised": chain}}
    (note,) = Recipe.from_plain(recipe_of(**plain)).notes
    assert note.startswith("std.gaussian calibrates its noise for delta=1e-06, but the ledger states epsilon at delta")
    assert not Recipe.from_plain(recipe_of(**plain, delta=1e-6)).notes


def test_a_level_has_one_account() -> None:
    entries = {group: {name: each.load() for name, each in named.items() if name.startswith(("std.", "toy."))}
               for group, named in toy_catalog().groups.items()}  # fmt: skip
    entries["protect"] |= {"toy.labels": Labels, "toy.more": type("More", (Labels,), {})}
    plain = NOISED | {"protect": {"noised": ["toy.labels", "toy.more"]}}
    with pytest.raises(RecipeError, match=r"toy\.more keeps account of the level label, as toy\.labels does"):
        Recipe.from_plain(recipe_of(**plain), Catalog.of(entries))

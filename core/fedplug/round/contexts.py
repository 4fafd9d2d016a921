"""The public facts of a round for one party, from its own copy of the recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug.api.context import Context

if TYPE_CHECKING:
    from fedplug.api.context import Party
    from fedplug.api.data import PublicData
    from fedplug.api.types import Layout
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe


def make_context(
    recipe: Recipe,
    composition: Composition,
    layout: Layout,
    round: int,
    party: Party,
    public: PublicData | None = None,
) -> Context:
    """The public facts of a round for one party."""
    return Context(
        round=round,
        rounds=recipe.rounds,
        layout=layout,
        zones=recipe.zones,
        num_clients=recipe.data.clients,
        min_clients=recipe.min_clients,
        seed=recipe.seed,
        digest=recipe.digest,
        party=party,
        components=composition.components,
        public=public,
        links=composition.links,
    )

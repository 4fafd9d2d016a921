"""What the steps of the protocol have in common: their name, this party's recipe, and the public facts of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug.api.context import Context

if TYPE_CHECKING:
    from fedplug.api.context import Party
    from fedplug.api.data import PublicData
    from fedplug.api.types import Layout
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe

NAME = "fedplug"
"""Under which the protocol's own steps are called, as a component is under its own."""


class PartySteps:
    """Methods that the protocol itself runs at parties, marked as those of components are."""

    name = NAME

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self.recipe, self.composition = recipe, composition


def make_context(
    recipe: Recipe, composition: Composition, layout: Layout, round: int, party: Party,
    public: PublicData | None = None,
) -> Context:  # fmt: skip
    """The public facts of a round for one party, from its own copy of the recipe."""
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

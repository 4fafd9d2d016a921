"""What the steps of the protocol have in common: the name under which they are called, and this party's recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe

NAME = "fedplug"
"""Under which the protocol's own steps are called, as a component is under its own."""


class PartySteps:
    """Methods that the protocol itself runs at parties, marked as those of components are."""

    name = NAME

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self.recipe, self.composition = recipe, composition

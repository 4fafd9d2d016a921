"""What the steps of the protocol have in common: their name, this party's recipe, and the public facts of a round."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fedplug.api.context import Context

if TYPE_CHECKING:
    from fedplug.api.context import Party
    from fedplug.api.data import PublicData
    from fedplug.api.links import Step
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
    public: PublicData | None = None, folded: dict[str, tuple[Step, ...]] | None = None,
) -> Context:  # fmt: skip
    """The public facts of a round for one party, from its own copy of the recipe.

    Args:
        recipe, composition: the party's.
        layout: of the model.
        round: 0-based; -1 for the set-up.
        party: whose they are.
        public: the examples that everybody has.
        folded: what the links of each zone come to in this round, for all parties of a process; filled as it is asked.
            None: for this party alone.
    """
    ctx = _PartyContext(
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
    object.__setattr__(ctx, "folded", {} if folded is None else folded)
    return ctx


@dataclasses.dataclass(frozen=True, eq=False)
class _PartyContext(Context):
    """One that folds links once for all parties of its process, unless what one states may follow from its party."""

    # Not an argument: whoever makes one with other facts, by `dataclasses.replace`, folds anew.
    folded: dict[str, tuple[Step, ...]] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def steps(self, zone: str) -> tuple[Step, ...]:
        if self.round < 0:
            return super().steps(zone)
        if (steps := self.folded.get(zone)) is None:
            facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
            watched = _WatchedContext(**facts)
            steps = watched.steps(zone)
            if not watched.party_asked:
                self.folded[zone] = steps
        return steps


class _WatchedContext(Context):
    """One that notes whether anybody asks for its party."""

    party_asked = False

    def __getattribute__(self, name: str) -> Any:
        if name == "party":
            object.__setattr__(self, "party_asked", True)
        return super().__getattribute__(name)

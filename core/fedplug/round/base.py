"""What the steps of the protocol have in common: their name, this party's recipe, and the public facts of a round."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.blocks import RETAINED, Plan
from fedplug.api.parties import Facts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.blocks import Layout
    from fedplug.api.data import PublicData
    from fedplug.api.links import Step
    from fedplug.api.parties import Party
    from fedplug.api.roles import Plans
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe


def mean_problem(mean: NDArray[np.float32], zone: str, step: Step | None) -> str:
    """What is wrong with the mean of an opened sum, and who made it; empty if nothing."""
    wrong = int(np.count_nonzero(~np.isfinite(mean)))
    if not wrong:
        return ""
    behind = f" behind {step.link.name} ({step.link.hook})" if step else ""
    found = f"the mean of zone {zone}{behind} has {wrong} of {mean.size} values NaN or infinite"
    return f"{found}; if training diverged, lower lr"


def scores_problem(scores: Any, layout: Layout, per: str) -> str:
    """What is wrong with what a scorer gave; empty if nothing."""
    wanted = layout.size if per == "scalar" else len(layout.layers)
    if not isinstance(scores, np.ndarray) or scores.dtype.kind != "f" or scores.shape != (wanted,):
        what = f"{scores.dtype}{list(scores.shape)}" if isinstance(scores, np.ndarray) else type(scores).__name__
        return f"it gave {what}; it must give floats [{wanted}], one score a {per} of the model"
    if wrong := int(np.count_nonzero(np.isnan(scores))):
        return (
            f"it gave {wrong} of {wanted} scores that are NaN, which nobody can order; score what is not defined by a "
            "number, and lower lr if training diverged"
        )
    return ""


def plan_problem(plan: Any, layout: Layout, zones: tuple[str, ...], stated: Plans) -> str:
    """What is wrong with the plan that a negotiation set; empty if nothing."""
    if not isinstance(plan, Plan):
        return f"it set a {type(plan).__name__} as the client's plan; it must be a fedplug.Plan"
    if plan.labels.shape != (layout.size,):
        return f"its plan labels {len(plan.labels)} scalars, but the model has {layout.size}"
    if plan.zones != zones:
        return f"its plan knows the zones {', '.join(plan.zones)}; it must be made with facts.zones: {', '.join(zones)}"
    held = [zone for zone, size in plan.sizes().items() if size]
    strange = sorted(set(held) - stated.zones, key=lambda zone: zone == RETAINED)
    if strange:
        named = ", ".join(sorted(stated.zones))
        return f"its plan puts scalars into zone {strange[0]}, which its `plans` do not name: {named}"
    # What is promised of a zone depends on whether all clients have it in the same place.
    apart = [zone for zone in held if zone not in plan.shared | stated.own | {RETAINED}]
    if apart:
        return (
            f"its plan does not share zone {apart[0]}, and its `plans` do not say so; name it in Plans.own, or in "
            "Plan.shared where all clients have the same plan"
        )
    return ""


NAME = "fedplug"
"""Under which the protocol's own steps are called, as a component is under its own."""


class PartySteps:
    """Methods that the protocol itself runs at parties, marked as those of components are."""

    name = NAME

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self.recipe, self.composition = recipe, composition


def facts_of(
    recipe: Recipe, composition: Composition, layout: Layout, round: int, party: Party,
    public: PublicData | None = None, folded: dict[str, tuple[Step, ...]] | None = None,
) -> Facts:  # fmt: skip
    """The public facts of a round for one party, from its own copy of the recipe.

    Args:
        recipe, composition: the party's.
        layout: of the model.
        round: 0-based; -1 for the set-up.
        party: whose they are.
        public: the examples that everybody has.
        folded: the folded links of each zone in this round, for all parties of a process; filled on demand.
            None: for this party alone.
    """
    facts = _PartyFacts(
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
    object.__setattr__(facts, "folded", {} if folded is None else folded)
    return facts


@dataclasses.dataclass(frozen=True, eq=False)
class _PartyFacts(Facts):
    """One that folds links once for all parties of its process, unless what one states may follow from its party."""

    # Not an argument: a copy with other facts, by `dataclasses.replace`, folds anew.
    folded: dict[str, tuple[Step, ...]] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def steps(self, zone: str) -> tuple[Step, ...]:
        if self.round < 0:
            return super().steps(zone)
        if (steps := self.folded.get(zone)) is None:
            facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.init}
            watched = _WatchedFacts(**facts)
            steps = watched.steps(zone)
            if not watched.party_asked:
                self.folded[zone] = steps
        return steps


class _WatchedFacts(Facts):
    """One that notes whether anybody asks for its party."""

    party_asked = False

    def __getattribute__(self, name: str) -> Any:
        if name == "party":
            object.__setattr__(self, "party_asked", True)
        return super().__getattribute__(name)

"""What the steps of the protocol have in common: their name, this party's recipe, and the public facts of a round."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.blocks import RETAINED, Layout, Plan
from fedplug.api.data import PublicData
from fedplug.api.facts import Facts, Fresh, Snapshots, in_force
from fedplug.api.links import Step
from fedplug.api.roles import Plans
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
    return ""


NAME = "fedplug"
"""Under which the protocol's own steps are called, as a component is under its own."""


class PartySteps:
    """Methods that the protocol itself runs at parties, marked as those of components are."""

    name = NAME

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self.recipe, self.composition = recipe, composition
        self.resting = functools.lru_cache(maxsize=2)(recipe.resting)  # every client of a process asks


def facts_of(
    composition: Composition, layout: Layout, round: int, public: PublicData | None = None,
    published: Snapshots | None = None,
) -> Facts:  # fmt: skip
    """The public facts of a round, as any party has them from its own copy of the recipe.

    Args:
        composition: the party's.
        layout: of the model.
        round: 0-based; -1 for the set-up.
        public: the examples that everybody has.
        published: what this party was told that components have published.
    """
    recipe = composition.recipe
    return Facts(
        round=round,
        rounds=recipe.rounds,
        layout=layout,
        zones=recipe.zones,
        num_clients=recipe.data.clients,
        min_clients=recipe.min_clients,
        seed=recipe.seed,
        digest=recipe.digest,
        components=Fresh(composition.makers),
        public=public,
        chains=composition.links,
        published=in_force(published or {}, round),
        _memo=composition.memo,
    )

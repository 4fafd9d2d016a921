"""What comes from components or from sums is looked at before anybody uses it: means, scores and plans.

An error names the component, the hook, the zone and the rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.types import RETAINED, Plan

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.links import Step
    from fedplug.api.role_records import Plans
    from fedplug.api.types import Layout


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
        return f"its plan knows the zones {', '.join(plan.zones)}; it must be made with ctx.zones: {', '.join(zones)}"
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

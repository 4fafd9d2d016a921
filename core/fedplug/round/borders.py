"""The borders between links: what a component gave is compared with what it said, before anybody uses it.

Cheap checks, always: type, shape, dtype, finite values, the stated norms and grid, closed or not, and who closed it. An
error names the component, the hook, the zone and the rule. A statement that does not hold must never reach the ledger.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api import norms
from fedplug.api.effects import Adds, CoversSupport, Effects, Noise
from fedplug.api.errors import ProtectionError
from fedplug.api.known import Known
from fedplug.api.streams import watch_streams
from fedplug.api.typed import block_problem as fields_problem
from fedplug.api.types import RETAINED, Block, Plan
from fedplug.round.additions import addition_problem
from fedplug.round.expected import Expected, places

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.context import Context
    from fedplug.api.links import Step
    from fedplug.api.role_records import Plans
    from fedplug.api.types import Layout
    from fedplug.recipe.composition import Composition

_SLACK = 1 + 1e-5
"""float32 sums of squares may exceed a norm by about this much."""


def run(composition: Composition, step: Step, block: Block, ctx: Context, **arguments: Any) -> Block:
    """Runs one link on a block and checks what it gave.

    Args:
        composition: whose component runs.
        step: the link, with what is known before and behind it.
        block: of which it is handed a copy, so that what it changes in place is compared as well.
        ctx: of the party; the component gets it with `known` set.
        arguments: further arguments of the hook.

    Raises:
        ProtectionError: it gave something else than it must, or than it said.
    """
    link = step.link
    ctx = dataclasses.replace(ctx, known=step.before)
    with watch_streams() as drawn:
        given: Any = composition.one(link.hook, link.name, block=block.apart(), ctx=ctx, **arguments)
    if problem := (seed_problem(step) if drawn() else "") or block_problem(given, block, step, ctx):
        raise ProtectionError(f"component {link.name}, hook {link.hook}, zone {link.zone}: {problem}")
    return given  # type: ignore[no-any-return]


def seed_problem(step: Step) -> str:
    """What is wrong with a link that drew from the recipe's seed, as a sentence; empty if nothing."""
    noises = [effect for effect in step.effects or () if isinstance(effect, Noise)]
    if not noises or any(noise.source == "reproducible" for noise in noises):
        return ""
    return (
        f"it states {noises[0].source} noise, and draws from the recipe's seed, which others know; draw secret noise "
        "(fedplug_std.noise_sources, os.urandom), or state source='reproducible', which protects nobody. What hides "
        "nothing comes from ctx.public_rng"
    )


def block_problem(given: Any, before: Block, step: Step, ctx: Context) -> str:
    """What is wrong with what a link made of a block, as a sentence; empty if nothing."""
    if problem := shape_problem(given, before.zone):
        return problem
    known, stated = step.after, step.effects is not None
    at_client = step.link.hook == "protect"
    if at_client and given.size != before.size and CoversSupport() not in (step.effects or ()):
        return f"it gave {given.size} scalars of {before.size}; a protector keeps the scalars of its block"
    if stated and (problem := _closing_problem(given, known)):
        return problem
    if given.values is None:
        return ""
    if (wrong := _not_finite(given)) and not _not_finite(before):
        what = f"of {given.size} values that it opened" if before.values is None else f"finite values of {given.size}"
        return f"it made {wrong} {what} NaN or infinite; values that are not numbers cannot be used"
    if not stated:
        return ""
    if given.meta and any(isinstance(effect, Noise) for effect in step.effects or ()):
        return "a link before it put meta beside the values, which its noise does not hide; leave meta empty"
    if step.effects == () and given.plain().tobytes() != before.plain().tobytes():  # -0.0 is another value than 0.0
        return "it states no change of the values, and changed them; state what it does in its effects"
    if problem := _moved_problem(given, before, step.effects or ()) or _besides_problem(given, before, step):
        return problem
    return _claims_problem(given, ctx, _claimed(step))


def _moved_problem(given: Block, before: Block, effects: Effects) -> str:
    """Whether values went elsewhere than by the factors, roundings and noise that are all a link states."""
    expected = Expected.of(effects) if before.values is not None else None
    if expected is None:
        return ""
    if given.size != before.size:
        return f"it gave {given.size} scalars of {before.size}, and states no such change"
    some: Any = places(given.size) if expected.noise else slice(None)  # all of them where that is for sure
    was = before.plain()[some].astype(np.float64)
    problem = expected.problem(given.plain()[some], was, np.abs(was))
    said = " and ".join(dict.fromkeys(type(effect).__name__ for effect in effects))
    return f"it states {said} alone, and {problem}" if problem else ""


def _besides_problem(given: Block, before: Block, step: Step) -> str:
    """What a link changed of plain values besides these, which neither closing nor noise hides; empty if nothing."""
    fields = ["contributors", "divisor", "meta"]
    if CoversSupport() not in (step.effects or ()):
        fields.append("positions")
    if not step.before.summed:
        fields.append("weighted")
    elif not given.meta:  # whoever opens a sum needs no more what was kept for that
        fields.remove("meta")
    for name in fields:
        if not _same(getattr(before, name), getattr(given, name)):
            if step.before.summed:
                return f"it changed the sum's {name}, which no noise hides; change values alone"
            return f"it changed the block's {name}, which travel in the clear; a link that seals nothing changes values"
    return ""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    return one is other or ((one is None) == (other is None) and np.array_equal(one, other))


def sum_problem(
    total: Any, blocks: Mapping[int, Block], weights: Mapping[int, float], step: Step
) -> tuple[str, int | None]:
    """What is wrong with an aggregator's sum, and the client to blame if its upload is the cause; empty if nothing."""
    if problem := shape_problem(total, step.link.zone):
        return problem, None
    if step.effects is not None and (problem := _closing_problem(total, step.after)):
        return problem, None
    if wrong := _not_finite(total):
        spoilt = next((client_id for client_id, block in blocks.items() if _not_finite(block)), None)
        if spoilt is not None:
            return f"client {spoilt} sent values that are NaN or infinite, which no sum survives", spoilt
        return f"it made {wrong} of {total.size} values NaN or infinite of uploads that are finite", None
    problem = addition_problem(total, blocks, weights, step.effects or ())
    return problem or ("" if total.values is None else _claims_problem(total, None, _claimed(step))), None


def mean_problem(mean: NDArray[np.float32], zone: str, step: Step | None) -> str:
    """What is wrong with the mean of an opened sum, and who made it; empty if nothing."""
    wrong = int(np.count_nonzero(~np.isfinite(mean)))
    if not wrong:
        return ""
    behind = f" behind {step.link.name} ({step.link.hook})" if step else ""
    found = f"the mean of zone {zone}{behind} has {wrong} of {mean.size} values NaN or infinite"
    return f"{found}; if training diverged, lower lr"


def _not_finite(block: Block) -> int:
    """How many plain values of a block are NaN or infinite."""
    return 0 if block.values is None else int(np.count_nonzero(~np.isfinite(block.values)))


def _closing_problem(given: Block, known: Known) -> str:
    """Whether a block is closed otherwise than the statements say; empty if not."""
    closed_by = known.sealers[-1] if known.sealers else None
    if closed_by is None and known.unstated:  # nobody knows what those did
        return ""
    if (given.values is None) == (closed_by is not None) and given.sealed_by == closed_by:
        return ""
    said = "leaves values plain" if closed_by is None else f"leaves them closed by {closed_by}"
    found = "plain values" if given.values is not None else f"a block closed by {given.sealed_by}"
    return f"it states that it {said}, and gave {found}"


def shape_problem(given: Any, zone: str) -> str:
    """What keeps something from being a block of a zone; empty if it is one."""
    if not isinstance(given, Block):
        what = f"an array {given.dtype}{list(given.shape)}" if isinstance(given, np.ndarray) else type(given).__name__
        return f"it gave {what}; it must give a Block (block.replace(values=...) makes one)"
    if given.zone != zone:
        return f"it gave a block of zone {given.zone}; a link gives the zone that it is handed"
    if given.values is None and given.sealed_by is None:
        return "it gave a block without values that nobody has closed"
    return fields_problem(given)


def _claimed(step: Step) -> Known:
    """The norms and the grid that a link promises: of one client's values all that hold, of a sum those it states.

    What is known of a sum is how far two of them lie apart, which one sum does not show.
    """
    if not step.after.summed:
        return step.after
    own = step.effects or ()
    added = next((number for number, effect in enumerate(own, 1) if isinstance(effect, Adds)), 0)
    return Known(zone=step.link.zone, layers=step.after.layers).after(own[added:])


def _claims_problem(block: Block, ctx: Context | None, known: Known) -> str:
    """Which of these norms, or which grid, values break; empty if none."""
    values = block.plain()
    if known.grid > 0 and (wrong := _off_grid(values, known.grid)):
        return f"it states multiples of {known.grid:g}, and {wrong} of {len(values)} values are not"
    for bound in known.bounds:
        if bound.per == "scalar" or bound.order == math.inf:
            found, most = np.abs(values, dtype=np.float64).max(initial=0.0), _largest(bound.norm)
        elif bound.per == "layer":
            layers = None if ctx is None else _layers_of(block, ctx)
            if layers is None:
                found, most = _norm(values, bound.order), norms.implied(bound, bound.order, known.layers) or 0.0
            else:
                limits = np.broadcast_to(np.asarray(bound.norm, np.float64), (max(len(known.layers), 1),))
                squares = np.bincount(layers, np.square(values, dtype=np.float64), len(limits))
                found, most = float((np.sqrt(squares) / limits).max(initial=0.0)), 1.0
        else:
            found, most = _norm(values, bound.order), _largest(bound.norm)
        if found > most * _SLACK:
            per = "" if bound.per == "update" else f" per {bound.per}"
            return f"it states an L{bound.order:g} norm{per} of at most {most:g}, and gave values of norm {found:g}"
    return ""


def _off_grid(values: NDArray[np.float32], grid: float) -> int:
    """How many values are no multiples of a grid, but for what float32 rounds off."""
    if math.frexp(grid)[0] == 0.5 and 2**-100 <= grid <= 2**100:  # a power of two, by which float32 divides exactly
        with np.errstate(over="ignore"):  # so large a value is a multiple
            scaled = values * np.float32(1 / grid)
        if np.array_equal(scaled, np.rint(scaled)):
            return 0
    steps = values.astype(np.float64) / grid
    return int(np.count_nonzero(np.abs(steps - np.rint(steps)) > 1e-6 * np.maximum(1.0, np.abs(steps))))


def _norm(values: NDArray[np.float32], order: float) -> float:
    """In float64, where squares of float32 are exact."""
    if order == 2:
        return math.sqrt(float(np.square(values, dtype=np.float64).sum()))
    return float(np.linalg.norm(values.astype(np.float64), order))


def _largest(norm: float | tuple[float, ...]) -> float:
    return max(norm) if isinstance(norm, tuple) else norm


def _layers_of(block: Block, ctx: Context) -> NDArray[np.int64] | None:
    """The number of the layer that each value of a client's block belongs to; None where nobody can tell."""
    from fedplug.api.context import Client

    where = block.positions
    if where is None and isinstance(ctx.party, Client) and ctx.party.plan is not None:
        where = ctx.party.plan.positions(block.zone)
    if where is None or len(where) != block.size or not ctx.layout.size:
        return None
    numbers: NDArray[np.int64] = ctx.layout.per_scalar(np.arange(len(ctx.layout.layers)))[where]
    return numbers


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

"""The links of a recipe's zones, with the components that they call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fedplug.api.base import Component
from fedplug.api.folded import released
from fedplug.api.links import Link
from fedplug.api.roles import Aggregator, Opener, Protector
from fedplug.api.types import RETAINED

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.recipe.parts import Sampling, Use
    from fedplug.recipe.recipe import Recipe


def chains(recipe: Recipe, components: Mapping[str, Component]) -> dict[str, tuple[Link, ...]]:
    """The links of every zone that is sent, in the order in which its values pass them."""
    return {
        zone: chain(zone, recipe.protect[zone], recipe.aggregate, recipe.postprocess.get(zone, ()), components)
        for zone in recipe.zones
        if zone in recipe.protect and zone != RETAINED
    }


def chain(
    zone: str,
    protect: Iterable[Use],
    aggregate: Use | None,
    postprocess: Iterable[Use],
    components: Mapping[str, Component],
) -> tuple[Link, ...]:
    """The links of one zone; components that are missing, or of another role, are left out (a check says so)."""
    found = [
        Link(zone, "protect", use.name, part, "client", use.path)
        for use in protect
        if isinstance(part := components.get(use.name), Protector)
    ]
    if aggregate is not None and isinstance(part := components.get(aggregate.name), Aggregator):
        found.append(Link(zone, "aggregate", aggregate.name, part, "server", aggregate.path))
    found += [
        Link(zone, "postprocess", use.name, opener, opener.site, use.path)
        for use in postprocess
        if isinstance(opener := components.get(use.name), Opener)
    ]
    return tuple(found)


def amplified(sampling: Sampling | None, ctx: Context) -> set[str]:
    """The zones whose noise is added to the sum of a Poisson sample, which hides who takes part."""
    if sampling is None or sampling.scheme != "poisson":
        return set()
    behind = {zone: released(ctx.steps(zone)) for zone in ctx.links}
    return {zone for zone, known in behind.items() if known and any(r.trust == "central" for r in known.releases)}

"""Checks that a link gives the same operations whenever and at whichever party it is asked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fedplug.api.blocks import Layout
from fedplug.api.errors import FedplugError
from fedplug.api.facts import Facts
from fedplug.api.links import fold
from fedplug.api.operations import Clip, Look, Noise, as_operations
from fedplug.api.parties import Server

from fedplug_kit.parts import SERVER

if TYPE_CHECKING:
    from fedplug.api.operations import Operation, Operations

    from fedplug_kit.parts import Seen
    from fedplug_kit.world import World

_LAST_DIGITS = 1 - 1e-9
_REMEDY = (
    "the price must follow from options and public facts; for a client's own noise size give Noise(std, promised=the "
    "least of any client), for its own norm Clip(norm, tighter=...)"
)


def operation_problems(world: World, name: str) -> Iterator[str]:
    """Asked before a run, twice, at the server and at clients, a link gives equal operations, at no higher cost.

    Clients' own norms and sizes of noise, which follow from scores, may differ where the operation says so. For the
    negotiation, the last operations at the server count: what it tells clients in a round applies from then on.
    """
    seen = sorted((each for each in world.seen if each.link == name), key=lambda each: each.party != SERVER)
    if name == world.protocol.recipe.negotiate_mask.name:
        last = {(each.hook, each.zone, each.round): each for each in seen if each.party == SERVER}
        seen = [*last.values(), *(each for each in seen if each.party != SERVER)]
    first: dict[tuple[str, str, int], Seen] = {}
    for each in seen:
        other = first.setdefault((each.hook, each.zone, each.round), each)
        if problem := _difference(other, each) or _dearer(other, each):
            yield f"component {name}, hook {each.hook}: {problem}; {_REMEDY}"
            return
    for each in first.values():
        yield from _foretold(world, each)


def _difference(first: Seen, other: Seen) -> str:
    """How the operations given to two parties differ; empty if they do not."""
    one, two = (_that_change(each) for each in (first, other))
    if list(map(type, one)) != list(map(type, two)):
        return f"in round {first.round + 1} it gives {_kinds(one)} at {first.party}, and {_kinds(two)} at {other.party}"
    for mine, theirs in zip(one, two, strict=True):
        for field in dataclasses.fields(mine):
            if field.name in _own(mine, theirs):
                continue
            values = getattr(mine, field.name), getattr(theirs, field.name)
            if not _same(*values):
                return (
                    f"in round {first.round + 1} it gives {type(mine).__name__}({field.name}={values[0]!r:.40}) at "
                    f"{first.party}, and {values[1]!r:.40} at {other.party}"
                )
    return ""


def _that_change(seen: Seen) -> Operations:
    """Its operations, without those that only observe, which are allowed anywhere."""
    given = as_operations(seen.given, seen.hook, seen.link)
    return tuple(operation for operation in given if not isinstance(operation, Look))


def _own(one: Operation, other: Operation) -> tuple[str, ...]:
    """The fields in which two clients may differ: a promised noise size, or a norm declared as tighter."""
    if isinstance(one, Clip):
        return ("tighter",)
    promised = isinstance(one, Noise) and isinstance(other, Noise) and None not in (one.promised, other.promised)
    return ("std", "grid") if promised else ()


def _same(one: Any, other: Any) -> bool:
    if callable(one) and callable(other):  # made anew whenever a link is asked
        return type(one) is type(other)
    if isinstance(one, float) and isinstance(other, float):
        unknown = math.isnan(one) or math.isnan(other)  # before the set-up
        return unknown or one == other or math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


def _dearer(first: Seen, other: Seen) -> str:
    """Cases in which a client pays more than the server charges."""
    here, there = (_multipliers(each) for each in (first, other))
    for charged, paid in zip(here, there, strict=False):
        if first.party == SERVER != other.party and paid < charged * _LAST_DIGITS:
            return (
                f"in round {first.round + 1} its noise has a multiplier of {paid:.6g} at {other.party}, and "
                f"{charged:.6g} at {first.party}, which sets the price"
            )
    return ""


def _multipliers(seen: Seen) -> list[float]:
    try:
        known = seen.known.after(*as_operations(seen.given, seen.hook, seen.link))
    except FedplugError:  # the fold has said so
        return []
    return [release.noise_multiplier for release in known.releases]


def _foretold(world: World, seen: Seen) -> Iterator[str]:
    """Before a run, when no model is known, a link must give the same kinds of operations as it gives later."""
    facts = world.protocol.server.facts
    early = Facts(
        round=seen.round, rounds=facts.rounds, layout=Layout(()), zones=(), num_clients=facts.num_clients,
        min_clients=facts.min_clients, seed=0, digest="", party=Server(), components=facts.components,
        links=facts.links,
    )  # fmt: skip
    early.party.facts = early
    try:
        steps = fold(facts.links.get(seen.zone, world.protocol.composition.retained), early)
    except FedplugError as error:
        yield f"before a run: {error}"
        return
    step = next(each for each in steps if (each.link.name, each.link.hook) == (seen.link, seen.hook))
    earlier = tuple(operation for operation in step.operations if not isinstance(operation, Look))
    later = _that_change(seen)
    if list(map(type, earlier)) != list(map(type, later)):
        yield (
            f"component {seen.link}, hook {seen.hook}: before a run, while no model is known, it gives "
            f"{_kinds(earlier)}, and in round {seen.round + 1} {_kinds(later)}; give the same operations before a run "
            "as during it"
        )


def _kinds(operations: Operations) -> str:
    return ", ".join(type(operation).__name__ for operation in operations) or "nothing"

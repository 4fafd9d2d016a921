"""Checks that a plugin's functions handle awkward values, and that `Post` and `Shift` read nothing else.

`Map`, `Post`, `Shift` and `Combine` are called as a run calls them. `Post` and `Shift` receive only values and public
facts, so they keep the price of noise. They must return the same result for the same values and facts at every client.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api import norms
from fedplug.api.blocks import Block, Plan
from fedplug.api.errors import FedplugError
from fedplug.api.operations import Combine, Noise, Open, Post, Public, Scramble, Seal, Shift, WeightedSum
from fedplug.mechanisms.execution import add_up, execute

if TYPE_CHECKING:
    from fedplug.api.facts import Facts
    from fedplug.api.known import Known
    from fedplug.api.links import Step
    from fedplug.api.operations import Operation
    from fedplug.api.parties import Party
    from numpy.typing import NDArray

    from fedplug_kit.world import World

_NOT_HERE = (Seal, Scramble, Open, WeightedSum, Combine)
"""Operations on sealed blocks and on the blocks of many clients, which other modules check."""


def function_problems(world: World, name: str, other_data: Callable[[], World]) -> Iterator[str]:
    """Yields all problems that these checks find.

    Args:
        world: a finished run.
        name: name of the component.
        other_data: performs the same run on other data.
    """
    for hook in ("protect", "aggregate", "postprocess"):
        for step in world.steps(name, hook):
            yield from _awkward(world, step)
            yield from _combining(world, step)
            yield from _blind(world, step, other_data)


# -- any link ----------------------------------------------------------------------------------------------------------


def _awkward(world: World, step: Step) -> Iterator[str]:
    """Checks that a link returns finite values of the right kind for unusual inputs."""
    for part in _alone(step):
        size = world.protocol.layout.size
        for what, values in awkward(size).items():
            try:
                executed(world, part, within(values, part.before), 0)
            except FedplugError as error:
                yield f"given {what}: {error}"
                break


def awkward(size: int) -> dict[str, NDArray[np.float32]]:
    """Values that a link may receive, and that authors easily forget."""
    spike = np.zeros(size, np.float32)
    spike[size // 2] = 1e4
    return {
        "zeros": np.zeros(size, np.float32), "a spike": spike, "equal values": np.full(size, 3.0, np.float32),
        "huge values": np.full(size, 1e6, np.float32),
        "random values": (0.05 * np.random.default_rng(1).standard_t(3, size)).astype(np.float32),
    }  # fmt: skip


def within(values: NDArray[np.float32], known: Known) -> NDArray[np.float32]:
    """The values, scaled down to the known bound of a block, and on its grid."""
    factor = 1.0
    for bound in known.bounds or known.beneath:
        length = float(np.linalg.norm(values.astype(np.float64), bound.order))
        least = min(norms.each(bound.norm), default=0.0)
        if length > least:
            factor = min(factor, least / length * (1 - 1e-6))
    scaled = values.astype(np.float64) * factor
    if known.grid:
        scaled = np.trunc(scaled / known.grid) * known.grid
    return scaled.astype(np.float32)


def _alone(step: Step) -> Iterator[Step]:
    """Parts of a link that work on plain values of one block, each with the facts known before it."""
    kept: list[Operation] = []
    states = [step.before]
    for operation, behind in zip(step.operations, step.states[1:], strict=False):
        if isinstance(operation, _NOT_HERE):
            if kept:
                yield dataclasses.replace(step, operations=tuple(kept), states=tuple(states))
            kept, states = [], [behind]
        elif not states[0].sealed and not (isinstance(operation, Noise) and operation.std is None):
            kept.append(operation)
            states.append(behind)
    if kept:
        yield dataclasses.replace(step, operations=tuple(kept), states=tuple(states))


def executed(world: World, step: Step, values: NDArray[np.float32], client_id: int) -> NDArray[np.float32]:
    """The result of a part of a link for values that fill the whole model, at a client or at the server."""
    party: Party = world.protocol.server
    facts = world.protocol.server.facts
    if step.link.site == "client":
        party = client = list(world.clients.clients.values())[client_id]
        facts = dataclasses.replace(client.facts, round=min(client.facts.round, client.facts.rounds - 1))
        held = client.plan, client.update, client.personal
        client.plan, client.update = Plan.single(step.link.zone, len(values), facts.zones), np.zeros_like(values)
    block = Block(step.link.zone, len(values), values.copy())
    state = party.state
    if any(isinstance(one, Noise) and one.takes_back is not None for one in step.operations):
        party.state = {}  # the core remembers such noise, and adds it once a round
    try:
        return execute(step, block, party, facts).plain()
    finally:
        party.state = state
        if step.link.site == "client":
            client.plan, client.update, client.personal = held


# -- of many blocks ----------------------------------------------------------------------------------------------------


def _combining(world: World, step: Step) -> Iterator[str]:
    """Checks that a function of all blocks does not change them, depends on nothing else, and accepts every kind."""
    if not step.has(Combine) or step.before.sealed:
        return
    first = dataclasses.replace(step, operations=step.operations[:1], states=step.states[:2])
    facts, layout = world.protocol.server.facts, world.protocol.layout
    facts = dataclasses.replace(facts, round=min(facts.round, facts.rounds - 1))
    place = f"component {step.link.name}, hook aggregate, Combine"
    weights = dict(world.protocol.server.weights)
    for what, values in awkward(layout.size).items():

        def blocks(*, values: NDArray[np.float32] = values) -> dict[int, Block]:
            return {number: _filled(world, step, within(np.roll(values, number), step.before)) for number in weights}

        given = blocks()
        try:
            one = add_up(first, given, weights, facts)
            again = add_up(first, dict(reversed(blocks().items())), weights, facts)
        except FedplugError as error:
            yield f"given {what}: {error}"
            return
        if any(not np.array_equal(given[number].plain(), block.plain()) for number, block in blocks().items()):
            yield f"{place}: it changes the blocks that it receives; work on copies: block.plain().copy()"
            return
        if not np.array_equal(one.plain(), again.plain()):
            yield (
                f"{place}: given {what} in two orders of the clients, it returns two different blocks; use the values "
                "and weights alone, and sort the clients"
            )
            return


def _filled(world: World, step: Step, values: NDArray[np.float32]) -> Block:
    shows = world.protocol.composition.aggregator.wants.positions
    positions = np.arange(len(values), dtype=np.uint32) if shows else None
    return Block(step.link.zone, len(values), values, positions)


# -- functions that receive values and public facts alone --------------------------------------------------------------


def _blind(world: World, step: Step, other_data: Callable[[], World]) -> Iterator[str]:
    if not step.has(Post, Shift):
        return
    here: Step | None = step
    if step.link.site == "client":
        here, elsewhere = (world.steps_at(step, number) for number in (0, 1))
    else:
        elsewhere = _like(other_data(), step)
    if here is None or elsewhere is None:
        return
    values = within(awkward(world.protocol.layout.size)["random values"], step.before)
    for one, other in zip(here.operations, elsewhere.operations, strict=False):
        if not isinstance(one, Post | Shift) or not isinstance(other, Post | Shift):
            continue
        try:
            found = [_given(operation, world, step, values) for operation in (one, one, other)]
        except Exception:  # it needs a layout, or memory, of a run, where it has been checked
            continue
        kind = type(one).__name__
        place = f"component {step.link.name}, hook {step.link.hook}, {kind}"
        if not np.array_equal(found[0], found[1]):
            yield (
                f"{place}: given the same input twice, it returns different values; draw random numbers from "
                "public.stream, and keep state in public.memory"
            )
        elif not np.array_equal(found[0], found[2]):
            where = "at another client" if step.link.site == "client" else "in a run on other data"
            yield (
                f"{place}: given the same values and public facts {where}, it returns other values, so it reads "
                "something that it does not receive, and the noise before it counts for nothing; give Map(function), "
                "and add noise after it"
            )


def _like(world: World, step: Step) -> Step | None:
    steps = world.steps(step.link.name, step.link.hook)
    return next((each for each in steps if each.link.zone == step.link.zone), None)


def _given(operation: Post | Shift, world: World, step: Step, values: NDArray[np.float32]) -> Any:
    public = public_of(world.protocol.server.facts, step, len(values))
    if isinstance(operation, Post):
        return np.asarray(operation.function(values.copy(), public))
    return np.asarray(operation.by(public))


def public_of(facts: Facts, step: Step, size: int) -> Public:
    """Public facts that are the same at every party, with an unused memory."""
    return Public(
        zone=step.link.zone, round=0, rounds=facts.rounds, layout=facts.layout,
        positions=np.arange(size, dtype=np.uint32), start=np.zeros(size, np.float32), memory={},
        stream=np.random.default_rng(0),
    )  # fmt: skip

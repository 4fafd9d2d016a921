"""Checks that a plugin's functions handle awkward values, called as a run calls them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api import norms
from fedplug.api.blocks import Block, Plan
from fedplug.api.errors import FedplugError
from fedplug.api.operations import Combine, Noise, Open, Public, Scramble, Seal, WeightedSum
from fedplug.mechanisms.adding import add_up
from fedplug.mechanisms.execution import execute

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


def function_problems(world: World, name: str) -> Iterator[str]:
    """Yields all problems that these checks find in a component of a finished run."""
    for hook in ("protect", "aggregate", "postprocess"):
        for step in world.steps(name, hook):
            yield from _awkward(world, step)
            yield from _combining(world, step)


# -- any link ----------------------------------------------------------------------------------------------------------


def _awkward(world: World, step: Step) -> Iterator[str]:
    """Checks that a link returns finite values of the right kind for unusual inputs."""
    for part in plain_parts(step):
        size = world.protocol.layout.size
        for what, values in awkward(size).items():
            try:
                executed(world, part, within(values, part.before))
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


def plain_parts(step: Step, *left_out: type) -> Iterator[Step]:
    """The parts of a link that work on plain values of one block, without operations of these kinds."""
    kept: list[tuple[Operation, Known]] = []
    behind = step.before
    for operation, before, after in zip(step.operations, step.states, step.states[1:], strict=False):
        if isinstance(operation, _NOT_HERE):
            yield from _part(step, kept, behind)
            kept = []
        elif not before.closed and not isinstance(operation, left_out) and not _unsized(operation):
            kept.append((operation, before))
            behind = after
    yield from _part(step, kept, behind)


def _part(step: Step, kept: list[tuple[Operation, Known]], behind: Known) -> Iterator[Step]:
    if kept:
        operations, states = zip(*kept, strict=True)
        yield dataclasses.replace(step, operations=operations, states=(*states, behind))


def _unsized(operation: Operation) -> bool:
    return isinstance(operation, Noise) and operation.std is None


def executed(
    world: World, step: Step, values: NDArray[np.float32], client_id: int = 0, plan: Plan | None = None
) -> NDArray[np.float32]:
    """The result of a part of a link at a client or at the server, in the round of the server's facts.

    Args:
        world: with the parties.
        step: the part of the link.
        values: of the zone, (n,).
        client_id: of the client.
        plan: by which they lie; None: they fill the whole model.
    """
    facts, zone = world.facts, step.link.zone
    party: Party = world.protocol.server
    where = None if plan is None or step.link.site == "client" else plan.positions(zone)
    if step.link.site == "client":
        party = client = world.client(client_id)
        held = client.plan, client.update, client.personal
        client.plan = plan or Plan.single(zone, len(values), facts.zones)
        client.update = np.zeros(facts.layout.size, np.float32)
    state = party.state
    if any(isinstance(one, Noise) and one.takes_back is not None for one in step.operations):
        party.state = {}  # the core remembers such noise, and adds it once a round
    try:
        return execute(step, Block(zone, len(values), values.copy(), where), party, facts).plain()
    finally:
        party.state = state
        if step.link.site == "client":
            client.plan, client.update, client.personal = held


# -- of many blocks ----------------------------------------------------------------------------------------------------


def _combining(world: World, step: Step) -> Iterator[str]:
    """Checks that a function of all blocks does not change them, depends on nothing else, and accepts every kind."""
    if not step.has(Combine) or step.before.closed:
        return
    first = dataclasses.replace(step, operations=step.operations[:1], states=step.states[:2])
    facts, server = world.facts, world.protocol.server
    place = f"component {step.link.name}, hook aggregate, Combine"
    weights = dict(server.weights)
    for what, values in awkward(facts.layout.size).items():

        def blocks(*, values: NDArray[np.float32] = values) -> dict[int, Block]:
            return {number: _filled(world, step, within(np.roll(values, number), step.before)) for number in weights}

        given = blocks()
        try:
            one = add_up(first, given, weights, server, facts)
            again = add_up(first, dict(reversed(blocks().items())), weights, server, facts)
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


def public_of(facts: Facts, step: Step, size: int) -> Public:
    """Public facts that are the same at every party, with an unused memory."""
    return Public(
        zone=step.link.zone, round=0, rounds=facts.rounds, layout=facts.layout,
        positions=np.arange(size, dtype=np.uint32), start=np.zeros(size, np.float32), memory={},
        stream=np.random.default_rng(0),
    )  # fmt: skip

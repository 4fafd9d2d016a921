"""What links did in a run, beside what they state."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.operations import Adds, Noise, Scramble, Seal
from fedplug.api.errors import FedplugError
from fedplug.api.folded import closers
from fedplug.api.types import Block, Plan
from fedplug.round import borders

if TYPE_CHECKING:
    from fedplug.api.links import Link, Step
    from numpy.typing import NDArray

    from fedplug_kit.world import World


def steps_of(world: World, name: str, hook: str, round: int = 0) -> list[Step]:
    """The component's links, with what is known in a round."""
    protocol = world.protocol
    ctx = dataclasses.replace(protocol.server.ctx, round=round)
    return [
        step for zone in protocol.composition.links for step in ctx.steps(zone)
        if step.link.name == name and step.link.hook == hook
    ]  # fmt: skip


# -- protectors --------------------------------------------------------------------------------------------------------


def link_problems(world: World, name: str) -> Iterator[str]:
    """Bounds under awkward inputs."""
    for step in steps_of(world, name, "protect"):
        if any(isinstance(effect, Noise | Seal | Scramble) for effect in step.effects or ()) or step.effects is None:
            continue
        size = world.protocol.layout.size
        spike = np.zeros(size, np.float32)
        spike[size // 2] = 1e4
        inputs = {
            "zeros": np.zeros(size, np.float32), "a spike": spike, "equal values": np.full(size, 3.0, np.float32),
            "huge values": np.full(size, 1e6, np.float32),
        }  # fmt: skip
        for what, values in inputs.items():
            try:
                protected(world, step.link, 0, within(values, step))
            except FedplugError as error:
                yield f"given {what}: {error}"


def within(values: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
    """The values, scaled down to what is known of a block before the link."""
    factor = 1.0
    for order in (1, 2):
        bound, length = step.before.norm(order), float(np.linalg.norm(values.astype(np.float64), order))
        if bound is not None and length > bound:
            factor = min(factor, bound / length * (1 - 1e-6))
    return (values * factor).astype(np.float32)


def protected(
    world: World, link: Link, client_id: int, values: NDArray[np.float32], round: int = 0
) -> tuple[Step, NDArray[np.float32]]:
    """What a link states, and makes of values that fill the whole model, at a client, in a round."""
    client = list(world.clients.clients.values())[client_id]
    held, client.plan = client.plan, Plan.single(link.zone, len(values), client.ctx.zones)
    client.ctx = dataclasses.replace(client.ctx, round=round)
    update, client.update = client.update, np.zeros(len(values), np.float32)
    try:
        steps = client.ctx.steps(link.zone)
        step = next(each for each in steps if (each.link.name, each.link.hook) == (link.name, link.hook))
        block = Block(link.zone, len(values), values, divisor=client.weight)
        return step, borders.run(world.clients.composition, step, block, client.ctx, client=client).plain()
    finally:
        client.plan, client.update = held, update


# -- sums --------------------------------------------------------------------------------------------------------------


def sum_problems(world: World, name: str) -> Iterator[str]:
    """Sums of closed or plain blocks equal sums of plain values, where a link states that it closes or adds them."""
    ctx = dataclasses.replace(world.protocol.server.ctx, round=0)
    for zone in world.protocol.composition.links:
        steps = ctx.steps(zone)
        if not any(step.link.name == name for step in steps):
            continue
        summing = [step.effects or () for step in steps if step.link.hook == "aggregate"]
        adds = any(isinstance(effect, Adds) for effects in summing for effect in effects)
        closing = next((step for step in steps if step.link.name in closers(steps)), None)
        noisy = closing is not None and any(isinstance(effect, Noise) for effect in closing.effects or ())
        if not adds or noisy or any(isinstance(effect, Noise) for s in steps for effect in s.effects or ()):
            continue
        yield from _sum_problem(world, zone, closing)


def _sum_problem(world: World, zone: str, closing: Step | None) -> Iterator[str]:
    sent = [seen for seen in world.seen if seen.hook == "protect" and seen.round == 0 and seen.before.zone == zone]
    if closing is not None:
        mine = [seen for seen in sent if seen.link == closing.link.name]
        blocks = {seen.client_id: (seen.before, seen.weights) for seen in mine}
        opened = [s for s in world.seen if s.hook == "postprocess" and s.round == 0 and s.after.zone == zone
                  and s.link == closing.link.name]  # fmt: skip
        seal = next(e for e in closing.effects or () if isinstance(e, Seal | Scramble))
        limit, step = seal.range, seal.step
    else:
        totals = [s for s in world.seen if s.hook == "aggregate" and s.round == 0 and s.after.zone == zone]
        blocks = {c: (b, {c: 1.0 if b.weighted else totals[0].weights[c]}) for c, b in totals[0].before.items()} \
            if totals and totals[0].weights else {}
        opened, limit, step = totals, math.inf, 0.0
    if not blocks or not opened or any(block.positions is not None for block, _ in blocks.values()):
        return
    expected = np.zeros(next(iter(blocks.values()))[0].size)
    for client_id, (block, weights) in blocks.items():
        weighted = block.plain() * np.float64((weights or {}).get(client_id or 0, 1.0))
        expected += np.clip(weighted, -limit, limit)
    given = opened[0].after.plain().astype(np.float64)
    room = len(blocks) * step / 2 * (1 + 1e-6) + 1e-6 * max(1.0, float(np.abs(expected).max(initial=0.0)))
    if given.shape != expected.shape or np.abs(given - expected).max(initial=0.0) > room:
        far = np.abs(given - expected).max(initial=0.0) if given.shape == expected.shape else math.nan
        yield (
            f"zone {zone}: the sum of {len(blocks)} updates differs from that of the plain values by {far:.3g}; what "
            f"is stated allows {room:.3g}"
        )

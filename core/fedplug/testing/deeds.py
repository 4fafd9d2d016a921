"""What links did in a run, beside what they state."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedplug.api.effects import Adds, Noise, Scramble, Seal
from fedplug.api.errors import FedplugError
from fedplug.api.folded import closers
from fedplug.api.types import Block, Plan
from fedplug.round import borders
from fedplug.testing.noise import repeated_problem, scale_problem, shared_problems, uneven_problems

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.links import Step
    from fedplug.testing.parts import Seen
    from fedplug.testing.world import World

_DEVIATIONS = 6.0
"""Standard errors by which an estimate may miss what is stated: by chance once in five hundred million tries."""


_KNOWN = ("gaussian", "discrete_gaussian", "laplace")
_OF_ANOTHER_RUN = "is that of another run of the same recipe", "what is said to be secret must not follow from a seed"


def steps_of(world: World, name: str, hook: str, round: int = 0) -> list[Step]:
    """The component's links, with what is known in a round."""
    protocol = world.protocol
    ctx = dataclasses.replace(protocol.server.ctx, round=round)
    return [
        step for zone in protocol.composition.links for step in ctx.steps(zone)
        if step.link.name == name and step.link.hook == hook
    ]  # fmt: skip


# -- protectors --------------------------------------------------------------------------------------------------------


def link_problems(world: World, name: str, again: Callable[[], World]) -> Iterator[str]:
    """Bounds under awkward inputs, and the scale of noise; `again` makes the same run a second time."""
    for step in steps_of(world, name, "protect"):
        if step.effects is None:
            continue
        noises = [effect for effect in step.effects if isinstance(effect, Noise)]
        closes = any(isinstance(effect, Seal | Scramble) for effect in step.effects)
        size = world.protocol.layout.size
        spike = np.zeros(size, np.float32)
        spike[size // 2] = 1e4
        inputs = {
            "zeros": np.zeros(size, np.float32), "a spike": spike, "equal values": np.full(size, 3.0, np.float32),
            "huge values": np.full(size, 1e6, np.float32),
        }  # fmt: skip
        for what, values in inputs.items() if not (closes or noises) else ():
            try:
                _protected(world, step, 0, _within(values, step))
            except FedplugError as error:
                yield f"given {what}: {error}"
        if noises and not closes and not step.before.sealed:
            yield from _noise_problems(world, step, noises[-1], again)


def _within(values: NDArray[np.float32], step: Step) -> NDArray[np.float32]:
    """The values, scaled down to what is known of a block before the link."""
    factor = 1.0
    for order in (1, 2):
        bound, length = step.before.norm(order), float(np.linalg.norm(values.astype(np.float64), order))
        if bound is not None and length > bound:
            factor = min(factor, bound / length * (1 - 1e-6))
    return (values * factor).astype(np.float32)


def _protected(
    world: World, step: Step, client_id: int, values: NDArray[np.float32], round: int = 0
) -> NDArray[np.float32]:
    """What the link makes of values that fill the whole model, at a client, in a round."""
    client = list(world.clients.clients.values())[client_id]
    zones = client.ctx.zones
    held, client.plan = client.plan, Plan.single(step.link.zone, len(values), zones)
    client.ctx = dataclasses.replace(client.ctx, round=round)
    update, client.update = client.update, np.zeros(len(values), np.float32)
    try:
        block = Block(step.link.zone, len(values), values, divisor=client.weight)
        return borders.run(world.clients.composition, step, block, client.ctx, client=client).plain()
    finally:
        client.plan, client.update = held, update


def _noise_problems(world: World, step: Step, noise: Noise, again: Callable[[], World]) -> Iterator[str]:
    """Whether the noise of clients on the same values has the stated scale at every scalar, and is new every time."""
    if noise.scale is None or noise.mechanism not in _KNOWN:
        return
    later = next(each for each in steps_of(world, step.link.name, "protect", 1) if each.link == step.link)
    try:
        drawn = [_drawn(world, step, 0), _drawn(world, later, 1)]
        fresh = None if noise.source == "reproducible" else _drawn(again(), step, 0)
    except FedplugError as error:
        yield f"given zeros: {error}"
        return
    yield from repeated_problem(drawn[0][0], drawn[1][0])
    if fresh is not None:
        yield from repeated_problem(drawn[0][0], fresh[0], *_OF_ANOTHER_RUN)
    rows: list[NDArray[np.float64]] = []
    for noises, each in zip(drawn, (step, later), strict=True):
        stated = [effect for effect in each.effects or () if isinstance(effect, Noise)][-1]
        if (stds := _stds(world, stated)) is None:
            continue
        for mine, other in zip(noises[::2], noises[1::2], strict=False):
            apart = (mine - other) / math.sqrt(2)
            if not rows:
                yield from _stated_problems(world, stated, apart)
            rows.append(apart / np.where(stds > 0, stds, np.inf))
    noisy = np.array(rows)[:, np.asarray(_stds(world, noise)) > 0]
    if noisy.size:
        yield from uneven_problems(noisy)
        yield from shared_problems(noisy)


def _drawn(world: World, step: Step, round: int) -> list[NDArray[np.float64]]:
    """What the link makes of zeros at each client of a round."""
    clients = list(world.clients.clients.values())
    zeros = np.zeros(world.protocol.layout.size, np.float32)
    for client in clients[1:]:
        client.scores = dict(clients[0].scores or {})  # so that scales that follow from scores are alike
    return [_protected(world, step, index, zeros, round).astype(np.float64) for index in range(len(clients))]


def _stds(world: World, noise: Noise) -> NDArray[np.float64] | None:
    """The stated standard deviation of every scalar's noise, or None."""
    if noise.scale is None:
        return None
    layers = len(world.protocol.layout.layers)
    factor = math.sqrt(2) if noise.mechanism == "laplace" else 1.0
    return world.protocol.layout.per_scalar(np.broadcast_to(noise.scale, layers) * factor).astype(np.float64)


def _stated_problems(world: World, noise: Noise, found: NDArray[np.float64]) -> Iterator[str]:
    """Whether noise has the stated scale, in each layer where they differ."""
    stds = np.asarray(_stds(world, noise))
    layers = world.protocol.layout.per_scalar(np.arange(len(world.protocol.layout.layers)))
    numbers = range(len(noise.scale)) if isinstance(noise.scale, tuple) else ()
    for mask in [layers == number for number in numbers if len(numbers) > 1] or [slice(None)]:
        yield from scale_problem(found[mask], float(stds[mask][0]), noise.mechanism, len(numbers) > 1)


# -- openers -----------------------------------------------------------------------------------------------------------


def opener_problems(world: World, name: str, again: Callable[[], World]) -> Iterator[str]:
    """The scale of noise that is added to a sum, at every scalar, and whether that of two rounds and runs is new."""
    for step in steps_of(world, name, "postprocess"):
        noises = [effect for effect in step.effects or () if isinstance(effect, Noise)]
        calls = [seen for seen in world.seen if seen.hook == "postprocess" and seen.link == name]
        first, second = ([seen for seen in calls if seen.round == round][:1] for round in (0, 1))
        if not (first and noises and isinstance(noises[-1].scale, float)):
            continue
        added = [_added(seen) for seen in first + second if seen.after.size == first[0].after.size]
        std = noises[-1].scale * (math.sqrt(2) if noises[-1].mechanism == "laplace" else 1.0)
        yield from scale_problem(added[0], std, noises[-1].mechanism, False)
        if len(added) < 2 or not std:
            continue
        yield from repeated_problem(added[0], added[1])
        if noises[-1].source != "reproducible":
            fresh = [seen for seen in again().seen if seen.hook == "postprocess" and seen.link == name]
            yield from repeated_problem(added[0], _added(fresh[0]), *_OF_ANOTHER_RUN) if fresh else ()
        yield from uneven_problems(np.array(added) / std)
        yield from shared_problems(np.array(added) / std)


def _added(seen: Seen) -> NDArray[np.float64]:
    """What a link added to a sum."""
    added: NDArray[np.float64] = seen.after.plain().astype(np.float64) - seen.before.plain()
    return added


# -- sums --------------------------------------------------------------------------------------------------------------


def sum_problems(world: World, name: str) -> Iterator[str]:
    """Sums of closed or plain blocks equal sums of plain values, where a link states that it closes or adds them."""
    ctx = dataclasses.replace(world.protocol.server.ctx, round=0)
    for zone in world.protocol.composition.links:
        steps = ctx.steps(zone)
        if not any(step.link.name == name for step in steps):
            continue
        adds = [step for step in steps if step.link.hook == "aggregate" and Adds() in (step.effects or ())]
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

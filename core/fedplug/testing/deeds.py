"""What links did in a run, beside what they state."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedplug.api.effects import Adds, Noise, Scramble, Seal
from fedplug.api.errors import FedplugError
from fedplug.api.folded import closers
from fedplug.api.types import Block, Plan
from fedplug.round import borders

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedplug.api.links import Step
    from fedplug.testing.parts import Seen
    from fedplug.testing.world import World

_DEVIATIONS = 6.0
"""Standard errors by which an estimate may miss what is stated: by chance once in five hundred million tries."""


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
    """Bounds under awkward inputs, and the scale of noise."""
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
            yield from _noise_problems(world, step, noises[-1])


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


def _noise_problems(world: World, step: Step, noise: Noise) -> Iterator[str]:
    """Whether the noise of two clients on the same values has the stated scale, and that of two rounds is new."""
    if noise.scale is None or noise.mechanism not in ("gaussian", "discrete_gaussian", "laplace"):
        return
    size = world.protocol.layout.size
    first, second = list(world.clients.clients.values())[:2]
    first.scores = first.scores or {}
    second.scores = dict(first.scores)  # so that scales that follow from scores are alike
    zeros = np.zeros(size, np.float32)
    later = next(each for each in steps_of(world, step.link.name, "protect", 1) if each.link == step.link)
    try:
        noise_of_first = _protected(world, step, 0, zeros).astype(np.float64)
        apart = noise_of_first - _protected(world, step, 1, zeros)
        again = _protected(world, later, 0, zeros, 1).astype(np.float64)
    except FedplugError as error:
        yield f"given zeros: {error}"
        return
    yield from _repeated_problem(noise_of_first, again)
    variance = 2.0 if noise.mechanism == "laplace" else 1.0
    layers = world.protocol.layout.per_scalar(np.arange(len(world.protocol.layout.layers)))
    scales = noise.scale if isinstance(noise.scale, tuple) else (noise.scale,)
    for number, scale in enumerate(scales):
        mine = apart[layers == number] if len(scales) > 1 else apart
        yield from _scale_problem(mine / math.sqrt(2), scale * math.sqrt(variance), noise.mechanism, len(scales) > 1)


def _scale_problem(noise: NDArray[np.float64], std: float, mechanism: str, in_layer: bool) -> Iterator[str]:
    found, count = math.sqrt(float(np.mean(np.square(noise)))), len(noise)
    kurtosis = 6.0 if mechanism == "laplace" else 3.0
    tolerance = _DEVIATIONS * math.sqrt((kurtosis - 1) / count) / 2
    if std == 0:
        if found:
            yield f"it states no noise, and adds some of standard deviation {found:.4g}"
    elif abs(found / std - 1) > tolerance:
        where = " in a layer" if in_layer else ""
        yield (
            f"it states noise of standard deviation {std:.4g}{where}, and adds {found:.4g}: {found / std - 1:+.1%}, "
            f"where chance explains {tolerance:.1%}"
        )


def _repeated_problem(first: NDArray[np.float64], second: NDArray[np.float64]) -> Iterator[str]:
    """Whether the noises of two rounds are alike: the ledger adds up rounds whose noises know nothing of each other.

    Each product is its own measure of what chance does, so values may have noise of different scales.
    """
    products, size = first * second, float(np.linalg.norm(first) * np.linalg.norm(second))
    found, chance = float(products.sum()), _DEVIATIONS * float(np.linalg.norm(products))
    if abs(found) > chance:
        yield (
            f"its noise of round 2 follows that of round 1: a correlation of {found / size:+.2f}, where chance "
            f"explains {chance / size:.2f}; whoever has both subtracts what they share: draw it anew in each round"
        )


# -- openers -----------------------------------------------------------------------------------------------------------


def opener_problems(world: World, name: str) -> Iterator[str]:
    """The scale of noise that is added to a sum, and whether that of two rounds is new."""
    for step in steps_of(world, name, "postprocess"):
        noises = [effect for effect in step.effects or () if isinstance(effect, Noise)]
        calls = [seen for seen in world.seen if seen.hook == "postprocess" and seen.link == name]
        first, second = ([seen for seen in calls if seen.round == round][:1] for round in (0, 1))
        for seen in first if noises and isinstance(noises[-1].scale, float) else ():
            added = _added(seen)
            if second and second[0].after.size == seen.after.size:
                yield from _repeated_problem(added, _added(second[0]))
            factor = 2.0 if noises[-1].mechanism == "laplace" else 1.0
            scale = noises[-1].scale
            assert isinstance(scale, float)
            yield from _scale_problem(added, scale * math.sqrt(factor), noises[-1].mechanism, False)


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

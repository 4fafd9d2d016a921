"""The noise of links in a run: drawn anew from each of them, and compared with the law that they state."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.operations import Noise, Scramble, Seal
from fedplug.api.errors import FedplugError, ProtectionError

from fedplug_kit.deeds import protected, steps_of, within
from fedplug_kit.law import KNOWN, Draws
from fedplug_kit.noise import CHANCE, law_problems, noise_problems
from fedplug_kit.sharing import follows_problems

if TYPE_CHECKING:
    from fedplug.api.links import Link, Step
    from numpy.typing import NDArray

    from fedplug_kit.parts import Seen
    from fedplug_kit.world import World

_ROUNDS = 2


# -- at clients --------------------------------------------------------------------------------------------------------


def link_noise_problems(world: World, name: str, again: Callable[[], World]) -> Iterator[str]:
    """The law of noise before the upload; `again` makes the same run a second time."""
    fresh = functools.cache(again)
    noisy = [
        step
        for step in steps_of(world, name, "protect")
        if not step.before.sealed
        and any(isinstance(effect, Noise) for effect in step.effects or ())
        and not any(isinstance(effect, Seal | Scramble) for effect in step.effects or ())
    ]
    for step in noisy:
        yield from _noise_problems(world, step, fresh, CHANCE / 2 / len(noisy))


def _noise_problems(world: World, step: Step, again: Callable[[], World], chance: float) -> Iterator[str]:
    """Whether noise on the same values at all clients has the stated law at every scalar, and is new every time.

    Zeros alone would not do: a link can look at what it is handed. So there are values of several sizes as well.
    """
    noise = [effect for effect in step.effects or () if isinstance(effect, Noise)][-1]
    size = world.protocol.layout.size
    values = within((0.05 * np.random.default_rng(1).standard_t(3, size)).astype(np.float32), step)
    if noise.grid:  # so that rounding is that of the noise alone; towards zero, so that no norm grows
        values = (np.trunc(values.astype(np.float64) / noise.grid) * noise.grid).astype(np.float32)
    for what, given in {"zeros": np.zeros(size, np.float32), "random values": values}.items():
        try:
            drawn = _drawn(world, step.link, given)
            fresh = _drawn(again(), step.link, given) if drawn and noise.source != "reproducible" else []
        except FedplugError as error:
            yield f"given {what}: {error}"
            return
        if not drawn:
            return
        # For each of two inputs, half of the chance: half of that for each of two kinds of tests.
        problems = list(follows_problems(drawn[0], given, chance / 4)) if len(drawn) == 1 else []
        problems = problems or list(noise_problems(drawn[0], fresh[0] if fresh else None, chance / 4))
        for other in drawn[1:] if not problems else ():
            problems += law_problems(other, chance / 4 / len(drawn))
        if problems:
            yield from (f"given {what}: {problem}" for problem in problems)
            return


def _drawn(world: World, link: Link, values: NDArray[np.float32]) -> list[Draws]:
    """The noise that the link adds to values, at each client of each round; nothing where its law is not stated.

    Where the link does nothing else, noise is what it gives, minus the values. Where it does, noise is what it gives at
    one client minus what it gives at another, for every way to pair the clients, which together make out whose it is.

    Raises:
        ProtectionError: there is noise where none is stated, or nobody can tell which part of the values is noise.
    """
    clients = list(world.clients.clients.values())
    for client in clients[1:]:
        client.scores = dict(clients[0].scores or {})  # so that what follows from scores is alike
    made = [[protected(world, link, each, values, round) for each in range(len(clients))] for round in range(_ROUNDS)]
    stated = [[[e for e in step.effects or () if isinstance(e, Noise)] for step, _ in row] for row in made]
    if any(len(each) != 1 for row in stated for each in row):
        raise ProtectionError("it states several noises, or none in some round; put each into a link of its own")
    if any(each[0].scale is None or each[0].mechanism not in KNOWN for row in stated for each in row):
        return []
    noises = [[each[0] for each in row] for row in stated]
    given = np.array([[after for _, after in row] for row in made], np.float64)
    std = np.array([[_stds(world, noise) for noise in row] for row in noises])
    grid = np.array([[noise.grid for noise in row] for row in noises])[..., None]
    rounding = np.maximum(grid, np.spacing(np.abs(given).astype(np.float32)).astype(np.float64))
    layers = world.protocol.layout.per_scalar(np.arange(len(world.protocol.layout.layers))).astype(np.int64)
    mechanism = noises[0][0].mechanism
    silent = std == 0
    if all(step.effects == (noise,) for row, said in zip(made, noises, strict=True)
           for (step, _), noise in zip(row, said, strict=True)):  # fmt: skip
        noise = given - values
        if (np.abs(noise[silent]) > rounding[silent]).any():
            raise ProtectionError(f"it states no noise, and adds some: up to {np.abs(noise[silent]).max():.4g}")
        who = tuple(f"client {client.client_id}" for client in clients)
        return [Draws.of(noise, std, rounding, mechanism, layers, who)]
    if (grid > std / 2).any() and std.any():
        raise ProtectionError(
            f"it states noise on a grid of {grid.max():.4g}, which is coarse, and does more to the values: nobody can "
            "tell whether its noise is as stated; put the noise into a link of its own"
        )
    found = []
    for pairs in _pairings(len(clients)):
        one, other = (np.array(each) for each in zip(*pairs, strict=True))
        noise = (given[:, one] - given[:, other]) / math.sqrt(2)
        both = np.sqrt((std[:, one] ** 2 + std[:, other] ** 2) / 2)
        steps = np.maximum(rounding[:, one], rounding[:, other])
        if (np.abs(noise[both == 0]) > steps[both == 0]).any():
            raise ProtectionError(f"it states no noise, and adds some: up to {np.abs(noise[both == 0]).max():.4g}")
        who = tuple(f"clients {clients[i].client_id} and {clients[j].client_id}" for i, j in pairs)
        found.append(Draws.of(noise, both, steps, mechanism, layers, who, apart=True))
    return found


def _pairings(count: int) -> list[list[tuple[int, int]]]:
    """Ways to pair clients in which all meet, as in a tournament; of an odd number one rests each time."""
    seats, found = [*range(count), *([-1] * (count % 2))], []
    for _ in range(len(seats) - 1):
        table = zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :]), strict=True)
        found.append([pair for pair in table if -1 not in pair])
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return found


def _stds(world: World, noise: Noise) -> NDArray[np.float64]:
    """The stated standard deviation of every scalar's noise."""
    assert noise.scale is not None
    layers = len(world.protocol.layout.layers)
    factor = math.sqrt(2) if noise.mechanism == "laplace" else 1.0
    return world.protocol.layout.per_scalar(np.broadcast_to(noise.scale, layers) * factor).astype(np.float64)


# -- on sums -----------------------------------------------------------------------------------------------------------


def sum_noise_problems(world: World, name: str, again: Callable[[], World]) -> Iterator[str]:
    """The law of noise that is added to a sum, at every scalar, and whether that of two rounds and runs is new."""
    steps = steps_of(world, name, "postprocess")
    for step in steps:
        stated = [noise for noise in (_noise_of(world, step.link, round) for round in range(_ROUNDS)) if noise]
        drawn = _added(world, step.link, stated)
        if drawn is None:
            continue
        fresh = _added(again(), step.link, stated) if stated[0].source != "reproducible" else None
        yield from noise_problems(drawn, fresh, CHANCE / 2 / len(steps))


def _noise_of(world: World, link: Link, round: int) -> Noise | None:
    """What noise an opener states in a round."""
    steps = steps_of(world, link.name, "postprocess", round)
    effects = next((each.effects for each in steps if each.link.zone == link.zone), None) or ()
    noises = [effect for effect in effects if isinstance(effect, Noise)]
    return noises[-1] if noises else None


def _added(world: World, link: Link, stated: list[Noise]) -> Draws | None:
    """What a link added to the sums of a run, a group in each round; None where there is no noise of a stated law."""
    calls = [seen for seen in world.seen if _is_call(seen, link)]
    first = [next((seen for seen in calls if seen.round == round), None) for round in range(len(stated))]
    known = [noise for noise in stated if isinstance(noise.scale, float) and noise.mechanism in KNOWN]
    pairs = [(seen, noise) for seen, noise in zip(first, known, strict=False) if seen is not None]
    if not pairs or len(known) < len(stated) or len({seen.after.size for seen, _ in pairs}) > 1:
        return None
    after = np.array([[seen.after.plain()] for seen, _ in pairs])
    noise = after.astype(np.float64) - np.array([[seen.before.plain()] for seen, _ in pairs])
    std = np.array([_stds(world, each)[:1] for _, each in pairs])[..., None] * np.ones_like(noise)
    grid = np.array([each.grid for _, each in pairs])[:, None, None]
    rounding = np.maximum(grid, np.spacing(np.abs(after)).astype(np.float64))
    return Draws.of(noise, std, rounding, stated[0].mechanism, np.zeros(noise.shape[-1], np.int64), ("the sum",))


def _is_call(seen: Seen, link: Link) -> bool:
    return (seen.hook, seen.link) == ("postprocess", link.name) and seen.after.zone == link.zone

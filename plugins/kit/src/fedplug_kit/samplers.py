"""Checks `Noise.own`, which only the plugin executes: whether its sampler matches its declared price.

A sampler is checked by itself. It must draw afresh each time, change every scalar, and hide one client: its results for
values at the bound and for zeros must not be distinguishable better than its price allows. The last check is an audit
of the mechanism (Jagielski, Ullman and Oprea, Auditing differentially private machine learning, NeurIPS 2020): it finds
a price that is far too low, as of half the noise, and proves none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import FedplugError, cause_of
from fedplug.api.operations import GAUSSIAN, Noise
from fedplug.api.streams import stream
from fedplug_ledger.accounting import composed_epsilon

from fedplug_kit.functions import awkward, public_of, within

if TYPE_CHECKING:
    from fedplug.api.links import Step
    from numpy.typing import NDArray

    from fedplug_kit.world import World

CHANCE = 1e-6
"""Largest probability that a sampler with a right price is reported."""
_DRAWS, _FEW = 1000, 16
_DELTAS = (0.0, 0.01, 0.1, 0.3)


def sampler_problems(world: World, name: str) -> Iterator[str]:
    """Checks every `Noise.own` that the component gives."""
    for hook in ("protect", "postprocess"):
        for step in world.steps(name, hook):
            for noise, known in zip(step.operations, step.states, strict=False):
                if isinstance(noise, Noise) and noise.sample is not None:
                    place = f"component {name}, hook {hook}, Noise.own({noise.mechanism!r})"
                    bound = known.sensitivity(noise.order) if noise.trust == "central" else known.norm(noise.order)
                    try:
                        values = within(awkward(world.protocol.layout.size)["random values"], known)
                        problems = list(_draw_problems(noise, _sampling(world, step, noise), values))
                        if not problems and bound is not None and 0 < bound < math.inf and noise.at_least:
                            problems += _audit(world, step, noise, bound)
                    except FedplugError as error:
                        problems = [str(error)]
                    except Exception as error:
                        problems = [f"its sampler fails: {cause_of(error)}"]
                    yield from (f"{place}: {problem}" for problem in problems)


def _sampling(world: World, step: Step, noise: Noise) -> Callable[[NDArray[np.float32], int], NDArray[np.float32]]:
    """Draws noise on values with the stream of this number."""
    assert noise.sample is not None
    sample = noise.sample

    def draw(values: NDArray[np.float32], number: int) -> NDArray[np.float32]:
        public = public_of(world.protocol.server.facts, step, len(values))
        return np.asarray(sample(values.copy(), public, stream(7, step.link.name, number)))

    return draw


def _draw_problems(
    noise: Noise, draw: Callable[[NDArray[np.float32], int], NDArray[np.float32]], values: NDArray[np.float32]
) -> Iterator[str]:
    drawn = np.array([draw(values, number) for number in range(_FEW)])
    if any(np.array_equal(drawn[0], other) for other in drawn[1:]):
        yield (
            "it gives the same noise more than once, so the difference of two uploads is free of noise; draw afresh in "
            "each call, from the stream that it receives or from the system's randomness"
        )
    elif noise.source == "reproducible" and not np.array_equal(draw(values, 0), drawn[0]):
        yield "it is declared as reproducible, but differs for the same stream; draw from the stream that it receives"
    elif noise.source == "secure" and np.array_equal(draw(values, 0), drawn[0]):
        yield (
            "it is declared as secure, but follows from the recipe's seed, which protects nobody; draw from the "
            "system's randomness, or declare source='reproducible'"
        )
    else:
        bare = int((drawn == values).all(0).sum())
        # On a coarse grid many values do not change, so values without noise cannot be identified.
        if 0 < bare < len(values) / 4:
            yield f"{bare} of {len(values)} values are unchanged in {_FEW} draws; give each its own noise"


def _audit(world: World, step: Step, noise: Noise, bound: float) -> Iterator[str]:
    """Checks that results for values at the bound and for zeros are no easier to tell apart than the price allows.

    An (epsilon, delta)-DP mechanism gives P(T > t | values) <= e^epsilon P(T > t | zeros) + delta for every statistic
    T. An empirical distribution of n draws is within sqrt(ln(2/chance) / 2n) of the true one for all t at once
    (Dvoretzky, Kiefer and Wolfowitz; Massart).
    """
    draw, size = _sampling(world, step, noise), world.protocol.layout.size
    room = math.sqrt(math.log(4 * 2 / CHANCE) / (2 * _DRAWS))
    farthest = _farthest(noise, bound, size)
    lengths = [max(float(np.linalg.norm(values)), 1e-300) for values in farthest.values()]
    directions = [values.astype(np.float64) / length for values, length in zip(farthest.values(), lengths, strict=True)]
    zeros, across = np.zeros(size, np.float32), np.stack(directions, 1)
    of_zeros = np.array([draw(zeros, _DRAWS + number) @ across for number in range(_DRAWS)])
    for place, (what, values) in enumerate(farthest.items()):
        there = np.sort([draw(values, number) @ directions[place] for number in range(_DRAWS)])
        nothing = np.sort(of_zeros[:, place])
        at = np.concatenate([there, nothing])
        share, by_chance = (1 - np.searchsorted(each, at) / _DRAWS for each in (there, nothing))
        for delta in _DELTAS:
            epsilon = _epsilon(world, noise, delta)
            if epsilon > 20:
                continue
            allowed = math.exp(epsilon) * (by_chance + room) + delta + room
            worst = int(np.argmax(share - allowed))
            if share[worst] > allowed[worst]:
                yield (
                    f"its price is an epsilon of {epsilon:.3g} at delta {delta:g} a release, but {what} can be told "
                    f"from zeros in {share[worst]:.0%} of the draws, with {by_chance[worst]:.1%} false alarms; add "
                    "more noise, or state a smaller multiplier"
                )
                return


def _farthest(noise: Noise, bound: float, size: int) -> dict[str, NDArray[np.float32]]:
    """Values at the bound: concentrated in one scalar, and spread equally over all."""
    one, even = np.zeros(size, np.float32), np.ones(size)
    one[-1] = bound
    length = size ** (1 / noise.order)
    return {"a value at the bound": one, "values at the bound": (even * bound / length).astype(np.float32)}


def _epsilon(world: World, noise: Noise, delta: float) -> float:
    """The cost of one release by its declared price."""
    multiplier = noise.at_least or 0.0
    if noise.mechanism == "pure":
        return 1 / multiplier
    if delta == 0:
        return math.inf
    if noise.mechanism in GAUSSIAN:
        return composed_epsilon(1 / multiplier**2, (), delta)
    curves = {} if noise.curve is None else {noise.mechanism: noise.curve}
    return composed_epsilon(0.0, [(noise.mechanism, multiplier, 1)], delta, curves)

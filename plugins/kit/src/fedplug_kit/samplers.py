"""Noise of a plugin's own, which nobody executes but the plugin: whether its sampler does what its price says.

A sampler is looked at by itself. It draws anew each time, leaves no scalar as it was, and hides one client: of values
at the bound and of zeros it gives results that cannot be told apart better than its price allows. The last is an audit
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
from fedplug.api.parties import stream
from fedplug.privacy.accounting import composed_epsilon

from fedplug_kit.functions import awkward, facts, within

if TYPE_CHECKING:
    from fedplug.api.links import Step
    from numpy.typing import NDArray

    from fedplug_kit.world import World

CHANCE = 1e-6
"""How often at most a sampler whose price is right is said to cost more."""
_DRAWS, _FEW = 1000, 16
_DELTAS = (0.0, 0.01, 0.1, 0.3)


def sampler_problems(world: World, name: str) -> Iterator[str]:
    """All that is looked at, of every noise of its own that the component gives."""
    for hook in ("protect", "postprocess"):
        for step in world.steps(name, hook):
            for noise, known in zip(step.operations, step.states, strict=False):
                if isinstance(noise, Noise) and noise.sample is not None:
                    place = f"component {name}, hook {hook}, Noise.own({noise.mechanism!r})"
                    bound = known.sensitivity(noise.order) if noise.trust == "central" else known.norm(noise.order)
                    try:
                        values = within(awkward(world.protocol.layout.size)["random values"], known)
                        problems = list(_draw_problems(noise, _sampling(world, step, noise), values))
                        if not problems and bound is not None and 0 < bound < math.inf and noise.promised:
                            problems += _audit(world, step, noise, bound)
                    except FedplugError as error:
                        problems = [str(error)]
                    except Exception as error:
                        problems = [f"its sampler fails: {cause_of(error)}"]
                    yield from (f"{place}: {problem}" for problem in problems)


def _sampling(world: World, step: Step, noise: Noise) -> Callable[[NDArray[np.float32], int], NDArray[np.float32]]:
    """Draws noise on values with the stream of a number."""
    assert noise.sample is not None
    sample = noise.sample

    def draw(values: NDArray[np.float32], number: int) -> NDArray[np.float32]:
        public = facts(world.protocol.server.ctx, step, len(values))
        return np.asarray(sample(values.copy(), public, stream(7, step.link.name, number)))

    return draw


def _draw_problems(
    noise: Noise, draw: Callable[[NDArray[np.float32], int], NDArray[np.float32]], values: NDArray[np.float32]
) -> Iterator[str]:
    drawn = np.array([draw(values, number) for number in range(_FEW)])
    if any(np.array_equal(drawn[0], other) for other in drawn[1:]):
        yield (
            "it gives the same noise more than once, and the difference of two uploads holds none of it; draw anew in "
            "each call, of the stream that it is handed or of the system's randomness"
        )
    elif noise.source == "reproducible" and not np.array_equal(draw(values, 0), drawn[0]):
        yield "it is said to be reproducible, and differs for the same stream; draw from the stream that it is handed"
    elif noise.source == "secure" and np.array_equal(draw(values, 0), drawn[0]):
        yield (
            "it is said to be secure, and follows from the recipe's seed, which protects nobody; draw from the "
            "system's randomness, or say source='reproducible'"
        )
    else:
        bare = int((drawn == values).all(0).sum())
        # On a coarse grid many values stay where they are; then nobody can say which of them have no noise.
        if 0 < bare < len(values) / 4:
            yield f"{bare} of {len(values)} values come out of {_FEW} draws as they were; give each its own noise"


def _audit(world: World, step: Step, noise: Noise, bound: float) -> Iterator[str]:
    """Whether results for values at the bound and for zeros can be told apart better than the price allows.

    An (epsilon, delta)-DP mechanism gives P(T > t | values) <= e^epsilon P(T > t | zeros) + delta for every statistic
    T. An empirical distribution of n draws is within sqrt(ln(2/chance) / 2n) of the true one for all t at once
    (Dvoretzky, Kiefer and Wolfowitz; Massart).
    """
    draw, size = _sampling(world, step, noise), world.protocol.layout.size
    room = math.sqrt(math.log(4 * 2 / CHANCE) / (2 * _DRAWS))
    for what, values in _farthest(noise, bound, size).items():
        direction = values.astype(np.float64) / max(float(np.linalg.norm(values)), 1e-300)
        zeros = np.zeros(size, np.float32)
        there = np.sort([draw(values, number) @ direction for number in range(_DRAWS)])
        nothing = np.sort([draw(zeros, _DRAWS + number) @ direction for number in range(_DRAWS)])
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
                    f"its price is an epsilon of {epsilon:.3g} at delta {delta:g} a release, and {what} can be told "
                    f"from zeros in {share[worst]:.0%} of the draws, with {by_chance[worst]:.1%} false alarms; add "
                    "more noise, or state a smaller multiplier"
                )
                return


def _farthest(noise: Noise, bound: float, size: int) -> dict[str, NDArray[np.float32]]:
    """Values at the bound: all of it in one scalar, and the same in all."""
    one, even = np.zeros(size, np.float32), np.ones(size)
    one[-1] = bound
    length = size ** (1 / noise.order)
    return {"a value at the bound": one, "values at the bound": (even * bound / length).astype(np.float32)}


def _epsilon(world: World, noise: Noise, delta: float) -> float:
    """What one release costs by its own price."""
    multiplier = noise.promised or 0.0
    if noise.mechanism == "pure":
        return 1 / multiplier
    if delta == 0:
        return math.inf
    if noise.mechanism in GAUSSIAN:
        return composed_epsilon(1 / multiplier**2, (), delta)
    curves = {} if noise.curve is None else {noise.mechanism: noise.curve}
    return composed_epsilon(0.0, [(noise.mechanism, multiplier, 1)], delta, curves)

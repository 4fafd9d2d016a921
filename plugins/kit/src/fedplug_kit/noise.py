"""Statistics of noise: what must hold of it where the ledger counts it, and how far chance explains what is found.

The ledger takes noise to be of the stated law and scale everywhere, and independent from scalar to scalar, from client
to client, from round to round and from run to run. Each test is handed the `chance` with which it may suspect noise
that is all of this. It keeps to it by a bound that holds for every number of draws (Chernoff's or Hoeffding's), not by
an estimate of standard errors. Where a test asks many questions at once, the bound is wide enough for all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug_kit.law import Draws, below, odds
from fedplug_kit.sharing import (
    copied_problems,
    missing_problems,
    rank_problems,
    repeated_problems,
    shared_problems,
    uneven_problems,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHANCE = 1e-6
"""How often at most a component whose noise is as stated is said to break its word, by all tests of noise together."""

_TESTS = 6
"""Families of tests below, each of which gets an equal share; copies, which chance makes once in 10^10, beside them."""


def noise_problems(draws: Draws, fresh: Draws | None, chance: float) -> Iterator[str]:
    """All that is looked at.

    Args:
        draws: of one run.
        fresh: of another run of the same recipe; None where noise is reproducible.
        chance: with which it may suspect noise that is as stated.
    """
    if not draws.scores.size:
        return
    part = chance / _TESTS
    rows = draws.rows if fresh is None else np.concatenate([draws.rows, fresh.rows])
    problems = list(missing_problems(draws, part / 2))
    if not problems:
        problems += [*law_problems(draws, 2 * part), *repeated_problems(draws, fresh, part)]
    if not problems:
        problems += [*uneven_problems(rows, part / 2), *shared_problems(rows, part)]
        problems += copied_problems(draws.found.reshape(-1, draws.found.shape[-1]))
    yield from problems or rank_problems(rows, part)


# -- the law -----------------------------------------------------------------------------------------------------------


def law_problems(draws: Draws, chance: float) -> Iterator[str]:
    """Whether noise has the stated scale and law at every client, in every round and layer."""
    layers = np.unique(draws.layers)
    rounds, clients = (range(size) for size in draws.scores.shape[:2])
    # Of each draw in each layer, and of all draws together, which show what is too little to be seen in one.
    places: list[tuple[str, tuple[Any, ...]]] = [
        (f"{draws.who[client]}, round {round + 1}{_layer(layer, layers)}", (round, client, draws.layers == layer))
        for round, client, layer in itertools.product(rounds, clients, layers)
    ]
    places += [(f"all draws{_layer(layer, layers)}", (..., draws.layers == layer)) for layer in layers]
    places.append(("all draws", (...,)))
    wrong: list[str] = []
    for where, place in places:
        std = math.sqrt(float(np.mean(np.square(draws.std[place]))))
        found = math.sqrt(float(np.mean(np.square(draws.found[place])))) * std
        scores = draws.scores[place].ravel()
        wrong += [f"{problem} ({where}" for problem in scale_problems(scores, std, found, chance / 2 / len(places))]
    if wrong:
        yield wrong[0] + (f", and {len(wrong) - 1} more like it)" if len(wrong) > 1 else ")")
        return
    parts = {"": draws.scores}
    parts |= {_layer(n, layers): draws.scores[..., draws.layers == n] for n in layers if len(layers) > 1}
    parts |= {f", {who}": draws.scores[:, number] for number, who in enumerate(draws.who)}
    for where, scores in parts.items():
        for problem in shape_problems(scores.ravel(), draws.mechanism, chance / 2 / len(parts)):
            yield problem + where
            return


def _layer(number: int, layers: NDArray[np.int64]) -> str:
    return f", layer {int(number) + 1}" if len(layers) > 1 else ""


def scale_problems(scores: NDArray[np.float64], std: float, found: float, chance: float) -> Iterator[str]:
    """Whether scores have a mean square of 1.

    That of n normal draws is r or further off with a probability of at most 2 exp(-n (r - 1 - ln r) / 2) (Chernoff).

    Args:
        scores: (n,)
        std: stated, for the message.
        found: likewise.
        chance: of suspecting noise that is as stated.
    """
    ratio = float(np.mean(np.square(scores)))
    unlikely = len(scores) / 2 * (ratio - 1 - math.log(ratio)) if ratio else math.inf
    if unlikely > math.log(2 / chance):
        yield (
            f"it states noise of standard deviation {std:.4g}, and adds {found:.4g}: {found / std - 1:+.1%}, which "
            f"chance does {odds(unlikely - math.log(2))}"
        )


def shape_problems(scores: NDArray[np.float64], mechanism: str, chance: float) -> Iterator[str]:
    """Whether as many scores as should lie below any value, and as close to 0.

    The k-th smallest of n uniform draws is u or further off, to one side, with a probability of at most exp(-n KL(k/n,
    u)); so n KL exceeds ln(4 n / chance) nowhere, in either of two orders (Berk & Jones 1979, with a union over k).
    Unlike the distance of distribution functions this sees tails that are missing.
    """
    size, most = len(scores), math.log(4 * len(scores) / chance)
    sizes = np.abs(scores)
    for what, share in (("in sign and size", below(scores, "gaussian")), ("in size", 2 * below(-sizes, "gaussian"))):
        ordered = np.clip(np.sort(share), 1e-300, 1 - 1e-16)
        low, high = np.arange(1, size + 1) / size, np.arange(size) / size
        far = np.where(ordered < low, _apart(low, ordered), 0.0)
        far = size * np.maximum(far, np.where(ordered > high, _apart(high, ordered), 0.0))
        worst = int(np.argmax(far))
        if far[worst] > most:
            yield (
                f"its noise is not {mechanism}, as it states: {what}, {worst + 0.5:.0f} of {size} draws lie where "
                f"{ordered[worst] * size:.1f} should, which chance does {odds(far[worst] - math.log(4 * size))}; draw "
                "from the law that is stated, without cutting it"
            )
            return


def _apart(found: NDArray[np.float64], stated: NDArray[np.float64]) -> NDArray[np.float64]:
    """Kullback-Leibler divergence of two coins."""
    with np.errstate(divide="ignore", invalid="ignore"):
        heads = np.where(found > 0, found * np.log(found / stated), 0.0)
        tails = np.where(found < 1, (1 - found) * np.log((1 - found) / (1 - stated)), 0.0)
    total: NDArray[np.float64] = heads + tails
    return total

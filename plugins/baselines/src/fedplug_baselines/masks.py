"""What the negotiations share: how many scalars a share of the model is, the highest scores, a mask as a plan."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Plan
from fedplug.errors import ProtectionError
from fedplug.types import ENCRYPTED

if TYPE_CHECKING:
    from fedplug import Client, Context, Layout
    from numpy.typing import NDArray


def count_of(ratio: float, size: int) -> int:
    """How many of `size` scalars a share is: floor(ratio * size)."""
    # The tiny addend keeps products such as 0.29 * 100 from falling below the integer that they mean.
    return math.floor(ratio * size + 1e-9)


def zones_of(ratio: float, rest: str) -> frozenset[str]:
    """The zones of a plan that encrypts a share of the model and leaves the rest to another zone."""
    return frozenset(({ENCRYPTED} if ratio > 0 else set()) | ({rest} if ratio < 1 else set()))


def scorer_problems(recipe: Any, by: str | None, remedy: str) -> list[str]:
    """Why the recipe's scorers do not serve a negotiation; empty if they do.

    Args:
        recipe: the recipe.
        by: the scorer that is asked for by name; None takes the first.
        remedy: what to add where there is none.
    """
    names = [use.name for use in recipe.score_parameters]
    if by is not None and by not in names:
        return [f"by: {by!r} is no scorer of this recipe; it has {names or 'none'}"]
    return [] if names else [f"the mask follows from scores; add {remedy}"]


def per_scalar(client: Client, by: str | None) -> NDArray[np.float32]:
    """A client's scores of this round, (P,), by the named scorer or the recipe's first."""
    scores = client.scores[by] if by else next(iter(client.scores.values()))
    return spread(scores, client.ctx.layout)


def spread(scores: NDArray[np.float32], layout: Layout) -> NDArray[np.float32]:
    """Scores of each scalar, (P,), of scores that are given a scalar, (P,), or a layer, (L,).

    Raises:
        ProtectionError: a score is NaN, which is neither high nor low.
    """
    undefined = int(np.count_nonzero(np.isnan(scores)))
    if undefined:
        raise ProtectionError(
            f"{undefined} of {len(scores)} scores are NaN and cannot be ranked; the local training diverged: lower lr "
            "in train"
        )
    if len(scores) == layout.size:
        return scores
    everywhere = np.empty(layout.size, np.float32)
    for score, slices in zip(scores, layout.layer_slices().values(), strict=True):
        for part in slices:
            everywhere[part] = score
    return everywhere


def highest(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Indices of the `count` highest scores, ascending; of equal scores the lowest indices."""
    if count == 0:
        return np.empty(0, np.int64)
    # Partition and flatnonzero: a third of the time of an argpartition, and ties go the same way everywhere.
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    above = np.flatnonzero(scores > least)
    tied = np.flatnonzero(scores == least)[: count - len(above)]
    return np.sort(np.concatenate([above, tied]))


def adopt(client: Client, encrypted: NDArray[Any], rest: str) -> None:
    """Sets the plan of this round: a mask or indices encrypted, the rest in one zone; the same at every client."""
    ctx: Context = client.ctx
    client.plan = Plan.of(rest, ctx.layout.size, ctx.zones, shared=ctx.zones, **{ENCRYPTED: encrypted})

"""Scores in negotiations: select those of one scorer, rank them, and report missing ones in time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from fedplug import Client, Recipe
    from numpy.typing import NDArray


def scorer_problems(recipe: Recipe, by: str | None, missing: str) -> list[str]:
    """Why the recipe's scorers do not serve a component; empty if they do.

    Args:
        recipe: the recipe.
        by: the scorer that the component names; None: the first.
        missing: what to say where there is no scorer, with a remedy.
    """
    names = [use.name for use in recipe.score_parameters]
    if not names:
        return [missing]
    return [] if by is None or by in names else [f"by: {by!r} is not a scorer of this recipe; it has {names}"]


def count_of(ratio: float, size: int) -> int:
    """Number of scalars in a share of `size`: floor(ratio * size)."""
    # The tiny addend keeps products such as 0.29 * 100 from falling below the integer that they represent.
    return math.floor(ratio * size + 1e-9)


def require_finite(values: NDArray[Any], client: Client, what: str, remedy: str = "lower lr in train") -> None:
    """Refuses what a client works out of a model that diverged.

    Args:
        values: any.
        client: whose.
        what: they are, such as "the Fisher information of its scalars".
        remedy: against divergence.

    Raises:
        ProtectionError: a value is not finite.
    """
    wrong = int(np.count_nonzero(~np.isfinite(values)))
    if wrong:
        raise ProtectionError(
            f"client {client.client_id}: {what}: {wrong} of {len(values)} are NaN or infinite; its training diverged: "
            f"{remedy}"
        )


_SAMPLE = 4096
"""Least number of scores for which a sample estimates the highest ones."""


def require_ranked(scores: NDArray[Any]) -> None:
    """Refuses scores without an order.

    Raises:
        ProtectionError: a score is NaN, which is neither high nor low.
    """
    undefined = int(np.count_nonzero(np.isnan(scores)))
    if undefined:
        raise ProtectionError(
            f"{undefined} of {len(scores)} scores are NaN and cannot be ranked; the local training diverged: lower lr "
            "in train"
        )


def highest(scores: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Indices of the `count` highest scores; of equal scores the lowest indices.

    Those above the least that is taken come first, ascending, then those equal to it, ascending.

    Raises:
        ProtectionError: a score is NaN, which is neither high nor low.
    """
    require_ranked(scores)
    if count == 0:
        return np.empty(0, np.int64)
    among = _candidates(scores, count)
    candidates = scores if among is None else scores[among]
    # Partition and flatnonzero: a third of the time of an argpartition, and ties go the same way everywhere.
    least = np.partition(candidates, len(candidates) - count)[len(candidates) - count]
    above = np.flatnonzero(candidates > least)
    found = np.concatenate([above, np.flatnonzero(candidates == least)[: count - len(above)]])
    return found if among is None else among[found]


def _candidates(scores: NDArray[Any], count: int) -> NDArray[np.int64] | None:
    """Indices among which the highest and all that equal the lowest of them are, ascending; None: they may be anywhere.

    Of many scores, those are left out that a sample shows to be too low.
    """
    sample = scores[:: len(scores) // _SAMPLE] if len(scores) >= 4 * _SAMPLE else scores[:0]
    rank = len(sample) * count // len(scores) * 5 // 4 + 64  # more than expected, so that it is nearly always enough
    if rank >= len(sample) // 2:
        return None
    among = np.flatnonzero(scores >= np.partition(sample, len(sample) - rank)[len(sample) - rank])
    return among if len(among) >= count else None

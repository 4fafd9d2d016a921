"""Who takes part in a round."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedplug.api.streams import stream

if TYPE_CHECKING:
    from fedplug.recipe.recipe import Recipe


def sample(recipe: Recipe, client_ids: Sequence[int], round: int) -> list[int]:
    """The clients of a round: all, each with probability `rate` (poisson), or a fixed share (fixed)."""
    sampling = recipe.sampling
    if sampling is None:
        return list(client_ids)
    # Amplification needs a cohort that nobody can predict, so the system's randomness is the default.
    secure = sampling.source == "secure"
    rng = random.SystemRandom() if secure else stream(recipe.seed, "cohort", round)
    coins = {client_id: rng.random() for client_id in client_ids}
    if sampling.scheme == "poisson":
        return [client_id for client_id, coin in coins.items() if coin < sampling.rate]
    count = max(1, int(sampling.rate * len(client_ids) + 0.5))
    return sorted(sorted(coins, key=coins.__getitem__)[:count])

"""Noise that changes from round to round."""

from __future__ import annotations

import math


def geometric_schedule(total_multiplier: float, rounds: int, decay: float) -> list[float]:
    """Multipliers that change by `decay` from round to round and together cost `total_multiplier`.

    sigma_t = sigma_1 * decay^(t-1), the amplitude-varying perturbation of X. Yuan et al., calibrated so that
    `effective_multiplier` of the list equals `total_multiplier`. decay 1 gives sqrt(rounds) * total_multiplier.

    Args:
        total_multiplier: the price of all rounds together, as a multiplier, >= 0.
        rounds: T >= 1.
        decay: factor per round, > 0; below 1 the noise shrinks, so late rounds cost most.

    Raises:
        ValueError: an argument out of range, or a schedule that float64 cannot hold.
    """
    if not total_multiplier >= 0:
        raise ValueError(f"total_multiplier={total_multiplier} must be >= 0")
    if rounds < 1 or not 0 < decay < math.inf:
        raise ValueError(f"rounds={rounds} must be >= 1 and decay={decay} must be > 0 and finite")
    # Relative to the smallest multiplier of the schedule, every term of the sum is at most 1.
    logs = [math.log(decay) * t for t in range(rounds)]
    smallest = min(logs)
    if max(logs) - smallest > 690:
        raise ValueError(f"decay={decay} over {rounds} rounds leaves the range of float64; use a decay closer to 1")
    scale = total_multiplier * math.sqrt(math.fsum(math.exp(2 * (smallest - log)) for log in logs))
    return [scale * math.exp(log - smallest) for log in logs]

"""Clipped updates and their noise as integers of which a sum of all clients cannot wrap around the modulus."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from fedplug.api.errors import ProtectionError
from fedplug_std.noise_sources import add_noise

from fedplug_baselines.lwe_field import HALF

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAILS = 12.0
"""Standard deviations of noise that a client's integers leave room for; P(|e| > 12 std) is 4e-33 for each value."""
_FEWEST_STEPS = 2.0**15
"""Fewest steps in a standard deviation of one client's noise. From there on discrete noise is accounted as Gaussian
noise (`fedplug_std.noise_sources`), and the error of the LWE instance is thousands of times that of common ones."""
_MOST_STEPS = 2.0**24
"""What `add_noise` can draw: float32 holds every integer up to there."""


def largest(clients: int) -> int:
    """The largest magnitude of one client's integers with which the sum of all stays within (q - 1) / 2."""
    return HALF // clients


def step_of(norm: float, std: float, clients: int, grid: float | None) -> float:
    """What an integer 1 stands for: the given grid, or the finest power of two that leaves room for all clients.

    It follows from public numbers alone.

    Args:
        norm: L2 bound of a client's values, which bounds each of them.
        std: of one client's noise, in the same units.
        clients: K.
        grid: what the recipe says; None for the finest.

    Raises:
        ProtectionError: with that step a sum could wrap, or the noise is too small to be drawn on such a grid.
    """
    room = largest(clients) - 1  # one step for rounding
    finest = 2.0 ** math.ceil(math.log2(max((norm + TAILS * std) / max(room, 1), TAILS * std / _MOST_STEPS)))
    coarsest = std / _FEWEST_STEPS
    if finest > coarsest:
        raise ProtectionError(
            f"noise of {std:g} a client is too small beside a norm of {norm:g} for sums of {clients} clients modulo "
            f"2^31 - 1: a step must be at least {finest:g} or they could wrap, and at most {coarsest:g} or the noise "
            "is not Gaussian; use more noise, a smaller epsilon, or fewer clients"
        )
    if grid is None:
        return finest
    if not finest <= grid <= coarsest:
        raise ProtectionError(
            f"grid={grid:g} must be {finest:g} (below it, the sum of {clients} clients could wrap) to {coarsest:g} "
            f"(2^15 steps to the noise of one client, {std:g}); leave grid out for the finest"
        )
    return grid


def fixed_point(values: NDArray[np.float32], step: float) -> NDArray[np.int64]:
    """g: the values in steps, rounded towards zero, since rounding must not lift their norm over the clip.

    Raises:
        ProtectionError: a value is NaN or infinite.
    """
    if not np.isfinite(values).all():
        raise ProtectionError(
            f"{int(np.count_nonzero(~np.isfinite(values)))} of {len(values)} values are NaN or infinite; the local "
            "training diverged: lower its learning rate"
        )
    return np.trunc(values.astype(np.float64) / step).astype(np.int64)


def noise(size: int, std: float, step: float, source: str, stream: np.random.Generator) -> NDArray[np.int64]:
    """e: Gaussian noise in steps, one of the sources of `fedplug_std.noise_sources`; shape (size,)."""
    drawn = add_noise(np.zeros(size, np.float32), std, step, source, stream)
    return np.rint(drawn.astype(np.float64) / step).astype(np.int64)


def check_room(integers: NDArray[np.int64], clients: int) -> None:
    """Refuses integers of which a sum of all clients could wrap.

    Raises:
        ProtectionError: one is larger than its share of the modulus.
    """
    limit = largest(clients)
    if int(np.abs(integers).max(initial=0)) > limit:
        raise ProtectionError(  # without the value: the message travels to the server
            f"a value is beyond {limit} steps, its share of the modulus 2^31 - 1 among {clients} clients: a sum "
            "could wrap; use a coarser grid, or a clip that bounds every value"
        )


def check_sum(integers: NDArray[np.int64], contributors: int, clients: int) -> None:
    """Refuses a sum that so many clients cannot give.

    Raises:
        ProtectionError: it is larger than they may add up to: it has wrapped, or was not masked as it was opened.
    """
    limit, found = contributors * largest(clients), int(np.abs(integers).max(initial=0))
    if found > limit:
        raise ProtectionError(
            f"the opened sum reaches {found} steps, but {contributors} updates add up to {limit} at most: it has "
            "wrapped around the modulus, or an upload or a share was wrong; the sum is not used"
        )

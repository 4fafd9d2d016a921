"""Clipped and noised updates as integers whose sum over all clients cannot wrap around the modulus."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import ProtectionError
from fedplug.api.grids import STEPS

from fedplug_baselines.lwe_field import HALF

if TYPE_CHECKING:
    from numpy.typing import NDArray

TAILS = 12.0
"""Standard deviations of noise that fit into a client's integers; P(|e| > 12 std) is 4e-33 for each value."""
_FEWEST_STEPS = 2.0**15
"""Minimum of steps per standard deviation of one client's noise. From there on discrete noise is accounted as Gaussian
noise (`fedplug.api.grids`), and the error of the LWE instance is thousands of times the usual one."""


def largest(clients: int) -> int:
    """The largest magnitude of one client's integers: float32 holds it, and a sum of all stays within (q - 1) / 2."""
    return min(int(STEPS), HALF // clients)


def step_of(norm: float, std: float, clients: int, grid: float | None) -> float:
    """The value of an integer 1: the given grid, or the finest power of two that leaves room for all clients.

    It depends on public numbers alone.

    Args:
        norm: L2 bound of a client's values, which bounds each of them.
        std: of one client's noise, in the same units.
        clients: K.
        grid: the recipe's option; None for the finest.

    Raises:
        ProtectionError: with that step a sum could wrap, or the noise is too small to be drawn on such a grid.
    """
    finest = 2.0 ** math.ceil(math.log2((norm + TAILS * std) / max(largest(clients), 1)))
    coarsest = std / _FEWEST_STEPS
    if finest > coarsest:
        raise ProtectionError(
            f"noise of {std:g} a client is too small for a norm of {norm:g} and sums of {clients} clients modulo "
            f"2^31 - 1: a step must be at least {finest:g}, or float32 does not hold the values or a sum could wrap, "
            f"and at most {coarsest:g}, or the noise is not Gaussian; use more noise or fewer clients"
        )
    if grid is None:
        return finest
    if not finest <= grid <= coarsest:
        raise ProtectionError(
            f"grid={grid:g} must be {finest:g} (below it, float32 does not hold a client's values, or the sum of "
            f"{clients} clients could wrap) to {coarsest:g} "
            f"(2^15 steps to the noise of one client, {std:g}); leave grid out for the finest"
        )
    return grid


@dataclasses.dataclass(frozen=True)
class Steps:
    """Noised values, which lie on the grid, as whole steps; exact.

    Attributes:
        step: the grid; 0 while no model is known.
        clients: K.
    """

    step: float
    clients: int
    range = math.inf

    def encode(self, values: NDArray[np.float64], rng: Any = None) -> tuple[NDArray[np.int64], float]:
        """e + g in steps."""
        return np.rint(values / self.step).astype(np.int64), 0.0

    def decode(self, words: NDArray[np.int64], counts: int) -> NDArray[np.float64]:
        """Values of a sum of that many updates.

        Raises:
            ProtectionError: the sum is too large: it has wrapped, or its mask was not the one that was removed.
        """
        limit, found = counts * largest(self.clients), int(np.abs(words).max(initial=0))
        if found > limit:
            raise ProtectionError(
                f"the opened sum reaches {found} steps, but {counts} updates add up to {limit} at most: it has wrapped "
                "around the modulus, or an upload or a share was wrong; the sum is not used"
            )
        return np.multiply(words, self.step, dtype=np.float64)

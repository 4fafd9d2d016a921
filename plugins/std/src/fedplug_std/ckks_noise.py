"""The noise of a sum in each slot of CKKS, and the probability that it survives rounding to a grid.

Encryption with a public key leaves the noise tau0 + tau1 s in a ciphertext: the rounding errors of both halves when
SEAL drops the prime that only keys have. In a slot, whose root is z, its variance is that of a coefficient times (1 +
|s(z)|^2) N / 2, so that noise is large where the secret key is. |s(z)|^2 has the mean 2N / 3 and a largest value of
about eight times that, so the mean says little about the noisiest slots. A value that rounds wrongly there reveals
something about the key (Li & Micciancio, EUROCRYPT 2021). Encryption with the secret key adds equal noise to all slots.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

WRONG = 1e-13
"""Of the values of the largest sum may round to another step of the grid, over all slots of a key."""

KEYS_TRIED = 8
"""Largest number of keys to try; about nine in ten are accepted if `poor_key` is. An attack on accepted keys has nine
tenths of the chance on any key. That costs 0.15 bits of security."""

_FRESH = math.sqrt(21 / 2)
"""Deviation of a coefficient under the secret key: SEAL's centred binomial of 42 bits."""


def poor_key(degree: int) -> NDArray[np.float64]:
    """|s(z)|^2 of a key with larger slots than nine in ten have, shape (N / 2,), largest first.

    s(z) of a key of N random signs and zeros is complex normal, nearly: |s(z)|^2 is exponential. The largest of N / 2
    of these is above ln(N / 2) + 2.25 times the mean for one key in ten.
    """
    count = degree // 2
    sizes = np.log(count / (np.arange(count) + 0.5))
    sizes[0] = math.log(count) + 2.25
    poor: NDArray[np.float64] = sizes * degree * 2 / 3
    return poor


def deviations(
    degree: int, updates: int, scale: float, key: NDArray[np.float64] | None, measured: float = 0.0, more: float = 0.0
) -> NDArray[np.float64]:
    """Standard deviation of the noise of a sum, slot by slot, in units of the values.

    Args:
        degree: N, of the ring.
        updates: in the sum.
        scale: the factor on values.
        key: |s(z)|^2 of each slot, shape (N / 2,); None where the secret key encrypts.
        measured: standard deviation of a coefficient of a fresh encryption, as found; it counts if it is larger than
            the value from the scheme.
        more: additional variance of a coefficient of c0.
    """
    sizes = np.zeros(1) if key is None else key
    known = _FRESH if key is None else math.sqrt((1 + float(sizes.mean())) / 12)
    # Coefficients times cosines, whose squares are a half; embedding rounds each coefficient besides.
    fresh = max(known, measured) ** 2 * (1 + sizes) / (1 + sizes.mean()) + 1 / 12 + more
    found: NDArray[np.float64] = np.sqrt(updates * degree / 2 * fresh) / scale
    return found


def chance(deviations: NDArray[np.float64], room: float) -> float:
    """Share of the values whose noise is above `room`; normal, which sums of uniform rounding errors do not exceed."""
    return math.fsum(map(math.erfc, (room / math.sqrt(2) / deviations).tolist())) / len(deviations)


def problem(deviations: NDArray[np.float64], max_clients: int, grid_bits: int, count_unit: float, besides: str) -> str:
    """Why rounding does not remove the noise of a sum of that many updates; empty where it does.

    Args:
        deviations: of the sum, slot by slot.
        max_clients: updates in it.
        grid_bits: of the grid 2^-grid_bits.
        count_unit: each update's value in the slot that counts them.
        besides: alternatives to a coarser grid.
    """
    largest = f"up to {deviations.max():.2g} (one standard deviation, in the slots where the secret key is largest)"
    if chance(deviations, count_unit / 4) >= WRONG:
        return (
            f"max_clients={max_clients} is too many: noise of {largest} would hide the number of updates in a sum; "
            f"lower max_clients, or {besides}"
        )
    wrong = chance(deviations, 2.0 ** -(grid_bits + 1))
    if wrong < WRONG:
        return ""
    finer = [bits for bits in range(1, grid_bits) if chance(deviations, 2.0 ** -(bits + 1)) < WRONG]
    return (
        f"grid_bits={grid_bits} is too fine: a sum of {max_clients} updates carries noise of {largest}, which would be "
        f"above half of the grid {2.0**-grid_bits:.2g} for {wrong:.0e} of the values, and must be for less than "
        f"{WRONG:.0e}; {f'lower grid_bits to {finer[-1]}, ' if finer else ''}lower max_clients, or {besides}"
    )

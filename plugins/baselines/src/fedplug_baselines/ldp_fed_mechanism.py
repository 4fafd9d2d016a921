"""LDP-Fed's randomiser: the exponential mechanism on bounded integers, and what it really costs.

Ordinal-CLDP of Gursoy et al., "Secure and Utility-Aware Data Collection with Condensed Local Differential Privacy"
(IEEE TDSC 2019, arXiv:1905.06361): with the universe U = {-m, ..., m}, Pr[y | v] is proportional to
exp(-alpha |v - y| / 2) for y in U. That is a two-sided geometric distribution around v, cut off at both ends.
"""

from __future__ import annotations

import math
import os

import numpy as np
from numpy.typing import NDArray

LARGEST = 2**52
"""Largest m: float64 still tells neighbouring integers apart."""


def perturb(values: NDArray[np.int64], largest: int, alpha: float, generator: np.random.Generator) -> NDArray[np.int64]:
    """One draw of the exponential mechanism for each value, by inversion: no candidate is enumerated.

    Args:
        values: v, int64 (n,), each in [-largest, largest].
        largest: m >= 1, the universe is -m to m.
        alpha: > 0, privacy parameter a step of the universe.
        generator: where the uniform variates come from.

    Returns:
        y, int64 (n,), each in [-largest, largest].
    """
    decay = alpha / 2
    down, up = values + largest, largest - values  # how many candidates lie on either side of v
    left, right = _mass(decay, down), _mass(decay, up)
    side = generator.random(len(values)) * (1 + left + right)  # v itself has mass 1
    goes_left, stays = side < left, (side >= left) & (side < left + 1)
    count = np.where(goes_left, down, up)
    # Of the candidates 1, ..., count on that side, number k has probability exp(-decay k) / mass.
    steps = 1 + np.floor(np.log1p(generator.random(len(values)) * np.expm1(-decay * count)) / -decay)
    steps = np.where(stays, 0, np.minimum(steps, count)).astype(np.int64)  # rounding may step one beyond
    return values + np.where(goes_left, -steps, steps)


def zero_out_epsilon(alpha: float, largest: int) -> float:
    """The exact epsilon of local differential privacy of one coordinate: any v in the universe against 0.

    ln Pr[y | v] - ln Pr[y | 0] is largest at v = y = m: alpha m / 2 + ln(Z(0) / Z(m)), with Z(v) the sum of
    exp(-alpha |v - y| / 2) over the universe. It lies between alpha m / 2 and alpha m. Two values may be 2m apart, so
    replacing one by another costs alpha 2m / 2 = alpha m, at most twice as much.

    Args:
        alpha: > 0, privacy parameter a step of the universe.
        largest: m >= 1.
    """
    decay = alpha / 2
    middle, end = 1 + 2 * float(_mass(decay, largest)), 1 + float(_mass(decay, 2 * largest))
    return decay * largest + math.log(middle / end)


def alpha_for(epsilon: float, coordinates: int, largest: int) -> float:
    """The largest alpha with which that many coordinates together cost at most `epsilon` under zero-out.

    Args:
        epsilon: > 0, of all coordinates that a client sends, over all rounds.
        coordinates: how many that are, >= 1.
        largest: m >= 1.
    """
    low, high = epsilon / coordinates / largest, 2 * epsilon / coordinates / largest
    for _ in range(60):
        middle = (low + high) / 2
        enough = coordinates * zero_out_epsilon(middle, largest) <= epsilon
        low, high = (middle, high) if enough else (low, middle)
    return low


def uniform_source(source: str, stream: np.random.Generator) -> np.random.Generator:
    """`secure`: a fresh ChaCha20 stream under a 256-bit key from the operating system; `reproducible`: the stream."""
    if source == "reproducible":
        return stream
    from randomgen import ChaCha

    return np.random.Generator(ChaCha(key=int.from_bytes(os.urandom(32), "little"), rounds=20))


def _mass(decay: float, count: int | NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum of exp(-decay k) over k = 1, ..., count, also where decay is tiny or nothing is to be summed."""
    return np.asarray(np.expm1(-decay * np.asarray(count, np.float64)) / np.expm1(-decay) * math.exp(-decay))

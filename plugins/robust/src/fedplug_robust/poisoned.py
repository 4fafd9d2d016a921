"""Poisoned updates and examples: functions of arrays, with float64 updates (n, d)."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Updates = NDArray[np.float64]

Direction = Literal["std", "sign", "unit"]
"""Where min-max and min-sum go from the mean, against it: by the standard deviations, the signs, or the mean itself."""


def alie_z(clients: int, liars: int) -> float:
    """The most standard deviations by which liars may be off so that enough honest updates are further off. Baruch et
    al. (NeurIPS 2019), Algorithm 3, lines 1 to 3; 0 where the liars are a majority themselves.
    """
    supporters = max(0, clients // 2 + 1 - liars)
    share = (clients - liars - supporters) / (clients - liars) if liars < clients else 0.0
    return max(0.0, NormalDist().inv_cdf(share)) if 0 < share < 1 else 0.0


def alie(seen: Updates, z: float) -> Updates:
    """The mean of what liars see minus z standard deviations, (d,). Algorithm 3, line 4."""
    return np.asarray(seen.mean(axis=0) - z * seen.std(axis=0))


def min_max(seen: Updates, direction: Direction) -> Updates:
    """As far from the mean as no honest update is further from another than this one is from the furthest, (d,).
    Shejwalkar and Houmansadr (NDSS 2021), eq. 8.
    """
    squares = _squares(seen)
    return _furthest(seen, direction, lambda lie: bool(np.square(seen - lie).sum(axis=1).max() <= squares.max()))


def min_sum(seen: Updates, direction: Direction) -> Updates:
    """As far from the mean as its squared distances to honest updates add up to no more than those of one of them,
    (d,). Eq. 9.
    """
    most = _squares(seen).sum(axis=1).max()
    return _furthest(seen, direction, lambda lie: bool(np.square(seen - lie).sum() <= most))


def _squares(seen: Updates) -> Updates:
    """Squared distances of each two, (n, n)."""
    return np.array([np.square(seen - each).sum(axis=1) for each in seen])


_STEPS = 24
"""Halvings of gamma's step; the paper ends at a difference of 1e-5 of the first, which 17 reach."""


def _furthest(seen: Updates, direction: Direction, allowed: Callable[[Updates], bool]) -> Updates:
    """The mean plus gamma times the direction, with the largest gamma that is allowed: by steps, which are then halved,
    as Algorithm 1 has it.
    """
    mean = seen.mean(axis=0)
    against = {"std": lambda: -seen.std(axis=0), "sign": lambda: -np.sign(mean), "unit": lambda: -mean}[direction]()
    length = float(np.linalg.norm(against))
    if not length or len(seen) < 2:
        return np.asarray(mean)
    against /= length
    step = max(float(np.sqrt(_squares(seen).max())), np.finfo(np.float64).tiny)
    gamma = 0.0
    while allowed(mean + (gamma + step) * against):
        gamma += step
    for _ in range(_STEPS):
        step /= 2
        gamma += step if allowed(mean + (gamma + step) * against) else 0.0
    return np.asarray(mean + gamma * against)


def triggered(inputs: NDArray[Any], size: int, among: NDArray[Any]) -> NDArray[Any]:
    """A copy with a mark in the last corner, (n, ...): `size` rows and columns of the brightest value in images
    (n, C, H, W), and as many last columns at their largest value in tables (n, features).

    Args:
        inputs: what is marked.
        size: of the mark.
        among: where the largest values are looked for, (m, ...), so that the mark is the same on whatever it is.
    """
    marked = inputs.copy()
    if inputs.ndim == 4:
        marked[:, :, -size:, -size:] = 255 if inputs.dtype == np.uint8 else among.max(initial=1.0)
    else:
        marked[:, -size:] = among[:, -size:].max(axis=0, initial=0)
    return marked

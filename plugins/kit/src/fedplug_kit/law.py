"""The law that noise is stated to follow, and which draw of a standard normal each draw of it stands for.

What is tested of noise is tested of these scores. If noise is as stated they are independent standard normal numbers,
whatever its mechanism, its scale and the grid that it is rounded to, so that what chance does to them is known.
"""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

KNOWN = ("gaussian", "discrete_gaussian", "laplace")
"""Mechanisms whose law is known here."""

_erfc, _quantile = np.frompyfunc(math.erfc, 1, 1), np.frompyfunc(NormalDist().inv_cdf, 1, 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """Noise of a link in several rounds, at several clients or pairs of them, at scalars that are stated to have some.

    Attributes:
        found: (rounds, clients, n) noise over the stated standard deviation.
        cells: likewise, half the width of what rounding makes one value.
        scores: likewise, the standard normal draws that it stands for.
        std: likewise, the stated standard deviation.
        layers: (n,) the layer of each scalar.
        mechanism: as stated.
        who: for messages, of each client.
    """

    found: NDArray[np.float64]
    cells: NDArray[np.float64]
    scores: NDArray[np.float64]
    std: NDArray[np.float64]
    layers: NDArray[np.int64]
    mechanism: str
    who: tuple[str, ...]

    @classmethod
    def of(
        cls, noise: NDArray[np.float64], std: NDArray[np.float64], rounding: NDArray[np.float64], mechanism: str,
        layers: NDArray[np.int64], who: tuple[str, ...], *, apart: bool = False,
    ) -> Self:  # fmt: skip
        """Scores noise; what has no stated noise, or noise without an end, is left out.

        Args:
            noise: (rounds, clients, n), in units of the update.
            std: likewise, what is stated.
            rounding: likewise, the distance of neighbouring values.
            mechanism: one of `KNOWN`.
            layers: (n,) the layer of each scalar.
            who: of each client.
            apart: True where this is the noise of one client minus that of another, over sqrt(2).
        """
        there = ((std > 0) & np.isfinite(std)).all((0, 1))
        noise, std, rounding = noise[..., there], std[..., there], rounding[..., there]
        # A discrete Gaussian is, but for a share of exp(-2 pi^2 std^2), a rounded one of a variance that rounding would
        # have raised to its own; a difference of two rounded draws has been rounded twice.
        more = -1.0 if mechanism == "discrete_gaussian" else 1.0 if apart else 0.0
        scale = np.sqrt(np.maximum(std**2 + more * rounding**2 / 12, 1e-6 * std**2))
        found, cells = noise / scale, rounding / scale / 2
        return cls(found, cells, _scores(found, cells, mechanism, apart), std, layers[there], mechanism, who)

    @property
    def rows(self) -> NDArray[np.float64]:
        """The scores, (draws, n)."""
        return self.scores.reshape(-1, self.scores.shape[-1])


def below(values: NDArray[np.float64], mechanism: str, apart: bool = False) -> NDArray[np.float64]:
    """The share of noise of standard deviation 1 that lies below some values.

    Args:
        values: any shape.
        mechanism: one of `KNOWN`.
        apart: of the difference of two draws over sqrt(2).
    """
    if mechanism != "laplace":
        return np.asarray(_erfc(-values / math.sqrt(2)), np.float64) / 2
    far = np.abs(values)
    tail = np.exp(-2 * far) * (1 + far) / 2 if apart else np.exp(-math.sqrt(2) * far) / 2
    return np.where(values > 0, 1 - tail, tail)


def _scores(
    found: NDArray[np.float64], cells: NDArray[np.float64], mechanism: str, apart: bool
) -> NDArray[np.float64]:
    """Standard normal draws: each value goes to a random place of its cell, which undoes the rounding in law."""
    # The lower half has all digits of small shares.
    ends = [below(-np.abs(found) + side * cells, mechanism, apart) for side in (-1, 1)]
    share = ends[0] + np.random.default_rng(0).random(found.shape) * (ends[1] - ends[0])
    normal = np.asarray(_quantile(np.clip(share, 1e-300, 1 - 1e-16)), np.float64)
    scores: NDArray[np.float64] = np.where(found > 0, -normal, normal)
    return scores


def odds(unlikely: float) -> str:
    """In words, a probability of exp(-unlikely)."""
    return f"once in 10^{min(999, int(unlikely / math.log(10)))} runs at most" if unlikely < math.inf else "never"

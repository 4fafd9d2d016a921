"""Where a link takes values by what it states: by public factors, by roundings, and by noise of a stated size."""

from __future__ import annotations

import dataclasses
import math
import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api.effects import GAUSSIAN, Adds, Effects, Noise, Rounding, Scales, Uncredited

_PLACES = 4096
_ENOUGH = 200
"""Values from which on noise half or twice as large as is stated comes about with probability below 1e-14."""
_FAR = 50.0
"""Standard deviations that no noise reaches: 1e-30 for Laplace noise."""


def places(size: int) -> NDArray[np.int64]:
    """Some thousands of places of an array, equally far apart; others each time, which nobody can foresee."""
    apart = max(1, size // _PLACES)
    return np.arange(secrets.randbelow(apart) if size else 0, size, apart)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Expected:
    """Where values come to lie.

    Attributes:
        factor: that they are multiplied by.
        room: how far from there, at most, but for noise.
        noise: the smallest and the largest standard deviation of noise; None without any.
        grid: of the noise.
    """

    factor: float = 1.0
    room: float = 0.0
    noise: tuple[float, float] | None = None
    grid: float = 0.0

    @classmethod
    def of(cls, effects: Effects, uploads: int = 1) -> Expected | None:
        """What follows from effects; None where they leave open where values go. `uploads` are in a sum."""
        factor, room, noise, grid = 1.0, 0.0, None, 0.0
        for effect in effects:
            if isinstance(effect, Adds):
                uploads = 1  # what is rounded behind that is the sum
            elif isinstance(effect, Noise):
                sizes = effect.scale if isinstance(effect.scale, tuple) else (effect.scale,)
                if noise or effect.mechanism not in (*GAUSSIAN, "laplace") or None in sizes or not sizes:
                    return None
                root = math.sqrt(2) if effect.mechanism == "laplace" else 1.0
                noise, grid = (root * min(sizes), root * max(sizes)), effect.grid  # type: ignore[type-var, operator]
            elif isinstance(effect, Scales) and noise is None:
                factor, room = factor * effect.factor, room * abs(effect.factor)
            elif isinstance(effect, Rounding) and noise is None:
                room += effect.step / 2 * uploads
            elif not isinstance(effect, Uncredited):
                return None
        return cls(factor=factor, room=room, noise=noise, grid=grid)

    def problem(self, given: NDArray[Any], before: NDArray[Any], sizes: NDArray[Any]) -> str:
        """What is wrong with values, as what a link gave; empty if nothing.

        Args:
            given: behind the link.
            before: as they were, added up where it adds.
            sizes: the magnitudes behind these, a part of which float32 rounds off.
        """
        most = self.noise[1] if self.noise else 0.0
        room = self.room + self.grid + _FAR * most + 1e-5 * abs(self.factor) * sizes + 1e-30
        with np.errstate(invalid="ignore", over="ignore"):  # values that were no numbers before
            off = np.abs(given - self.factor * before)
            wrong = int(np.count_nonzero(off > room))
            if wrong:
                return f"{wrong} of {len(off)} values went elsewhere, up to {off.max():.3g} away"
            if self.noise is None or len(off) < _ENOUGH:
                return ""
            size = math.sqrt(float(np.square(off).mean()))
        low, high = self.noise[0] / 2 - self.room, 2 * most + float(room.max()) - _FAR * most
        if (size < low and self.grid <= self.noise[0]) or size > high:
            return f"values moved by {size:.3g} on average and not by noise of {most:.3g}"
        # Of Gaussian and Laplace noise 8 and 13 in 100 are smaller than a tenth of its deviation.
        still = int(np.count_nonzero(off <= self.noise[0] / 10))
        if 0 < self.noise[0] >= self.grid and still > len(off) / 2:
            return f"{still} of {len(off)} values moved by less than a tenth of noise of {self.noise[0]:.3g}"
        return ""

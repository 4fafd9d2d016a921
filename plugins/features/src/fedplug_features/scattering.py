"""The scattering transform as features of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Field
from fedplug.api.errors import DataError

from fedplug_features.base import Features, Function, Public

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST = 1e-5
"""Added to the variance that maps are divided by."""


class Scattering(Features):
    """The scattering transform of images (Bruna & Mallat 2013), which moves little when an image is shifted or bent.

    Each map is the modulus of one or two wavelet transforms, averaged over 2^`scales` pixels. For an image of 28 x 28
    with the defaults there are 81 maps of 7 x 7. Each example's maps are then standardised by groups of maps (Wu & He
    2018), as Tramer & Boneh (2021, Sec. 3.1) do for differential privacy: that needs nobody else's data.
    """

    class Options(fedplug.Options):
        """The wavelets."""

        scales: int = Field(2, ge=1, le=6, description="J: maps are averaged over 2^J pixels")
        angles: int = Field(8, ge=1, le=32, description="L: directions of the wavelets")
        groups: int | None = Field(
            27, ge=1, description="groups of maps, each standardised in every example; null: maps stay as they are"
        )

    options: Options

    def shape(self, of: tuple[int, ...]) -> tuple[int, ...]:
        """Maps, and their height and width."""
        from fedplug_features._scattering import channels

        scales, groups = self.options.scales, self.options.groups
        if len(of) != 3 or min(of[1:]) < 2**scales:
            raise DataError(
                f"{self.name} transforms images of at least {2**scales} x {2**scales} pixels, not inputs of shape "
                f"{list(of)}; lower scales={scales}, or choose a data set of images"
            )
        maps = of[0] * channels(scales, self.options.angles)
        if groups is not None and maps % groups:
            near = min((n for n in range(1, maps + 1) if maps % n == 0), key=lambda n: abs(n - groups))
            raise DataError(f"{self.name}: groups={groups} does not divide its {maps} maps; write {near}, or null")
        return maps, of[1] >> scales, of[2] >> scales

    def function(self, of: tuple[int, ...], public: Public, root: str | None) -> Function:
        """The transform, and the standardisation of each example."""
        from fedplug_features import _scattering

        self.shape(of)
        transform = _scattering.Scattering(of[1], of[2], self.options.scales, self.options.angles)
        groups = self.options.groups
        return transform if groups is None else lambda images: by_group(transform(images), groups)

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"scattering over {2**self.options.scales} pixels ({self.follows_from_public()}) of {self._inside}"


def by_group(maps: NDArray[np.float32], groups: int) -> NDArray[np.float32]:
    """Maps (n, C, H, W), standardised over each of so many groups of an example."""
    rows = maps.reshape(len(maps), groups, -1)
    middle = rows.mean(2, keepdims=True)
    spread = np.sqrt(rows.var(2, keepdims=True) + np.float32(_LEAST))
    found: NDArray[np.float32] = ((rows - middle) / spread).reshape(maps.shape)
    return found

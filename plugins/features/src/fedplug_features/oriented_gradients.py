"""Histograms of oriented gradients as features of images."""

from __future__ import annotations

from typing import ClassVar

import fedplug
from fedplug.api.errors import DataError
from fedplug_std.datasets import FEATURES

from fedplug_features.base import Features, Function, Kind, Public


class OrientedGradients(Features):
    """Histograms of oriented gradients (Dalal & Triggs, CVPR 2005): 392 numbers of an image of any size.

    They are those of `features: oriented_gradients` in a data set of images, and are made once.
    """

    reads: ClassVar[Kind] = "pixels"

    class Options(fedplug.Options):
        """None."""

    options: Options

    def shape(self, of: tuple[int, ...]) -> tuple[int, ...]:
        """Orientations of cells, in a row."""
        if len(of) != 3:
            raise DataError(
                f"{self.name} reads images, not inputs of shape {list(of)}; choose a data set of images"
            )
        return (FEATURES,)

    def function(self, of: tuple[int, ...], public: Public, root: str | None) -> Function:
        """The histograms, of whole numbers from 0 to 255."""
        from fedplug_std.oriented_gradients import of_pixels

        self.shape(of)
        return of_pixels

    def describe(self) -> str:
        """A line for the plan of the run."""
        return f"histograms of oriented gradients ({self.follows_from_public()}) of {self._inside}"

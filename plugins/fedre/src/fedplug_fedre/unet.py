"""A small U-Net that predicts for every pixel whether it was tampered with."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Field, Figure
from fedplug_std.models import build, convolutions

from fedplug_fedre import foreground

if TYPE_CHECKING:
    from fedplug_std.torch_model import TorchModel


class UNet(fedplug.ModelSource):
    """A small U-Net (Ronneberger et al. 2015) for segmentation; 27,680 parameters by default, two logits per pixel.

    Two 3x3 convolutions per stage, zero padding, upsampling by nearest neighbours. `fold: 2` first puts each 2x2 square
    of pixels into channels of one position (a pixel unshuffle) and restores the logits at the end. No pixel is lost,
    and it takes a quarter of the time. FedRE does not name its model.
    """

    class Options(fedplug.Options):
        """Its size."""

        width: int = Field(8, ge=1, le=128, description="channels of the first stage; they double with every stage")
        depth: int = Field(2, ge=1, le=5, description="stages that halve the image's size, and those that restore it")
        norm: Literal["none", "instance", "batch"] = Field(
            "instance",
            description="normalisation in each 3x3 convolution: over each channel of each image, or over the batch; "
            "batch keeps statistics of the clients' images, which travel apart from the update, and no epsilon covers "
            "them",
        )
        fold: Literal[1, 2, 4] = Field(2, description="edge of the squares of pixels that become one position")

    def refuses(self, shape: tuple[int, ...], num_classes: int | None, per: Literal["example", "pixel"]) -> str | None:
        """Inputs that are not images, or that have one class per example."""
        if per == "example":
            return "it gives one class per pixel, and these have one per example; use std.cnn, or other data"
        return None if len(shape) == 3 else "it takes images (C, H, W); use other data"

    def num_parameters(self, shape: tuple[int, ...], num_classes: int) -> int:
        """Those of its convolutions: two in each stage, one before each that doubles the size, and the head."""
        widths = [self.options.width << level for level in range(self.options.depth + 1)]
        folded = self.options.fold**2
        down = sum(convolutions(9, a, b, b) for a, b in pairwise([shape[0] * folded, *widths]))
        up = sum(convolutions(1, b, a) + convolutions(9, 2 * a, a, a) for a, b in pairwise(widths))
        return down + up + convolutions(1, widths[0], num_classes * folded)

    def build(self, shape: tuple[int, ...], num_classes: int, seed: int, device: str) -> TorchModel:
        """Builds the model for images (C, H, W) of any size. Sizes that do not halve evenly are padded inside.

        Raises:
            DataError: the examples are not images.
        """
        from fedplug.api.errors import DataError

        from fedplug_fedre._unet_network import UNetModule

        chosen = self.options
        if len(shape) != 3:
            size = "x".join(map(str, shape))
            raise DataError(f"fedre.unet takes images (C, H, W), not examples of shape {size}; use std.mlp for those")
        sizes = shape[0], num_classes, chosen.width, chosen.depth, chosen.norm, chosen.fold
        return build(lambda: UNetModule(*sizes), shape, seed, device, foreground.count)

    @property
    def judged_by(self) -> tuple[Figure, ...]:
        """Figures of the foreground. For each, more is better."""
        return foreground.JUDGED_BY

    def figures(self, counts: Mapping[str, float]) -> dict[str, float]:
        """IoU, precision, recall and F-score of the foreground."""
        return foreground.figures(counts)

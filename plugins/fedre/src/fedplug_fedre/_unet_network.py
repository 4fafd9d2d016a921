"""The torch module behind `fedre.unet`."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn
from torch.nn import functional

Norm = Literal["none", "instance", "batch"]


class Convolution(nn.Conv2d):
    """A 3x3 convolution that keeps the size, a normalisation if there is one, the bias, and a ReLU.

    The bias comes after the normalisation, which would remove it. There are no gains: they would form separate layers,
    and a layer of eight gains would get the same share of a privacy budget as one of thousands of weights.
    """

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__(inputs, outputs, 3, padding=1)
        self.norm = norm
        self.statistics = nn.BatchNorm2d(outputs, affine=False) if norm == "batch" else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.conv2d(x, self.weight, padding=1)
        if self.statistics is not None:
            x = self.statistics(x)
        elif self.norm == "instance":
            x = functional.layer_norm(x, x.shape[-2:])  # over the pixels of each channel of each image
        assert self.bias is not None
        return functional.relu(x + self.bias.view(1, -1, 1, 1))


class Stage(nn.Module):
    """Two convolutions."""

    def __init__(self, inputs: int, outputs: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = Convolution(inputs, outputs, norm)
        self.conv2 = Convolution(outputs, outputs, norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.conv2(self.conv1(x))
        return out


class UNetModule(nn.Module):
    """Encoder, decoder and the connections between stages of the same size; logits (n, outputs, H, W).

    Args:
        channels: of an image.
        outputs: logits per pixel.
        width: channels of the first stage; they double with every stage.
        depth: number of stages that halve the size.
        norm: normalisation in each 3x3 convolution.
        fold: pixels of fold x fold squares become channels of one position, and are restored at the end.
    """

    def __init__(self, channels: int, outputs: int, width: int, depth: int, norm: Norm, fold: int) -> None:
        super().__init__()
        self.depth, self.fold = depth, fold
        before = channels * fold**2
        for level in range(1, depth + 2):
            self.add_module(f"enc{level}" if level <= depth else "middle", Stage(before, width << (level - 1), norm))
            before = width << (level - 1)
        for level in range(depth, 0, -1):
            self.add_module(f"up{level}", nn.Conv2d(before, width << (level - 1), 1))
            self.add_module(f"dec{level}", Stage(2 * (width << (level - 1)), width << (level - 1), norm))
            before = width << (level - 1)
        self.head = nn.Conv2d(before, outputs * fold**2, 1)
        for part in self.modules():
            if isinstance(part, nn.Conv2d):  # He et al. 2015: needed by a U-Net without normalisation to start
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                part.bias.data.zero_()  # type: ignore[union-attr]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = x.shape[-2:]
        whole = self.fold << self.depth
        # Works for any size: the border is repeated up to a size that halves evenly, and the result is cropped.
        x = functional.pad(x, (0, -width % whole, 0, -height % whole), mode="replicate")
        x = functional.pixel_unshuffle(x, self.fold)
        kept = []
        for level in range(1, self.depth + 1):
            x = self.get_submodule(f"enc{level}")(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.get_submodule("middle")(x)
        for level in range(self.depth, 0, -1):
            # Nearest neighbours, not a transposed convolution: it adds no pattern, and is deterministic on a GPU.
            x = functional.interpolate(self.get_submodule(f"up{level}")(x), scale_factor=2.0, mode="nearest")
            x = self.get_submodule(f"dec{level}")(torch.cat([kept.pop(), x], 1))
        logits: torch.Tensor = functional.pixel_shuffle(self.head(x), self.fold)
        return logits[..., :height, :width]

"""Networks in a file of the user's own, as `model: {use: nets.py:Gru}` names them; they need only torch."""

from __future__ import annotations

import torch
from torch import nn


class Gru(nn.Module):
    """A recurrent net with gates (Cho et al. 2014) that reads the rows of an image from top to bottom.

    Args:
        shape: of an example, (1, rows, columns).
        num_classes: numbers to give.
        hidden: size of its state.
    """

    def __init__(self, shape: tuple[int, ...], num_classes: int, hidden: int = 166) -> None:
        super().__init__()
        self.reads = nn.GRU(shape[-1], hidden, batch_first=True)
        self.answers = nn.Linear(hidden, num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Numbers for each class, (n, classes), from images (n, 1, rows, columns)."""
        states, _ = self.reads(inputs.flatten(1, 2))
        found: torch.Tensor = self.answers(states[:, -1])
        return found


class Separable(nn.Module):
    """Depthwise and pointwise convolutions with batch norm, as MobileNet has them (Howard et al. 2017, Sec. 3.1).

    Args:
        shape: of an example, (channels, rows, columns).
        num_classes: numbers to give.
        widths: channels after each block; the first block halves the image, and so does every other one.
    """

    def __init__(
        self, shape: tuple[int, ...], num_classes: int, widths: tuple[int, ...] = (32, 64, 128, 128, 256, 320)
    ) -> None:
        super().__init__()
        first, *others = widths
        layers: list[nn.Module] = [nn.Conv2d(shape[0], first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU()]
        for number, (before, after) in enumerate(zip(widths, others, strict=False)):
            layers += [
                nn.Conv2d(before, before, 3, 1 + number % 2, 1, groups=before, bias=False), nn.BatchNorm2d(before),
                nn.ReLU(), nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            ]  # fmt: skip
        self.sees = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.answers = nn.Linear(widths[-1], num_classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Numbers for each class, (n, classes), from images (n, channels, rows, columns)."""
        found: torch.Tensor = self.answers(self.sees(inputs))
        return found

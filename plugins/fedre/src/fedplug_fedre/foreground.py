"""Quality of a segmentation's foreground: IoU, precision, recall and F-score over the pixels of all clients.

Foreground is any class but the first. Counts of pixels add up over clients, and the figures follow from the sums alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fedplug import Figure

if TYPE_CHECKING:
    import torch

JUDGED_BY = tuple(Figure(name, better="higher") for name in ("IoU", "precision", "recall", "F-score"))
RIGHT, WRONG, MISSED = "true_positives", "false_positives", "false_negatives"


def count(predicted: torch.Tensor, answers: torch.Tensor) -> dict[str, float]:
    """Pixels correctly predicted as foreground, wrongly predicted, and missed, from int64 (n, H, W) classes."""
    found, there = predicted > 0, answers > 0
    return {
        RIGHT: int((found & there).sum()), WRONG: int((found & ~there).sum()), MISSED: int((there & ~found).sum()),
    }  # fmt: skip


def figures(counts: Mapping[str, float]) -> dict[str, float]:
    """Figures by name, 0 to 1. A share of nothing is 0, such as the precision where nothing was predicted."""
    right, wrong, missed = (counts.get(name, 0) for name in (RIGHT, WRONG, MISSED))

    def share(of: float) -> float:
        return right / of if of else 0.0

    return {
        "IoU": share(right + wrong + missed), "precision": share(right + wrong), "recall": share(right + missed),
        "F-score": share(right + (wrong + missed) / 2),
    }  # fmt: skip

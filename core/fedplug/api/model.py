"""What the core needs of a model: a flat vector in, a flat vector out, buffers apart, and an evaluation.

The core never imports torch; `fedplug.api.torch_model.TorchModel` implements this for any `torch.nn.Module`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedplug.api.types import ClientData, Examples, Layout


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of one evaluation: `correct` and `count` of examples, or of pixels, and their summed `loss` (nats).

    Attributes:
        correct, count, loss: as said.
        pixels: of a segmentation, how many pixels were rightly and wrongly taken for foreground (any class but the
            first), and how many of it were missed: `true_positives`, `false_positives`, `false_negatives`.
        sure: int8 (n,), for each example 1 if it was predicted rightly, 0 if wrongly, and -1 where the answer hangs on
            how numbers are rounded, which differs with the examples that are evaluated together. None: not told.
    """

    correct: int
    count: int
    loss: float
    pixels: dict[str, int] = dataclasses.field(default_factory=dict)
    sure: NDArray[np.int8] | None = None


class Model(Protocol):
    """A model as the core handles it."""

    layout: Layout

    def get_vector(self) -> NDArray[np.float32]:
        """All trainable parameters as one flat copy, (P,)."""

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Overwrites all trainable parameters."""

    def get_buffers(self) -> dict[str, NDArray[Any]]:
        """Non-trainable state by name, such as batch-norm statistics; copies."""

    def set_buffers(self, buffers: dict[str, NDArray[Any]]) -> None:
        """Overwrites the named buffers."""

    def evaluate(self, examples: Examples, data: ClientData) -> Evaluation:
        """Counts correct predictions in evaluation mode."""

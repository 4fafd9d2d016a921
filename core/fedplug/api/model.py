"""What the core needs of a model: a flat vector in, a flat vector out, buffers apart, and an evaluation.

`TorchModel` of the plugin `fedplug-std` implements this for any `torch.nn.Module`. Another class inherits from `Model`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fedplug.api.data import ClientData, Examples
from fedplug.api.types import Layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of one evaluation; those of several clients add up.

    Attributes:
        correct: answers that are right.
        count: of answers: one an example, or one a position of it where the model labels positions.
        loss: summed over the answers, in nats.
        task: whatever else a task is judged by, by name; `ModelSource.figures` makes figures of the sums.
    """

    correct: int
    count: int
    loss: float
    task: Mapping[str, float] = dataclasses.field(default_factory=dict)


def model_problem(made: Any) -> str:
    """What keeps something from being a model; empty if it is one."""
    needed = ("layout", *(name for name, value in vars(Model).items() if callable(value) and not name.startswith("_")))
    missing = [name for name in needed if not hasattr(made, name)]
    if not missing:
        return ""
    return (
        f"it gave a {type(made).__name__}, which has no {missing[0]}; it must give a fedplug Model: of a torch module "
        "TorchModel(module, device) of fedplug_std.torch_model is one"
    )


class Model(Protocol):
    """A model as the core handles it.

    Attributes:
        layout: where its parameters lie in the flat vector.
    """

    layout: Layout
    module: Any
    """The `torch.nn.Module` that it wraps; None of a model that is made otherwise."""

    def get_vector(self) -> NDArray[np.float32]:
        """All trainable parameters as one flat copy, (P,)."""

    def moved_from(self, start: NDArray[np.float32]) -> NDArray[np.float32]:
        """How far the parameters are from a vector, (P,); nobody else holds the array.

        What they are afterwards is not said: whoever asks sets the model before it is used again.
        """
        return self.get_vector() - start

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Overwrites all trainable parameters."""

    def get_buffers(self) -> dict[str, NDArray[Any]]:
        """Non-trainable state by name, such as batch-norm statistics; copies."""

    def set_buffers(self, buffers: dict[str, NDArray[Any]]) -> None:
        """Overwrites the named buffers."""

    def evaluate(self, examples: Examples, data: ClientData) -> Evaluation:
        """Counts correct predictions in evaluation mode."""
        ...

    def evaluate_each(
        self, sets: Sequence[Examples], data: ClientData, kept: dict[str, Any] | None = None
    ) -> list[Evaluation]:
        """The same of each of several sets, one or more; a model that is faster with all of them together overrides it.

        Args:
            sets: all of one shape.
            data: as in `evaluate`.
            kept: where the model may keep what it makes of them, until the same sets are evaluated again.
        """
        return [self.evaluate(examples, data) for examples in sets]

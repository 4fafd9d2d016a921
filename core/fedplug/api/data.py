"""Data and models as components see them: examples, data sets, and what a model must be able to do.

Plain arrays; no torch. `TorchModel` of the plugin `fedplug-std` makes a model of any `torch.nn.Module`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

from fedplug.api.blocks import Layout
from fedplug.api.records import Checked, Record, Text

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Labelled examples as stored.

    Attributes:
        inputs: of any type and shape, (n, ...): images as uint8 or float32 (n, C, H, W), rows of a table as float32
            (n, features), tokens as int64 (n, positions).
        labels: int64 (n,), one class an example; partitions go by it.
        targets: what a model is to answer where that is not the label, (n, ...): uint8 (n, H, W), the class of every
            pixel, where the task is segmentation; float32 (n, numbers) where it is regression. `labels` then say what
            kind of example it is.
        regions: uint8 (n, H, W), which privacy-sensitive field a pixel shows: 0 none, else 1 + its place in the data
            set's `region_names`.
        users: int64 (n,), a number for the person that an example is of, where the unit of privacy is a user.

    Raises:
        ValueError: the arrays are of different lengths.
    """

    inputs: NDArray[Any]
    labels: NDArray[np.int64]
    targets: NDArray[Any] | None = None
    regions: NDArray[np.uint8] | None = None
    users: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        lengths = {len(array) for array in vars(self).values() if array is not None}
        if len(lengths) > 1:
            raise ValueError(f"{', '.join(vars(self))} of {sorted(lengths)} examples must be equally many")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example, such as (C, H, W)."""
        return tuple(self.inputs.shape[1:])

    @property
    def answers(self) -> NDArray[Any]:
        """The values that a model predicts: int64 (n,) classes, (n, H, W) classes of pixels, or float32 numbers."""
        if self.targets is None:
            return self.labels
        return self.targets.astype(np.float32 if self.targets.dtype.kind == "f" else np.int64, copy=False)

    def take(self, indices: NDArray[Any] | slice) -> Examples:
        """The examples at these places."""
        rest: Any = (None if each is None else each[indices] for each in (self.targets, self.regions, self.users))
        return Examples(self.inputs[indices], self.labels[indices], *rest)


@runtime_checkable
class Judge(Protocol):
    """What data says of its task: the role `Task`, as those see it who have examples."""

    @property
    def name(self) -> str:
        """Of the component."""

    @property
    def descends(self) -> str:
        """Its loss, in words."""

    def losses(self, outputs: Any, answers: Any) -> Any:
        """The loss of each example."""

    def counts(self, outputs: Any, answers: Any) -> Mapping[str, float]:
        """What its figures need of a batch."""


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class About:
    """What a model needs to know about examples; `about` gives it of those at hand.

    Attributes:
        classes: names of a model's outputs, one each: of classes, of the numbers that a regression predicts, of the
            labels of which an example may have several, or of tokens.
        mean, std: per channel, in units of inputs scaled to [0, 1]; inputs are standardised with them when they
            become tensors. uint8 inputs are divided by 255 first. Both empty: inputs reach the model as they are.
        kinds: names of the labels, where they are not the classes that a model predicts (segmentation).
        region_names: names of the privacy-sensitive fields that `Examples.regions` marks.
        columns: names of the numbers of an example, where it is a row of a table; messages name them.
        task: what the model is for, which says what its loss is and what it is judged by; the run fills it in. None:
            one class an example, or a pixel, by cross entropy.
    """

    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    kinds: tuple[str, ...] = ()
    region_names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    task: Judge | None = None

    @property
    def label_names(self) -> tuple[str, ...]:
        """The names of the labels."""
        return self.kinds or self.classes

    @property
    def about(self) -> dict[str, Any]:
        """The same of other examples of the data set: `ClientData(train, own_test, shared_test, **dataset.about)`."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(About)}


@dataclasses.dataclass(frozen=True, eq=False)
class _ForTraining(About):
    """What holds examples for training."""

    train: Examples

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example: (C, H, W)."""
        return self.train.shape


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset(_ForTraining):
    """A data set in memory: its two splits.

    Attributes:
        train: examples for training, which are split among the clients.
        test: examples for testing.
    """

    test: Examples


@dataclasses.dataclass(frozen=True, eq=False)
class PublicData(About):
    """Labelled examples that everybody has, the servers too: nobody's private data.

    Attributes:
        examples: all of them.
    """

    examples: Examples

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one example: (C, H, W)."""
        return self.examples.shape


@dataclasses.dataclass(frozen=True, eq=False)
class ClientData(_ForTraining):
    """The data of one client.

    Attributes:
        train: its own training examples.
        own_test: test examples with the class mix of its training examples; with data at sites, what is held out there.
        shared_test: the common test set, of which each client evaluates a share; with data at
            sites there is none, and this is what its site holds out.
        own_places: of `own_test` in `shared_test`, int64 (n,); None outside it.
    """

    own_test: Examples
    shared_test: Examples
    own_places: NDArray[np.int64] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """Counts of one evaluation; those of several clients add up.

    Attributes:
        correct: answers that are right; 0 where the task has no accuracy.
        count: of answers: one an example, or one a position of it where the model labels positions.
        loss: summed over the answers, in nats where it is a cross entropy.
        task: whatever else a task is judged by, by name; `Task.figures`, and `ModelSource.figures`, make figures of the
            sums.
        outputs: what the model gave, (count, classes), a larger number for a class that it holds more likely; in the
            order of the examples. Figures by class are made of it, and it stays at the client. None where examples
            have no one class each, and where it would take too much memory.
    """

    correct: int
    count: int
    loss: float
    task: Mapping[str, float] = dataclasses.field(default_factory=dict)
    outputs: NDArray[np.float32] | None = None


Better = Literal["higher", "lower"]
"""Which of two numbers is the better one."""


class Figure(Checked, Record):
    """A number by which a task is judged, and how to read it.

    Attributes:
        name: as `Task.figures` or `ModelSource.figures` has it, such as `IoU`.
        better: which of two is the better one, `higher` or `lower`. Comparisons mark it, and a search looks for it.
        unit: of its numbers, such as `m`; empty for a number without one.
    """

    name: Text
    better: Better
    unit: Text = ""


ACCURACY = Figure("accuracy", better="higher")
"""The share of right answers: what leads where a recipe names no other task."""


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

        They may change: the caller sets the model before it uses it again.
        """
        return self.get_vector() - start

    def set_vector(self, vector: NDArray[np.float32]) -> None:
        """Overwrites all trainable parameters."""

    def get_buffers(self) -> dict[str, NDArray[Any]]:
        """Non-trainable state by name, such as batch-norm statistics; copies."""

    def set_buffers(self, buffers: dict[str, NDArray[Any]]) -> None:
        """Overwrites the named buffers."""

    def evaluate(self, examples: Examples, data: ClientData) -> Evaluation:
        """Counts, in evaluation mode, what the task of `data` is judged by: right answers where it names none."""
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

"""A data set as arrays in one `.npz` file, for sites without a folder of images.

    numpy.savez("data.npz", train_inputs=..., train_targets=..., test_inputs=..., test_targets=...)

is a table or tokens: inputs of any numbers and shape, (n, ...), which reach the model unchanged, and its answers,
numbers or whole numbers (n, ...), or labels as below. `classes` then names the outputs of the model.

    numpy.savez("data.npz", train_images=..., train_labels=..., test_images=..., test_labels=...,
                classes=["normal", "pneumonia"])

is images, which are standardised: whole numbers from 0 to 255, truths, or floats from 0 to 1, (n, H, W) or
(n, C, H, W). Labels are whole numbers from 0, (n,) or (n, 1), one-hot rows, or the names of classes. For segmentation
there are also `train_targets` and `test_targets`, (n, H, W), and `kinds`, the names of the labels; `train_regions` and
`test_regions` mark privacy-sensitive fields, which `region_names` names. `train_users` says which person each training
example is of, by numbers or names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Dataset, Examples, Field
from fedplug.api.errors import DataError

from fedplug_std import _intake
from fedplug_std.data_folder import located
from fedplug_std.datasets import FIFTHS
from fedplug_std.options import Sized

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMES = ("classes", "kinds", "region_names")
_LABELS = ("train_labels", "test_labels")
_ANSWERS = ("train_targets", "test_targets")
_INPUTS = {"train_inputs", "test_inputs"}
_TARGETS = ("std.regression", "std.multi_label", "std.language_model", "std.segmentation")
"""Tasks whose answers are not one class an example."""
ORDER = ("train_images", "train_labels", "test_images", "test_labels")
"""The arrays of a data set, in the order in which a function or a script gives them."""


class Arrays(fedplug.DataSource):
    """Arrays in one `.npz` file: images, tables or tokens, with their answers, for training and for testing.

    For a table or tokens it holds `train_inputs`, `test_inputs`, of any numbers and shape, and `train_targets`,
    `test_targets`, or labels; the recipe names the task. For images it holds `train_images`, `train_labels`,
    `test_images`, `test_labels`; for segmentation also `train_targets`, `test_targets` and `kinds`, and for marked
    fields `train_regions`, `test_regions` and `region_names`. `classes` holds the names of the labels, or of a model's
    outputs.
    """

    class Options(Sized):
        """The file, and facts that it does not contain."""

        file: str = Field(
            "data.npz",
            description="the file, absolute or inside the data folder; without a data folder, in the working directory",
        )
        classes: tuple[str, ...] = Field((), description="names of the classes, if the file has no array of them")
        outputs: int | None = Field(
            None, ge=1, description="number of a model's outputs, if nothing names them: the size of a vocabulary"
        )
        mean: float = Field(
            0.5,
            ge=0,
            le=1,
            description="subtracted from inputs in [0, 1]; a public constant, not measured on the clients' data",
        )
        std: float = Field(0.25, gt=0, le=1, description="inputs are then divided by this; public as well")

    def describe(self) -> str:
        """The file; with data at sites, the recipe gives the constants of the standardisation."""
        return f"the arrays of {self.options.file}"

    def load(self, root: str | None) -> Dataset:
        """Reads the file.

        Raises:
            DataError: it is missing or damaged, or an array is; the message names it, its form and the required form.
        """

        path = located(root, self.options.file)
        return dataset_of(read(path), self.options, path)


_REMEDY = (
    'write it again with numpy.savez, or read it with a function of your own: data: {use: "my_data.py:load"}'
)


def read(path: Path, remedy: str = _REMEDY) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file, by name. Raises a DataError with the remedy if it cannot be read."""
    if not path.is_file():
        raise DataError(f"there is no file {path}; put it there, or name another with data: {{file: ...}}")
    name = ""
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise DataError(f"{path} holds one array without a name; write it with numpy.savez")
        found = {}
        with stored:
            for name in stored.files:
                found[name] = np.asarray(stored[name])
        return found
    except DataError:
        raise
    except Exception as error:  # of a damaged file: zipfile's, zlib's, or those of numpy's own reader
        # numpy treats unknown content as a pickle, and would load it as one.
        objects = "it holds Python objects" + ("" if name else ", or is another kind of file")
        why = objects if "pickle" in str(error) else " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{path} cannot be read as .npz: {f'array {name}: ' if name else ''}{why}; {remedy}") from error


def dataset_of(stored: Mapping[str, Any], options: Any, place: Path | str, makes_names: bool = False) -> Dataset:
    """The data set in named arrays.

    Args:
        stored: the arrays; those of names are `classes`, `kinds` and `region_names`.
        options: `classes`, `outputs`, `mean`, `std`, and how many examples to use.
        place: their source, for messages.
        makes_names: whether classes that nobody names are called by their labels.

    Raises:
        DataError: an array is missing or has the wrong form; the message names the source, the array and the remedy.
    """
    from dataclasses import replace

    from fedplug_std import _dataset_files as files

    named, kinds, regions = (_texts(stored, name, place) for name in _NAMES)
    classes = named or options.classes or _outputs_of(stored, options.outputs, place)
    labels = [_intake.plain(stored[name], f"{place}: {name}") for name in _LABELS if name in stored]
    answers = "train_targets" in stored
    called = not classes and not answers and bool(labels)
    if called and (makes_names or all(each.dtype.kind == "U" for each in labels)):
        classes = _intake.names_of(labels)
    elif not classes and makes_names and answers:
        classes = _of_targets(stored, place)
    if not classes:
        raise DataError(
            f"{place} has no array classes, the names of the labels in their order; add it, or write "
            "data: {classes: [...]} in the recipe"
        )
    if makes_names and answers and labels and not kinds:
        kinds = _intake.names_of(labels)
    train, test = two_of(stored, place, kinds or classes, called or (makes_names and answers))
    # One value a channel; inputs that are not images stay unchanged.
    channels = 0 if _INPUTS & {*stored} else train.inputs.shape[1]
    mean, std = (options.mean,) * channels, (options.std,) * channels
    if not kinds and answers and not labels:
        kinds = FIFTHS
    return replace(files.dataset(train, test, options, classes, mean, std, kinds), region_names=regions)


def in_order(given: Mapping[str, Any], place: str, task: str | None = None) -> dict[str, Any]:
    """Inputs and answers that were given in their order, by the names that they have for a task.

    Args:
        given: as `ORDER` names them, whatever they are.
        place: their source, for messages.
        task: of the recipe; empty: it has none, so that answers are classes. None: unknown, and the form decides.
    """
    inputs, answers = (_intake.plain(given[name], f"{place}: {name}") for name in ORDER[:2])
    number, shape = answers.dtype.kind, answers.shape
    if task in (None, "") or task not in _TARGETS:
        one_hot = len(shape) == 2 and number in "fiub" and bool((answers.sum(1) == 1).all())
        fractions = number == "f" and bool((answers != np.rint(answers)).any())
        other = fractions or len(shape) > 2 or (len(shape) == 2 and shape[1] > 1 and not one_hot)
        as_targets = other and task not in ("", "std.classification")
    else:
        as_targets = True
    tokens = task == "std.language_model"
    whole = tokens or inputs.ndim not in (3, 4)
    names = f"train_{'inputs' if whole else 'images'}", f"train_{'targets' if as_targets else 'labels'}"
    wanted = *names, *(name.replace("train", "test") for name in names)
    made = {name: given[ordered] for name, ordered in zip(wanted, ORDER, strict=True)}
    if whole and not tokens:  # a table, whose whole numbers are numbers
        of_tokens = task is None and as_targets and number in "iu" and shape == inputs.shape
        for name in () if of_tokens else wanted[::2]:
            given_ = _intake.plain(made[name], f"{place}: {name}")
            table = given_.reshape(-1, 1) if given_.ndim == 1 else given_
            made[name] = table if table.dtype.kind == "U" else table.astype(np.float64)
    if task == "std.regression" and number in "iub":
        made |= {name: np.asarray(made[name], np.float64) for name in wanted[1::2]}
    return made


def two_of(
    stored: Mapping[str, Any], place: Path | str, classes: Sequence[str] = (), named: bool = False
) -> tuple[Examples, Examples]:
    """The training and the test examples in named arrays.

    Args:
        stored: the arrays.
        place: their source, for messages.
        classes: names of the classes, if they are known.
        named: whether labels that are numbers are such names.

    Raises:
        DataError: an array is missing or has the wrong form; the message names the source and the array.
    """
    kind, inputs = ("inputs" if _INPUTS & {*stored} else "images"), {}
    for split in ("train", "test"):
        name = f"{split}_{kind}"
        given = _array(stored, name, place), f"{place}: {name}"
        inputs[split] = _intake.narrow(*given, whole=False) if kind == "inputs" else _intake.images(*given)
        if not inputs[split].ndim:
            raise DataError(f"{place}: {name} is one number, but must be numbers (n, ...)")
        if not {f"{split}_targets", f"{split}_labels"} & {*stored}:
            more = f"; it has {', '.join(sorted(stored))}"
            raise DataError(f"{place} has no array {split}_labels, and no {split}_targets{more}; add one of them")
    if len({each.dtype for each in inputs.values()}) > 1 and kind == "inputs":
        inputs = {split: each.astype(np.float32) for split, each in inputs.items()}
    parts = {name: (stored[name], len(inputs[name.partition("_")[0]])) for name in _LABELS if name in stored}
    found = _intake.labels({f"{place}: {name}": each for name, each in parts.items()}, classes, named)
    labels = dict(zip(parts, found, strict=True))
    train, test = (_examples(stored, split, inputs[split], labels.get(f"{split}_labels"), place) for split in inputs)
    return train, test


def _examples(
    stored: Mapping[str, Any], split: str, inputs: NDArray[Any], labels: NDArray[np.int64] | None, place: Path | str
) -> Examples:
    """One part. Without labels, partitions go by the fifths of numbers; examples with other targets are of one kind."""
    from fedplug_std._dataset_files import fifths

    name, regions = f"{split}_targets", None
    targets = _intake.narrow(stored[name], f"{place}: {name}") if name in stored else None
    if not _INPUTS & {*stored}:
        regions = _of_pixels(stored, f"{split}_regions", inputs, place)
        if targets is not None and targets.ndim > 2:
            targets = _of_pixels(stored, name, inputs, place)
    if targets is not None:
        targets = targets.reshape(-1, 1) if targets.ndim < 2 else targets
        if len(targets) != len(inputs):
            raise DataError(f"{place}: {name} has {len(targets)} answers for {len(inputs)} inputs; give each one")
    if labels is None:
        assert targets is not None
        numbers = targets.dtype.kind == "f" and len(targets) and np.isfinite(targets).all()
        labels = fifths(targets) if numbers else np.zeros(len(targets), np.int64)
    users = None
    if (of_users := f"{split}_users") in stored:
        given = _intake.plain(stored[of_users], f"{place}: {of_users}")
        if given.shape != (len(inputs),):
            shape = list(given.shape)
            raise DataError(f"{place}: {of_users} has shape {shape}, but must name a user for each of {len(inputs)}")
        users = np.unique(given, return_inverse=True)[1].astype(np.int64)
    return Examples(inputs, labels, targets, regions, users)


def _of_targets(stored: Mapping[str, Any], place: Path | str) -> tuple[str, ...]:
    """Made names of a model's outputs: 0 up to the largest token or class of a pixel, or a label each."""
    targets, tested = (_intake.narrow(_array(stored, name, place), f"{place}: {name}") for name in _ANSWERS)
    targets = targets.reshape(-1, 1) if targets.ndim == 1 else targets
    inputs = [_intake.plain(stored[name], f"{place}: {name}") for name in sorted(_INPUTS) if name in stored]
    tokens = [each for each in inputs if each.dtype.kind in "iu" and each.shape[1:] == targets.shape[1:]]
    if targets.ndim == 2 and not tokens:
        return tuple(map(str, range(targets.shape[1])))
    largest = max((int(each.max(initial=0)) for each in (targets, tested, *tokens)), default=0)
    return tuple(map(str, range(largest + 1)))


def _outputs_of(stored: Mapping[str, Any], count: int | None, place: Path | str) -> tuple[str, ...]:
    """Made names of a model's outputs: `count` of them, or one for each number of a target; else none."""
    name = "train_targets"
    if count is None and name in stored:
        targets = _intake.plain(stored[name], f"{place}: {name}")
        pixels = targets.ndim > 2 and not _INPUTS & {*stored}
        count = math.prod(targets.shape[1:]) if targets.dtype.kind == "f" and not pixels else None
    return tuple(map(str, range(count or 0)))


def _of_pixels(stored: Mapping[str, Any], name: str, inputs: NDArray[Any], place: Path | str) -> NDArray[Any] | None:
    """A class or a field of each pixel, uint8 (n, H, W), of whole numbers of any type."""
    if name not in stored:
        return None
    found, shape = _intake.narrow(stored[name], f"{place}: {name}"), (len(inputs), *inputs.shape[2:])
    found = found[:, 0] if found.ndim == 4 and found.shape[1] == 1 else found
    whole = found.dtype.kind != "f" or bool((found == np.rint(found)).all())
    if found.shape != shape or not whole or (found.size and (found.min() < 0 or found.max() > 255)):
        there = np.asarray(stored[name])
        held = f" from {there.min():g} to {there.max():g}" if there.size and found.shape == shape else ""
        raise DataError(
            f"{place}: {name} is {there.dtype} {there.shape}{held}, but must be uint8 {shape}, one for each pixel"
        )
    return found.astype(np.uint8)


def _array(stored: Mapping[str, Any], name: str, path: Path | str) -> Any:
    if name not in stored:
        raise DataError(f"{path} has no array {name}; it has {', '.join(sorted(stored)) or 'none'}")
    return stored[name]


def _texts(stored: Mapping[str, Any], name: str, path: Path | str) -> tuple[str, ...]:
    found = np.asarray(stored.get(name, np.empty(0, str)))
    if found.dtype.kind != "U" or found.ndim != 1:
        raise DataError(f"{path}: {name} is {found.dtype} {found.shape}, but must be a list of names")
    return tuple(map(str, found))

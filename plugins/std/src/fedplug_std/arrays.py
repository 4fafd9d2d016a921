"""A data set as arrays in one `.npz` file, for sites without a folder of images.

    numpy.savez("data.npz", train_inputs=..., train_targets=..., test_inputs=..., test_targets=...)

is a table or tokens: inputs of any numbers and shape, (n, ...), which reach the model unchanged, and its answers,
numbers or whole numbers (n, ...), or labels as below. `classes` then names the outputs of the model.

    numpy.savez("data.npz", train_images=..., train_labels=..., test_images=..., test_labels=...,
                classes=["normal", "pneumonia"])

is images, which are standardised: uint8 from 0 to 255 or float32 from 0 to 1, (n, H, W) or (n, C, H, W). Labels are
whole numbers from 0, (n,) or (n, 1). For segmentation there are also `train_targets` and `test_targets`, (n, H, W), and
`kinds`, the names of the labels; `train_regions` and `test_regions` mark privacy-sensitive fields, which `region_names`
names.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
from fedplug import Dataset, Examples, Field
from fedplug.api.errors import DataError

from fedplug_std.datasets import FIFTHS
from fedplug_std.options import Sized

_NAMES = ("classes", "kinds", "region_names")


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
        from dataclasses import replace

        from fedplug_std import _dataset_files as files

        path = files.located(root, self.options.file)
        stored = read(path)
        train, test = (examples_of(stored, split, path) for split in ("train", "test"))
        named, kinds, regions = (_texts(stored, name, path) for name in _NAMES)
        classes = named or self.options.classes or outputs_of(stored, self.options.outputs)
        if not classes:
            raise DataError(
                f"{path} has no array classes, the names of the labels in their order; add it, or write "
                "data: {classes: [...]} in the recipe"
            )
        # One value a channel; inputs that are not images stay unchanged.
        channels = 0 if "train_inputs" in stored else train.inputs.shape[1]
        mean, std = (self.options.mean,) * channels, (self.options.std,) * channels
        if not kinds and train.targets is not None and "train_labels" not in stored:
            kinds = FIFTHS
        return replace(files.dataset(train, test, self.options, classes, mean, std, kinds), region_names=regions)


_REMEDY = (
    'write it again with numpy.savez, or read it with a function of your own: data: {use: "my_data.py:load"}'
)


def read(path: Path, remedy: str = _REMEDY) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a file, by name. Raises a DataError with the remedy if it cannot be read."""
    if not path.is_file():
        raise DataError(f"there is no file {path}; put it there, or name another with data: {{file: ...}}")
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            raise DataError(f"{path} holds one array without a name; write it with numpy.savez")
        with stored:
            return {name: np.asarray(stored[name]) for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        # numpy treats unknown content as a pickle, and would load it as one.
        why = "it holds Python objects, or is another kind of file" if "pickle" in str(error) else str(error)
        raise DataError(f"{path} cannot be read as .npz: {why}; {remedy}") from error


def examples_of(stored: dict[str, np.ndarray[Any, Any]], split: str, path: Path | str) -> Examples:
    """One split out of named arrays.

    Raises:
        DataError: an array is missing or has the wrong form; the message names `path`, its source.
    """
    if f"{split}_inputs" in stored:
        return _plain(stored, split, path)
    inputs, labels = (_array(stored, f"{split}_{what}", path) for what in ("images", "labels"))
    if inputs.dtype not in (np.uint8, np.float32) or inputs.ndim not in (3, 4):
        raise DataError(
            f"{path}: {split}_images is {inputs.dtype} {inputs.shape}, but must be uint8 (0 to 255) or float32 (0 to "
            f"1) of the shape (n, H, W) or (n, C, H, W){_remedy(inputs)}"
        )
    if labels.dtype.kind not in "iu" or labels.shape not in ((len(inputs),), (len(inputs), 1)):
        raise DataError(
            f"{path}: {split}_labels is {labels.dtype} {labels.shape}, but must be a whole number for each of "
            f"{len(inputs)} images"
        )
    inputs = inputs[:, None] if inputs.ndim == 3 else inputs
    of_pixels = (_of_pixels(stored, f"{split}_{what}", inputs, path) for what in ("targets", "regions"))
    return Examples(inputs, labels.reshape(-1).astype(np.int64), *of_pixels)


def outputs_of(stored: dict[str, np.ndarray[Any, Any]], count: int | None) -> tuple[str, ...]:
    """Generated names of a model's outputs: `outputs` of them, or one for each number of a target; else none."""
    targets = stored.get("train_targets", np.empty(0))
    if count is None and "train_inputs" in stored and targets.dtype.kind == "f":
        count = math.prod(targets.shape[1:])
    return tuple(map(str, range(count or 0)))


def _plain(stored: dict[str, np.ndarray[Any, Any]], split: str, path: Path | str) -> Examples:
    """Inputs of any numbers and shape, with targets, or labels, or both.

    Without labels, partitions go by the fifths of numbers; examples with other targets are all of one kind.
    """
    from fedplug_std._dataset_files import fifths

    inputs, targets, labels = (stored.get(f"{split}_{what}") for what in ("inputs", "targets", "labels"))
    if targets is None and labels is None:
        raise DataError(f"{path} has {split}_inputs but neither {split}_targets nor {split}_labels; add one of them")
    for what, array in (("inputs", inputs), ("targets", targets), ("labels", labels)):
        kinds = "iu" if what == "labels" else "fiub"
        if array is not None and (array.dtype.kind not in kinds or not array.ndim):
            raise DataError(f"{path}: {split}_{what} is {array.dtype} {array.shape}, but must be numbers (n, ...)")
    assert inputs is not None
    inputs = _narrow(inputs)
    if targets is not None:
        targets = _narrow(targets.reshape(-1, 1) if targets.ndim == 1 else targets)
    if labels is None:
        assert targets is not None
        numbers = targets.dtype.kind == "f" and np.isfinite(targets).all()
        labels = fifths(targets) if numbers else np.zeros(len(targets), np.int64)
    if len({len(array) for array in (inputs, targets, labels) if array is not None}) > 1:
        raise DataError(f"{path}: the arrays of {split} must be equally long, but have {len(inputs)} inputs")
    return Examples(inputs, labels.reshape(-1).astype(np.int64), targets)


def _narrow(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Numbers as models take them: float32, or int64."""
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def _remedy(inputs: np.ndarray[Any, Any]) -> str:
    """A conversion to such images, if there is an obvious one."""
    found = []
    if inputs.ndim == 2:
        found.append("a table of n rows becomes n pictures of one line with [:, None, :]")
    if inputs.dtype.kind in "fiu" and inputs.dtype not in (np.uint8, np.float32):
        found.append("numbers become float32 with .astype(np.float32), once they are between 0 and 1")
    return "".join(f"; {text}" for text in found)


def _of_pixels(
    stored: dict[str, np.ndarray[Any, Any]], name: str, inputs: np.ndarray[Any, Any], path: Path | str
) -> np.ndarray[Any, Any] | None:
    if name not in stored:
        return None
    found, shape = stored[name], (len(inputs), *inputs.shape[2:])
    if found.dtype != np.uint8 or found.shape != shape:
        raise DataError(f"{path}: {name} is {found.dtype} {found.shape}, but must be uint8 {shape}, one for each pixel")
    return found


def _array(stored: dict[str, np.ndarray[Any, Any]], name: str, path: Path | str) -> np.ndarray[Any, Any]:
    if name not in stored:
        raise DataError(f"{path} has no array {name}; it has {', '.join(sorted(stored)) or 'none'}")
    return stored[name]


def _texts(stored: dict[str, np.ndarray[Any, Any]], name: str, path: Path) -> tuple[str, ...]:
    found = stored.get(name, np.empty(0, str))
    if found.dtype.kind != "U" or found.ndim != 1:
        raise DataError(f"{path}: {name} is {found.dtype} {found.shape}, but must be a list of names")
    return tuple(map(str, found))

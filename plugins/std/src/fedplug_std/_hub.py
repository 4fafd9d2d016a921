"""Reads the sources of `fedplug_std.hub`: folders of Hugging Face's `save_to_disk`, and classes of torchvision."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.data import Dataset, Examples
from fedplug.api.errors import DataError, SetupError, cause_of

from fedplug_std import _columns, _dataset_files, _intake, _pictures
from fedplug_std._table_files import of_arrow
from fedplug_std.data_folder import located
from fedplug_std.torchvision_import import torchvision

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from fedplug_std.options import HuggingFaceOptions, TorchvisionOptions


def hugging_face(options: HuggingFaceOptions, root: str | None) -> Dataset:
    """The data set in a folder that `save_to_disk` wrote."""
    folder = located(root, options.path)
    parts = _splits(options, folder)
    names = ("train", "test") if len(parts) == 2 else ("all",)
    if options.inputs is None:
        rows = [_table(part, folder, name) for part, name in zip(parts, names, strict=True)]
        for index, part in enumerate(parts):  # a ClassLabel is a number, and its names are the classes
            rows[index] = _named_classes(options, part, rows[index])
        named = _class_names(options, parts[0])
        chosen = options.model_copy(update={"classes": options.classes or named})
        return _columns.dataset(chosen, rows[0], rows[1] if len(rows) == 2 else None)
    _require(parts[:1], (options.inputs,), "inputs", folder)
    kind = parts[0].features[options.inputs]
    if type(kind).__name__ in ("Image", "Array2D", "Array3D"):
        return _images(options, parts, folder)
    if not options.answer:
        return _pieces(options, parts, folder)
    return _tokens(options, parts, folder)


def _splits(options: HuggingFaceOptions, folder: Path) -> list[Any]:
    """Training and test rows, or all of them."""
    try:
        import datasets
    except ImportError as error:
        raise SetupError(
            f"datasets, which reads {folder}, is not installed; pip install datasets"
        ) from error
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; write it with save_to_disk, or name another with data.path")
    if not any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):
        raise DataError(
            f"{folder} is not a data set of Hugging Face: it has neither dataset_dict.json nor state.json; write it "
            "with datasets.load_dataset(...).save_to_disk(FOLDER)"
        )
    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:  # a damaged file fails in many ways
        raise DataError(f"{folder} cannot be read: {cause_of(error)}; write it again with save_to_disk") from error
    if not isinstance(found, dict):
        return [found]
    if options.train_split not in found:
        raise DataError(f"{folder} has no split {options.train_split}; it has {_columns.listed(found)}: train_split")
    parts = [found[options.train_split]]
    return [*parts, found[options.test_split]] if options.test_split in found else parts


def _table(part: Any, folder: Path, name: str) -> _columns.Rows:
    place = f"{folder}" if name == "all" else f"{folder} ({name})"
    return of_arrow(part.with_format("arrow")[:], place)


def _class_names(options: HuggingFaceOptions, part: Any) -> tuple[str, ...]:
    """The names that a column of class labels has."""
    if options.predict != "classes" or not options.answer:
        return ()
    kind = part.features.get(options.answer[0])
    return tuple(map(str, kind.names)) if type(kind).__name__ == "ClassLabel" else ()


def _named_classes(options: HuggingFaceOptions, part: Any, rows: _columns.Rows) -> _columns.Rows:
    """The rows with names instead of the numbers of classes."""
    names = _class_names(options, part)
    if not names:
        return rows
    (answer,) = options.answer
    column = rows.columns[answer]
    texts = [
        names[number] if 0 <= number < len(names) else str(number) for number in column.values.astype(int).tolist()
    ]
    missing = column.gaps | (column.values == -1)  # -1: no label
    words, places = np.unique(np.where(missing, "", texts), return_inverse=True)
    named = _columns.Column.of(words.tolist(), places, frozenset({""}))
    return dataclasses.replace(rows, columns=rows.columns | {answer: named})


def _answered(options: HuggingFaceOptions, parts: Sequence[Any], folder: Path) -> list[_columns.Answers]:
    names = ("train", "test") if len(parts) == 2 else ("all",)
    _require(parts, options.answer, "answer", folder)
    wanted = [part.select_columns(list(options.answer)) for part in parts]
    rows = [_named_classes(options, part, _table(part, folder, name)) for part, name in zip(wanted, names, strict=True)]
    chosen = options.model_copy(update={"classes": options.classes or _class_names(options, parts[0])})
    classes = _columns.classes_of(chosen, rows)
    return [_columns.answers(chosen, part, classes) for part in rows]


def _require(parts: Sequence[Any], names: Sequence[str], option: str, folder: Path) -> None:
    """Refuses names of an option that are no columns."""
    for part in parts:
        if absent := [name for name in names if name not in part.features]:
            has = _columns.listed(part.features)
            raise DataError(f"{folder} has no column {absent[0]}, which {option} names; it has {has}")


def _assembled(
    options: HuggingFaceOptions,
    inputs: Sequence[NDArray[Any]],
    asked: Sequence[_columns.Answers],
    place: str,
    constants: tuple[tuple[float, ...], tuple[float, ...]],
) -> Dataset:
    made = [Examples(given, one.labels, one.targets) for given, one in zip(inputs, asked, strict=True)]
    train, test = _dataset_files.two_parts(made, options, place)
    return _dataset_files.dataset(train, test, options, asked[0].classes, *constants, kinds=asked[0].kinds)


def _images(options: HuggingFaceOptions, parts: Sequence[Any], folder: Path) -> Dataset:
    if not options.answer:
        raise DataError(f"{folder}: images need an answer; name its column with answer: ...")
    assert options.inputs is not None
    if type(parts[0].features[options.inputs]).__name__ == "Image":
        pixels = [_stack(_column(part, options.inputs, folder), options, f"{folder}") for part in parts]
    else:
        read = [np.asarray(part.with_format("numpy")[:][options.inputs]) for part in parts]
        pixels = [_intake.images(each, f"{folder}: column {options.inputs}") for each in read]
    return _assembled(options, pixels, _answered(options, parts, folder), str(folder), _constants(options, pixels[0]))


def _column(part: Any, name: str, folder: Path) -> Iterator[Any]:
    """The images of a column, decoded one by one."""
    for number in range(len(part)):
        try:
            yield part[number][name]
        except MemoryError:
            raise
        except Exception as error:  # whatever a damaged image raises in Pillow
            raise DataError(
                f"{folder}: the image in row {number + 1} of column {name} cannot be read: {cause_of(error)}; leave "
                "the row out, or replace it"
            ) from error


def _constants(options: Any, pixels: NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    channels = pixels.shape[1]
    return (options.mean,) * channels, (options.std,) * channels


def _stack(images: Iterable[Any], options: Any, place: str, colours: int | None = None) -> NDArray[Any]:
    """Images of one size, (n, C, H, W); without `colours` each has its own."""
    colours = 1 if options.grayscale else colours
    reader = _pictures.Reader(options.image_size, colours, options.pixel_range, options.background)
    named = ((getattr(each, "filename", "") or f"{number} of {place}", each) for number, each in enumerate(images, 1))
    return _pictures.stacked((reader.image(each, name) for name, each in named), place)


def _pieces(options: HuggingFaceOptions, parts: Sequence[Any], folder: Path) -> Dataset:
    """Token ids or text as pieces of one length, each with the next tokens."""
    streams, sizes = zip(*(_stream(options, part, folder) for part in parts), strict=True)
    least = 2 * _dataset_files.PARTS if len(parts) == 1 else 1
    cut = [_dataset_files.cut_up(tokens, options.context, str(folder), least) for tokens in streams]
    train, test = cut if len(cut) == 2 else _dataset_files.ends_apart(cut[0], options.test_fraction)
    what = "byte" if sizes[0] == 256 and options.vocabulary is None else "token"
    classes = tuple(f"{what} {value}" for value in range(sizes[0]))
    return _dataset_files.dataset(train, test, options, classes, kinds=_dataset_files.PART_NAMES)


def _stream(options: HuggingFaceOptions, part: Any, folder: Path) -> tuple[NDArray[np.int64], int]:
    """All tokens of a split in one row, and the size of the vocabulary."""
    column = part.with_format("arrow")[:].column(options.inputs)
    rows = column.to_pylist()
    if gaps := [number for number, row in enumerate(rows, 1) if row is None]:
        raise DataError(f"{folder}: column {options.inputs} has no value in row {gaps[0]}; leave such rows out")
    if rows and isinstance(rows[0], str):
        if options.vocabulary is not None:
            raise DataError(f"{folder}: column {options.inputs} is text, whose bytes are 256; leave vocabulary out")
        return np.frombuffer("\n".join(rows).encode(), np.uint8).astype(np.int64), 256
    tokens, size = _ids(options, rows, folder)
    return np.concatenate(tokens) if tokens else np.empty(0, np.int64), size


def _ids(options: HuggingFaceOptions, rows: Sequence[Any], folder: Path) -> tuple[list[NDArray[np.int64]], int]:
    """Token ids of each row, and the size of the vocabulary."""
    name, size = options.inputs, options.vocabulary
    if size is None:
        raise DataError(f"{folder}: column {name} holds token ids; give their number: vocabulary: ...")
    made = []
    for number, row in enumerate(rows, 1):
        ids = np.asarray(row)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise DataError(
                f"{folder}: column {name} holds in row {number} a value that is neither text nor a list of token ids; "
                "name a column of images, text or token ids with inputs, or leave inputs out for a table"
            )
        if ids.size and (ids.min() < 0 or ids.max() >= size):
            wrong = ids[(ids < 0) | (ids >= size)][0]
            raise DataError(
                f"{folder}: column {name} holds the token id {wrong} in row {number}, and vocabulary says 0 to "
                f"{size - 1}; write the size of the tokenizer's vocabulary"
            )
        made.append(ids.astype(np.int64))
    return made, size


def _tokens(options: HuggingFaceOptions, parts: Sequence[Any], folder: Path) -> Dataset:
    """Token ids of one length, or the bytes of texts, with an answer."""
    made = []
    for part in parts:
        rows = part.with_format("arrow")[:].column(options.inputs).to_pylist()
        if rows and all(isinstance(row, str) for row in rows):
            made.append(_dataset_files.padded(rows, options.context))
            continue
        ids, _ = _ids(options, rows, folder)
        if lengths := sorted({len(row) for row in ids} - {len(ids[0])} if ids else ()):
            raise DataError(
                f"{folder}: column {options.inputs} has rows of {len(ids[0])} and of {lengths[0]} token ids; pad them "
                "to one length (padding='max_length')"
            )
        made.append(np.stack(ids) if ids else np.empty((0, options.context), np.int64))
    return _assembled(options, made, _answered(options, parts, folder), str(folder), ((), ()))


# -- torchvision -------------------------------------------------------------------------------------------------------


def of_torchvision(options: TorchvisionOptions, root: str | None) -> Dataset:
    """The data set of a class of torchvision, from existing files."""
    library = torchvision().datasets
    kind = getattr(library, options.dataset, None)
    if options.dataset not in library.__all__ or not isinstance(kind, type):
        near = [name for name in library.__all__ if name.lower() == options.dataset.lower()]
        raise DataError(
            f"torchvision.datasets has no {options.dataset}; "
            + (f"write {near[0]}" if near else "look there for its name")
        )
    folder = located(root, options.path)
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {folder}, the expected place of {options.dataset}; {_expected(kind, folder)}"
        )
    takes = inspect.signature(kind).parameters
    if next(iter(takes)) != "root":
        raise DataError(f"torchvision's {options.dataset} reads no folder; name a data set that is in one")
    # Some pass `train` on to their base class.
    handed = any(each.kind is each.VAR_KEYWORD for each in takes.values()) and issubclass(kind, library.MNIST)
    if "train" in takes or handed:
        parts = [_part(kind, folder, options, train=which) for which in (True, False)]
    elif "split" in takes and "split" not in options.arguments:
        parts = [_part(kind, folder, options, split=which) for which in (options.train_split, options.test_split)]
    else:
        parts = [_part(kind, folder, options)]
    made, names = [], getattr(parts[0], "classes", None)
    for part in parts:
        labels: list[int] = []
        images = _images_of(part, labels, folder, options.dataset)
        colours = 3 if "loader" in _all_parameters(kind) else None  # as torchvision's own loader makes them
        pixels = _stack(images, options, f"{options.dataset} in {folder}", colours)
        made.append(Examples(pixels, np.array(labels, np.int64)))
    train, test = _dataset_files.two_parts(made, options, f"{options.dataset} in {folder}")
    if not names:
        names = range(1 + max(int(part.labels.max(initial=0)) for part in made))
    classes = tuple(name[0] if isinstance(name, tuple) else str(name) for name in names)
    return _dataset_files.dataset(train, test, options, classes, *_constants(options, made[0].inputs))


def _part(kind: Any, folder: Path, options: TorchvisionOptions, **which: Any) -> Any:
    """One of the parts, without a download."""
    from PIL import Image

    known = _all_parameters(kind)
    never: dict[str, Any] = {"download": False} if "download" in known else {}
    if "loader" in known and "loader" not in options.arguments:
        never["loader"] = Image.open  # torchvision's own makes every image RGB of 8 bits
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return kind(str(folder), **which, **never, **options.arguments)
    except MemoryError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        if "not found" in reason.lower() or isinstance(error, FileNotFoundError):
            reason = "its files are missing"
        if isinstance(error, TypeError):
            remedy = "write it in data.arguments, such as {split: ...}"
            raise DataError(f"{options.dataset}: {reason}; {remedy}") from error
        raise DataError(f"{options.dataset} in {folder} cannot be read: {reason}; {_expected(kind, folder)}") from error


def _all_parameters(kind: type) -> set[str]:
    """Arguments of a class and of its base classes."""
    return {
        name
        for base in kind.__mro__
        if "__init__" in vars(base)
        for name in inspect.signature(vars(base)["__init__"]).parameters
    }


def _expected(kind: type, folder: Path) -> str:
    """The files that a class expects, in the words of torchvision, and the way to get them."""
    said = re.search(r"root \(.*?\): (.*?)(?=\n\s+\w+ \([^)]*\): |\n\s*\n|\Z)", inspect.getdoc(kind) or "", re.DOTALL)
    layout = " ".join(said.group(1).replace("``", "").split()).rstrip(".") if said else "see its documentation"
    # The source has what the documentation lacks: Path(self.root) / "food-101".
    inside = re.search(r"""Path\((?:self\.)?root\)\s*/\s*["']([^"']+)["']""", inspect.getsource(kind))
    looked = getattr(kind, "base_folder", None) or (inside and inside.group(1))
    where = f" It looks in {folder / looked}." if isinstance(looked, str) and looked else ""
    return (
        f"torchvision says of that folder: {layout}.{where} Nothing is downloaded; put the files there, for instance "
        f"with torchvision.datasets.{kind.__name__}({str(folder)!r}, download=True), if the class has it"
    )


def _images_of(part: Any, labels: list[int], folder: Path, name: str) -> Iterator[Any]:
    """The images one by one, so that few files are open; their classes go to `labels`."""
    for number in range(len(part)):
        try:
            image, label = part[number]
        except MemoryError:
            raise
        except Exception as error:
            raise DataError(
                f"{name} in {folder}: example {number + 1} cannot be read as an image with a class: {cause_of(error)}"
            ) from error
        if isinstance(label, bool) or not isinstance(label, int | np.integer):
            raise DataError(
                f"{name} in {folder} has a {type(label).__name__} for each image instead of one class; write a "
                "function that loads it, data: {use: my_data.py:load}"
            )
        labels.append(int(label))
        yield image

"""Reads the files behind `fedplug_std.datasets` into uint8 images (n, C, H, W) and int64 labels.

torchvision reads and downloads everything except the idx files of MNIST and Fashion-MNIST: it needs them unpacked next
to the archives, but data folders are often read-only. A missing or damaged file always ends in a `DataError` that gives
the expected place and the way to get the file.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import gzip
import importlib.util
import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from fedplug.api.data import Dataset, Examples
from fedplug.api.errors import DataError
from fedplug.api.streams import stream

from fedplug_std import _pictures
from fedplug_std._splits import stratified
from fedplug_std.data_folder import data_folder
from fedplug_std.options import ImageOptions
from fedplug_std.oriented_gradients import of_pixels
from fedplug_std.torchvision_import import torchvision

_READ_ERRORS = (OSError, EOFError, zlib.error, pickle.UnpicklingError, ValueError, TypeError, KeyError, RuntimeError)
_GET_IT = "put it there, or set download: true to download it"


class Sizes(Protocol):
    """The options every data set has."""

    @property
    def train_size(self) -> int | None: ...
    @property
    def test_size(self) -> int | None: ...


class Tree(Protocol):
    """The options of a folder of images."""

    @property
    def image_size(self) -> int: ...
    @property
    def grayscale(self) -> bool: ...
    @property
    def pixel_range(self) -> tuple[float, float] | None: ...
    @property
    def background(self) -> str: ...
    @property
    def test_fraction(self) -> float: ...
    @property
    def split_seed(self) -> int: ...


class Splits(Protocol):
    """The options of a data set that may have no test examples."""

    @property
    def test_fraction(self) -> float: ...
    @property
    def split_seed(self) -> int: ...


def dataset(
    train: Examples,
    test: Examples,
    sizes: Sizes,
    classes: tuple[str, ...],
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    kinds: tuple[str, ...] = (),
) -> Dataset:
    """Keeps the requested number of examples, and adds the facts that a model needs.

    Args:
        train, test: all examples.
        sizes: how many to keep.
        classes: names of the model's outputs.
        mean, std: of each channel.
        kinds: names of the labels, if they are not the classes.

    Raises:
        DataError: more examples are requested than exist.
    """
    train, test = _some(train, sizes.train_size, "train_size"), _some(test, sizes.test_size, "test_size")
    if isinstance(sizes, ImageOptions) and sizes.features:
        train, test = (
            dataclasses.replace(part, inputs=of_pixels(part.inputs), regions=None)
            for part in (train, test)
        )
        mean = std = ()
    return Dataset(train, test, classes=classes, mean=mean, std=std, kinds=kinds)


def _some(examples: Examples, size: int | None, option: str) -> Examples:
    if size is None:
        return examples
    if size > len(examples):
        raise DataError(f"{option}={size} must be at most {len(examples)}, the number of examples; for all write null")
    # The first of one fixed order, whatever the recipe's seed: equal sizes mean equal examples, and 1,000 examples
    # include the 500 of a smaller run.
    order = stream(0, "subset", option).permutation(len(examples))
    return examples.take(np.sort(order[:size]))


@contextlib.contextmanager
def _reading(what: str, where: Path, download: bool = False) -> Iterator[None]:
    """Turns any error of a reader of a bad file, or of a download, into a DataError."""
    try:
        yield
    except DataError:
        raise
    except _READ_ERRORS as error:
        done = "fetched or read" if download else "read"
        reason = " ".join(str(error).split())  # torchvision's reasons have line breaks
        message = f"{what} in {where} cannot be {done}: {reason}; remove the damaged files and get them again"
        raise DataError(message) from error


def digits() -> tuple[Examples, Examples]:
    """Scikit-learn's digits, split 80/20 within every class by a fixed seed."""
    return copy.deepcopy(_digits())


@functools.cache
def _digits() -> tuple[Examples, Examples]:
    """The unchanged data, read and split once a process."""
    rows = _table("digits.csv.gz", delimiter=",")  # 64 pixels of 0 to 16, and the digit
    images = np.rint(rows[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)[:, None]
    return _split(Examples(images, rows[:, -1].astype(np.int64)), 0.2, 0)


def diabetes() -> tuple[Examples, Examples]:
    """Scikit-learn's diabetes, in the units of its measurements, split 80/20 within every fifth of the answers."""
    rows, answers = (_table(f"diabetes_{what}.csv.gz") for what in ("data_raw", "target"))
    targets = answers.astype(np.float32).reshape(-1, 1)
    return _split(Examples(rows.astype(np.float32), fifths(targets), targets), 0.2, 0)


def breast_cancer() -> tuple[Examples, Examples]:
    """Scikit-learn's breast cancer, in the units of its measurements, split 80/20 within both classes."""
    rows = _table("breast_cancer.csv", skip=1, delimiter=",")
    return _split(Examples(rows[:, :-1].astype(np.float32), rows[:, -1].astype(np.int64)), 0.2, 0)


def _table(name: str, skip: int = 0, delimiter: str | None = None) -> np.ndarray[Any, Any]:
    """Numbers of a file that comes with scikit-learn, read without importing it, which takes a second."""
    found = importlib.util.find_spec("sklearn")
    if found is None or found.origin is None:
        raise DataError(f"{name} comes with scikit-learn, which is not installed; pip install scikit-learn")
    path = Path(found.origin).parent / "datasets" / "data" / name
    with gzip.open(path, "rt") if name.endswith(".gz") else path.open(encoding="utf-8") as file:
        return np.loadtxt(file, delimiter=delimiter, skiprows=skip)


PARTS = 10
"""Number of parts of a text, by which it can be split among clients."""
PART_NAMES = tuple(f"part {number}" for number in range(1, PARTS + 1))


def text_pieces(path: Path, context: int, test_fraction: float) -> tuple[Examples, Examples]:
    """The bytes of a file as tokens int64 (n, context), each with the next byte as its answer."""
    if not path.is_file():
        raise DataError(f"there is no file {path}; put it there, or name another with data: {{file: ...}}")
    with _reading("the text", path):
        text = np.frombuffer(path.read_bytes(), np.uint8).astype(np.int64)
    return ends_apart(cut_up(text, context, str(path)), test_fraction)


def padded(texts: Sequence[str], length: int) -> np.ndarray[Any, Any]:
    """The first bytes of texts in UTF-8, int64 (n, length), with 0 after their end."""
    found = np.zeros((len(texts), length), np.int64)
    for row, text in zip(found, texts, strict=True):
        # 0 ends a text, so none is within. What is cut in the middle of a letter is no UTF-8 any more.
        held = text.replace("\0", " ").encode()[:length].decode(errors="ignore").encode()
        row[: len(held)] = np.frombuffer(held, np.uint8)
    return found


def cut_up(tokens: np.ndarray[Any, Any], context: int, place: str, at_least: int = 2 * PARTS) -> Examples:
    """Tokens int64 (n,) as pieces (n, context) that do not overlap, each with the next tokens as its answers.

    The label of a piece is its tenth of the text. Raises a DataError if there are too few pieces.
    """
    count = max(0, len(tokens) - 1) // context
    if count < at_least:
        least = at_least * context + 1
        what = "bytes" if Path(place).is_file() else "tokens"
        raise DataError(
            f"{place} holds {len(tokens)} {what}, but {least} are needed; take more text or a smaller context"
        )
    whole = count * context
    given, asked = (tokens[start : start + whole].reshape(count, context) for start in (0, 1))
    return Examples(given, np.arange(count) * PARTS // count, asked)


def ends_apart(pieces: Examples, test_fraction: float) -> tuple[Examples, Examples]:
    """Pieces for training, and the last ones of each tenth for testing."""
    count = len(pieces)
    testing = [rows[-max(1, round(test_fraction * len(rows))) :] for rows in np.array_split(np.arange(count), PARTS)]
    test = np.concatenate(testing)
    return pieces.take(np.setdiff1d(np.arange(count), test)), pieces.take(test)


def fifths(targets: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Labels of numbers for partitions, int64 (n,): 0 for the lowest fifth of the first number, up to 4."""
    first = targets.reshape(len(targets), -1)[:, 0]
    bounds = np.quantile(first, (0.2, 0.4, 0.6, 0.8))
    return np.searchsorted(bounds, first, side="left").astype(np.int64)


def _split(examples: Examples, test_fraction: float, seed: int) -> tuple[Examples, Examples]:
    """Training and test examples, split at random within every class, each in the original order."""
    train, test = stratified(examples.labels, test_fraction, seed)
    return examples.take(np.sort(train)), examples.take(np.sort(test))


def two_parts(parts: Sequence[Examples], options: Splits, place: str) -> Sequence[Examples]:
    """Training and test examples: those two parts, or the only one, of which some are set aside for testing.

    They are split at random within every class, or regardless of classes if one is too rare.

    Raises:
        DataError: there are too few examples for both.
    """
    if len(parts) == 2:
        return parts
    (examples,), test_fraction, seed = parts, options.test_fraction, options.split_seed
    count = len(examples)
    if count < 2:
        raise DataError(f"{place} has {count} example, but a part must be set aside for testing; give more")
    try:
        return _split(examples, test_fraction, seed)
    except ValueError:
        order = stream(seed, "split").permutation(count)
        testing = min(count - 1, max(1, round(test_fraction * count)))
        return examples.take(np.sort(order[testing:])), examples.take(np.sort(order[:testing]))


def idx_images(name: str, root: str | None, download: bool) -> tuple[Examples, Examples]:
    """MNIST or Fashion-MNIST from `<name>/raw`, packed or not."""
    folder = data_folder(root)
    raw = folder / name / "raw"
    stems = [f"{split}-{kind}-ubyte" for split in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]

    def found(stem: str) -> Path | None:
        return next((path for path in (raw / stem, raw / f"{stem}.gz") if path.is_file()), None)

    absent = [stem for stem in stems if found(stem) is None]
    if absent and download:
        with _reading(name, raw, download):
            getattr(torchvision().datasets, name)(folder, download=True)
        absent = [stem for stem in stems if found(stem) is None]
    if absent:
        raise DataError(f"{name} is not in {raw}: missing {', '.join(f'{stem}[.gz]' for stem in absent)}; {_GET_IT}")
    arrays = []
    for stem in stems:
        path = found(stem)
        assert path is not None
        with _reading(name, path):
            arrays.append(_read_idx(path))
    return _pair(name, raw, arrays[0], arrays[1]), _pair(name, raw, arrays[2], arrays[3])


def _pair(name: str, where: Path, images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Examples:
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(f"{name} in {where} has images {images.shape} and labels {labels.shape}, which do not match")
    return Examples(images[:, None], labels.astype(np.int64))


def _read_idx(path: Path) -> np.ndarray[Any, Any]:
    """An idx file of unsigned bytes: 0, 0, 8, number of dimensions, their sizes (4 bytes, big endian), the values."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read()
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("it does not start as an idx file of bytes")
    start = 4 + 4 * content[3]
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], ">u4"))
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def cifar(name: str, root: str | None, download: bool) -> tuple[Examples, Examples, tuple[str, ...]]:
    """CIFAR10 or CIFAR100; torchvision compares checksums before it opens the pickles."""
    folder = data_folder(root)
    kind = getattr(torchvision().datasets, name)
    where = folder / kind.base_folder
    _fetch_or_complain(name, where, download)
    with _reading(name, where, download):
        train, test = (kind(folder, train=part, download=download) for part in (True, False))
        return _channels_first(train), _channels_first(test), tuple(train.classes)


def _channels_first(part: Any) -> Examples:
    return Examples(np.ascontiguousarray(part.data.transpose(0, 3, 1, 2)), np.asarray(part.targets, np.int64))


def by_split(name: str, root: str | None, download: bool, files: str) -> tuple[Examples, Examples]:
    """SVHN or STL10, whose torchvision classes hold `data` (n, C, H, W) and `labels`."""
    folder = data_folder(root)
    kind = getattr(torchvision().datasets, name)
    _fetch_or_complain(name, folder / files.split()[0], download)
    with _reading(name, folder, download):
        train, test = (kind(folder, split=part, download=download) for part in ("train", "test"))
        return _contiguous(train), _contiguous(test)


def _contiguous(part: Any) -> Examples:
    return Examples(np.ascontiguousarray(part.data), part.labels.astype(np.int64))


def _fetch_or_complain(name: str, where: Path, download: bool) -> None:
    if not where.exists() and not download:
        raise DataError(f"{name} is not in {where.parent}: {where.name} is missing; {_GET_IT}")


def imagenette(
    root: str | None, download: bool, source: str, image_size: int
) -> tuple[Examples, Examples, tuple[str, ...]]:
    """Imagenette, scaled and cut to squares."""
    folder = data_folder(root)
    where = folder / {"160px": "imagenette2-160", "320px": "imagenette2-320", "full": "imagenette2"}[source]
    _fetch_or_complain("Imagenette", where, download)
    with _reading("Imagenette", where, download):
        imagenette_set, load, parts = torchvision().datasets.Imagenette, _pictures.Reader(image_size, 3).file, []
        for split in ("train", "val"):
            fetch = download and not where.exists()  # torchvision 0.17 refuses to download into an existing folder
            parts.append(imagenette_set(folder, split=split, size=source, download=fetch, loader=load))
        train, test = parts
        return _stacked(train), _stacked(test), tuple(names[0] for names in train.classes)


def image_tree(folder: Path, options: Tree) -> tuple[Examples, Examples, tuple[str, ...]]:
    """Images in one folder a class, with a test folder or split at random."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; path must name one with train/ and test/, or one folder a class")
    channels = 1 if options.grayscale else 3
    reader = _pictures.Reader(options.image_size, channels, options.pixel_range, options.background)

    def read(part: Path) -> tuple[Examples, tuple[str, ...]]:
        with _reading("the image folder", part):
            found, names = _pictures.of_classes(part)
        pixels = _pictures.stacked((reader.file(path) for path, _ in found), str(part))
        return Examples(pixels, np.array([label for _, label in found], np.int64)), names

    train_folder, test_folder = _pictures.part_of(folder, "train"), _pictures.part_of(folder, "test", "val")
    if train_folder is None or not _pictures.folders(train_folder):
        train_folder = folder  # `train` is absent, or is a class of railway pictures
    if train_folder == folder or test_folder is None:
        examples, names = read(train_folder)
        try:
            return *_split(examples, options.test_fraction, options.split_seed), names
        except ValueError as error:
            raise DataError(f"{train_folder}: {error}; add images, or a test folder") from error
    (train, names), (test, test_names) = read(train_folder), read(test_folder)
    if strange := sorted({*test_names} - {*names}):
        raise DataError(
            f"{test_folder} has the class {strange[0]}, and {train_folder} has {', '.join(names)}; they must agree. "
            "Rename it, or make an empty folder where a class has no images"
        )
    place = np.array([names.index(name) for name in test_names])
    train, test = _alike(train, test)
    return train, dataclasses.replace(test, labels=place[test.labels]), names


def _alike(train: Examples, test: Examples) -> tuple[Examples, Examples]:
    """Both parts as uint8, or both as float32 where one has pictures of more than 8 bits."""
    if train.inputs.dtype == test.inputs.dtype:
        return train, test
    deep = [
        dataclasses.replace(part, inputs=part.inputs.astype(np.float32) / (255 if part.inputs.dtype == np.uint8 else 1))
        for part in (train, test)
    ]
    return deep[0], deep[1]


def with_labels(examples: Examples, folders: tuple[str, ...], labels: Mapping[str, tuple[str, ...]]) -> Examples:
    """The same images, each with the labels of its folder as targets, 0 or 1, int64 (n, labels).

    Raises:
        DataError: a label names a folder that does not exist.
    """
    for label, named in labels.items():
        if absent := [name for name in named if name not in folders]:
            raise DataError(
                f"labels.{label} names the folder {absent[0]}, but the folders are {', '.join(folders)}; correct the "
                "name"
            )
    has = np.array([[folder in named for named in labels.values()] for folder in folders], np.int64)
    return dataclasses.replace(examples, targets=has[examples.labels])


def _stacked(found: Any) -> Examples:
    pairs = [found[index] for index in range(len(found))]
    return Examples(np.stack([image for image, _ in pairs]), np.asarray([label for _, label in pairs], np.int64))

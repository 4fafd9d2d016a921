"""Files in which a client keeps its privacy preference: boxes of each image, or one mask for all.

They are in the client's own folder of data sets. No other party reads them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_FORMS = '{"0": [x0, y0, x1, y1], "1": [[x0, y0, x1, y1], ...]} or, in a .csv, lines of image,x0,y0,x1,y1'


def ordered_box(box: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """The box [x0, y0, x1, y1], if it holds a pixel.

    Raises:
        ValueError: its corners are not in order, or below 0.
    """
    x0, y0, x1, y1 = box
    if min(x0, y0) < 0 or x1 <= x0 or y1 <= y0:
        raise ValueError(f"box {list(box)} must have 0 <= x0 < x1 and 0 <= y0 < y1: [left, top, right, bottom]")
    return box


def boxes_in(path: Path) -> dict[str, list[tuple[int, int, int, int]]]:
    """The boxes of a file by image. An image is named by its number, from 0, or by the name of a kind of images.

    A .json is an object with a box or a list of boxes for each image. A .csv has lines image,x0,y0,x1,y1, and may have
    these words as its first line.

    Raises:
        DataError: the file cannot be read, is neither, or has a box whose corners are not in order.
    """
    read = {".json": _json_boxes, ".csv": _csv_boxes}.get(path.suffix.lower())
    if read is None:
        raise DataError(f"boxes file {path} must end in .json or .csv")
    found: dict[str, list[tuple[int, int, int, int]]] = {}
    for place, image, numbers in _parsed(path, read):
        try:
            # bool is an int, and int() would truncate 3.7. Both are mistakes here.
            if not isinstance(numbers, list) or [type(number) for number in numbers] != [int] * 4:
                raise ValueError(f"box {numbers!r} must be four whole numbers [x0, y0, x1, y1]")
            x0, y0, x1, y1 = numbers
            found.setdefault(image, []).append(ordered_box((x0, y0, x1, y1)))
        except ValueError as error:
            raise DataError(f"boxes file {path}, {place}: {error}") from None
    return found


def mask_in(path: Path, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The mask of a .png or .npy file: (H, W), True where it is not 0.

    Raises:
        DataError: the file cannot be read, or has a different size from the images.
    """
    from PIL import Image

    def png(path: Path) -> NDArray[Any]:
        with Image.open(path) as image:
            return np.asarray(image.convert("L"))

    readers: dict[str, Callable[[Path], NDArray[Any]]] = {".png": png, ".npy": lambda path: np.load(path)}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise DataError(f"mask file {path} must end in .png or .npy")
    try:
        mask = np.asarray(read(path))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"mask file {path} cannot be read: {error}; write a grey image or a (H, W) array") from error
    if mask.shape != shape or mask.dtype.kind not in "biuf":
        have = "x".join(map(str, mask.shape[::-1])) or "one number"
        raise DataError(
            f"mask file {path} is {have} of {mask.dtype}, but the images are {shape[1]}x{shape[0]} (width x height); "
            "scale the mask to the images"
        )
    sensitive: NDArray[np.bool_] = mask != 0
    return sensitive


def _json_boxes(path: Path) -> Iterator[tuple[str, str, Any]]:
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise ValueError(f"it holds a {type(content).__name__} where an object of images is needed")
    for image, boxes in content.items():
        several = isinstance(boxes, list) and all(isinstance(box, list) for box in boxes)
        for box in boxes if several else [boxes]:
            yield f"image {image}", image, box


def _csv_boxes(path: Path) -> Iterator[tuple[str, str, Any]]:
    with path.open(encoding="utf-8", newline="") as stream:
        for number, row in enumerate(csv.reader(stream), start=1):
            cells = [cell.strip() for cell in row]
            if not any(cells) or (number == 1 and cells == ["image", "x0", "y0", "x1", "y1"]):
                continue
            numbers = [int(cell) if cell.removeprefix("-").isdecimal() else cell for cell in cells[1:]]
            yield f"line {number}", cells[0], numbers


def _parsed(path: Path, read: Callable[[Path], Iterator[tuple[str, str, Any]]]) -> list[tuple[str, str, Any]]:
    try:
        return list(read(path))
    except (OSError, ValueError, csv.Error, RecursionError) as error:
        raise DataError(f"boxes file {path} does not parse: {error}; write {_FORMS}") from error

"""The folders of document data sets, and how their files are read. Every failure is a `DataError`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import DataError
from fedplug_std.data_folder import data_folder

if TYPE_CHECKING:
    from numpy.typing import NDArray


def folder_of(root: str | None, inside: str, what: str) -> Path:
    """A folder inside the folder of data sets.

    Args:
        root: named by the user; None takes the environment variable FEDPLUG_DATA.
        inside: relative to that folder; an absolute path needs none.
        what: for the error: what is missing, its content and where to get it.

    Raises:
        DataError: no folder is named, or it does not exist.
    """
    folder = data_folder(root, inside, instead="fedre.documents")
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; expected {what}; without it, use fedre.documents")
    return folder


def read_image(source: Any, name: str, grayscale: bool = True) -> NDArray[np.uint8]:
    """Reads an image: uint8 (H, W), or (3, H, W) in colour.

    Args:
        source: a path or a binary file.
        name: its name in the error.
        grayscale: one tone per pixel in place of three colours.

    Raises:
        DataError: it is missing or damaged.
    """
    from PIL import Image

    try:
        with Image.open(source) as image:
            pixels = np.asarray(image.convert("L" if grayscale else "RGB"), np.uint8)
    except (OSError, SyntaxError, ValueError) as error:  # PIL raises SyntaxError for some broken PNG files
        raise DataError(f"the image {name} cannot be read: {error}; get it again or remove its entry") from error
    return pixels if grayscale else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def scaled(pixels: NDArray[np.uint8], scale: float, smooth: bool = True) -> NDArray[np.uint8]:
    """An image (H, W) or (3, H, W) made larger or smaller. Use `smooth=False` for masks, which must not be mixed."""
    if scale == 1:
        return pixels
    from PIL import Image

    how = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
    size = tuple(max(1, round(n * scale)) for n in reversed(pixels.shape[-2:]))
    if pixels.ndim == 2:
        return np.asarray(Image.fromarray(pixels).resize(size, how))
    return np.stack([np.asarray(Image.fromarray(channel).resize(size, how)) for channel in pixels])

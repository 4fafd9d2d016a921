"""Pictures as pixels: one way from a file, an image in memory or an array to channels, for every source of images.

What a picture holds arrives whole, or is refused by the picture's name: 16 bits and floats keep their depth, content
behind transparency shows on a background, a camera's orientation is applied, and nobody guesses which of several frames
is meant.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.errors import DataError

from fedplug_std.torchvision_import import torchvision

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

_DICOM = (".dcm", ".dicom", ".dic")
_NOTES = {
    ".txt", ".md", ".rst", ".csv", ".tsv", ".json", ".xml", ".html", ".yaml", ".yml", ".toml", ".ini", ".log", ".py",
    ".sha256", ".md5",
}  # fmt: skip
"""Endings of files that may lie among images."""
_NO_DATA = {"thumbs.db", "desktop.ini", "__macosx", "__pycache__", "@eadir", "dicomdir", "license", "licence", "readme"}
_PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}
_ORIENTATION = 0x0112
_SIXTEEN = 65535
_REPLACE = "replace it, or take it out"


@dataclasses.dataclass(frozen=True)
class Reader:
    """How pictures become pixels.

    Attributes:
        size: width and height; the shorter side is scaled, the rest cut off. None: unchanged.
        colours: 1 or 3 channels; None: as the picture has them.
        span: the values of black and of white, in pictures of more than 8 bits; None: as their type says.
        background: what transparent pixels show.
    """

    size: int | None = None
    colours: int | None = None
    span: tuple[float, float] | None = None
    background: str = "white"

    def file(self, path: str | Path) -> NDArray[Any]:
        """The pixels of a file: uint8 (C, H, W), or float32 from 0 to 1 where it has more than 8 bits.

        Raises:
            DataError: names the file, why it has no right pixels, and the remedy.
        """
        from PIL import Image

        with _naming(path):
            if is_dicom(Path(path)):
                return self._dicom(Path(path))
            # By its name, Pillow maps it into memory, and mixes up the lines of a TIFF that is turned.
            with Path(path).open("rb") as file, Image.open(file) as image:
                return self._image(image, str(path))

    def image(self, given: Any, name: str) -> NDArray[Any]:
        """The same of an image in memory: of Pillow, or an array (H, W), (H, W, C) or (C, H, W)."""
        from PIL import Image

        with _naming(name):
            if isinstance(given, Image.Image):
                return self._image(given, name)
            if given is None:
                raise DataError(f"the image {name} is missing; leave such rows out")
            array = np.asarray(given)
            if array.dtype.kind not in "fiub" or array.ndim not in (2, 3):
                raise DataError(f"the image {name} is a {type(given).__name__}, which is no image; name images")
            if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
                array = array.transpose(1, 2, 0)
            if array.ndim == 3 and array.shape[2] == 1:
                array = array[:, :, 0]
            if array.dtype == np.uint8:
                return self._image(Image.fromarray(np.ascontiguousarray(array)), name)
            if array.dtype.kind == "b":
                return self._image(Image.fromarray(array.astype(np.uint8) * 255), name)
            if array.ndim == 3:
                raise DataError(f"the image {name} is {array.dtype} in colour, and must be uint8; convert it")
            return self._deep(array, (0, np.iinfo(array.dtype).max) if array.dtype == np.uint16 else None, name)

    def _image(self, image: Image, name: str) -> NDArray[Any]:
        from PIL import ImageOps

        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format != "MPO":  # a telephone's MPO is a picture and a preview
            raise DataError(
                f"the image {name} has {frames} frames or pages, and an example is one picture; write each that counts "
                "to a file"
            )
        encoded = _encoding(image)
        image.load()
        if image.getexif().get(_ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
        if image.mode == "F" or image.mode.startswith("I"):
            return self._deep(np.asarray(image), _range_of(image, encoded), name)
        if image.has_transparency_data:
            image = self._opaque(image, name)
        plain = self.colours == 1 or (self.colours is None and image.mode in ("L", "1"))
        image = image.convert("L" if plain else "RGB")
        if ";16" in encoded and self.span:
            raise DataError(
                f"the image {name} has colours of 16 bits, of which the upper 8 are read, so that pixel_range cannot "
                "apply; save it with 8 bits"
            )
        array = np.asarray(self._square(image), np.uint8)
        return array[None] if array.ndim == 2 else np.ascontiguousarray(array.transpose(2, 0, 1))

    def _deep(self, values: NDArray[Any], known: tuple[float, float] | None, name: str) -> NDArray[np.float32]:
        """One channel of more than 8 bits, as float32 from 0 to 1."""
        from PIL import Image

        values = values.astype(np.float32)
        if not np.isfinite(values).all():
            raise DataError(f"the image {name} holds values that are not numbers; {_REPLACE}")
        low, high = float(values.min()), float(values.max())
        if known is None and self.span is None and values.size and (low < 0 or high > 1):
            raise DataError(
                f"the image {name} has values from {low:g} to {high:g}, and nothing says which are black and white; "
                "write pixel_range: [BLACK, WHITE] in data"
            )
        black, white = self.span or known or (0.0, 1.0)
        values = np.clip((values - black) / (white - black), 0, 1)
        array = np.asarray(self._square(Image.fromarray(values)), np.float32)
        return np.repeat(array[None], self.colours or 1, axis=0)

    def _opaque(self, image: Image, name: str) -> Image:
        """The picture on its background."""
        from PIL import Image as images

        layered = image.convert("RGBA")
        alpha: Any = layered.getchannel("A").getextrema()
        if alpha == (255, 255):
            return image.convert("L" if image.mode in ("L", "LA", "La") else "RGB")
        flat = images.new("RGBA", image.size, self.background)
        flat.alpha_composite(layered)
        seen = flat.convert("RGB")
        if _shows(layered) and not _shows(seen):
            other = "black" if self.background == "white" else "white"
            raise DataError(
                f"the image {name} is all {self.background} on a {self.background} background: what it shows is in its "
                f"transparency; write background: {other} in data, or save it without transparency"
            )
        return seen.convert("L") if image.mode in ("L", "LA", "La") else seen

    def _square(self, image: Image) -> Image:
        if self.size is None:
            return image
        made: Image = _square(self.size)(image)
        return made

    def _dicom(self, path: Path) -> NDArray[Any]:
        try:
            import pydicom

            pixels: Any = importlib.import_module("pydicom.pixels")
        except ImportError as error:
            raise DataError(
                f"the image {path} is DICOM, which pydicom reads; pip install 'fedplug-std[dicom]', or convert it to "
                "PNG"
            ) from error
        from PIL import Image

        read = pydicom.dcmread(path)
        if int(read.get("NumberOfFrames", 1) or 1) > 1:
            raise DataError(
                f"the image {path} has {read.NumberOfFrames} frames, and an example is one picture; write each that "
                "counts to a file"
            )
        values = pixels.pixel_array(read)
        kind = str(read.PhotometricInterpretation)
        if kind == "PALETTE COLOR":
            values = pixels.apply_color_lut(values, read)
            values = (values >> 8).astype(np.uint8) if values.dtype == np.uint16 else values
        if values.ndim == 3:
            if values.dtype != np.uint8:
                raise DataError(f"the image {path} is {values.dtype} in colour, and must have 8 bits; convert it")
            return self._image(Image.fromarray(values), str(path))
        bits, signed = int(read.BitsStored), bool(read.get("PixelRepresentation", 0))
        stored = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if "ModalityLUTSequence" in read:
            values, known = pixels.apply_modality_lut(values, read), None
        else:  # Hounsfield units of a CT, for instance
            slope, intercept = (float(read.get(name, other)) for name, other in (
                ("RescaleSlope", 1), ("RescaleIntercept", 0)))  # fmt: skip
            values = values * slope + intercept
            first, last = (slope * value + intercept for value in stored)
            known = (min(first, last), max(first, last))
        made = self._deep(values, known, str(path))
        return 1 - made if kind == "MONOCHROME1" else made


def _shows(image: Image) -> bool:
    """Whether not all pixels are equal."""
    ranges: Any = image.getextrema()
    return any(low != high for low, high in ranges)


class _naming:
    """Turns whatever a reader of pictures raises into a DataError that names the picture."""

    def __init__(self, name: str | Path) -> None:
        self._name = name

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, DataError | MemoryError):
            why = " ".join(str(error).split()) or type(error).__name__
            raise DataError(f"the image {self._name} cannot be read: {why}; {_REPLACE}") from error


def _encoding(image: Image) -> str:
    """How a file stores a pixel, in Pillow's words; empty for an image in memory."""
    tiles: Any = getattr(image, "tile", None) or [[None, None, None, ""]]
    said = tiles[0][3]
    return str(said[0] if isinstance(said, tuple) else said)


def _range_of(image: Image, encoded: str) -> tuple[float, float] | None:
    """The values of black and white that a type of more than 8 bits has; None where it has none."""
    if encoded.startswith("I;12"):
        return 0, 4095
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return 0, _SIXTEEN
    return None


def _square(size: int) -> Any:
    transforms = torchvision().transforms
    return transforms.Compose([transforms.Resize(size), transforms.CenterCrop(size)])


def is_dicom(path: Path) -> bool:
    """Whether a file is DICOM, by its ending, or where it has none by its first bytes."""
    if path.suffix.lower() in _DICOM:
        return True
    if path.suffix.strip(".").isalpha():  # 1.2.840.113619 has none either
        return False
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def stacked(pixels: Iterable[NDArray[Any]], place: str, shape: tuple[int, ...] = ()) -> NDArray[Any]:
    """Pictures of one size, (n, C, H, W): uint8, or float32 from 0 to 1 where any of them has more than 8 bits.

    Args:
        pixels: of each picture.
        place: for the message.
        shape: of one, where there may be none.

    Raises:
        DataError: they are not of one size and colour, or there are none.
    """
    made = list(pixels)
    for number, each in enumerate(made, 1):
        if each.shape != made[0].shape:
            sizes = " and ".join("x".join(map(str, one.shape)) for one in (made[0], each))
            raise DataError(
                f"{place}: image {number} is of another size or colour than the first ({sizes}); make them alike with "
                "image_size: 64, and grayscale: true if some have no colour"
            )
    if not made:
        if shape:
            return np.empty((0, *shape), np.uint8)
        raise DataError(f"{place} has no images; put some there")
    if len({each.dtype for each in made}) > 1:
        made = [each.astype(np.float32) / 255 if each.dtype == np.uint8 else each for each in made]
    return np.ascontiguousarray(np.stack(made))


# -- folders of pictures -----------------------------------------------------------------------------------------------


def folders(place: Path) -> list[str]:
    """The class folders in a folder, sorted. Hidden ones, and those that systems put there, are none."""
    return sorted(entry.name for entry in os.scandir(place) if entry.is_dir() and not _is_hidden(entry.name))


def part_of(place: Path, *names: str) -> Path | None:
    """The folder of training or test images in a folder, in upper or lower case; None where there is none."""
    found = {name.lower(): place / name for name in reversed(folders(place))}
    return next((found[name] for name in names if name in found), None)


def of_classes(place: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """The pictures in a folder of class folders, each with the place of its class, and the classes.

    A class folder may be empty: a site may have nobody with a disease.

    Raises:
        DataError: there are no class folders, or a file is no image that can be read here.
    """
    from PIL import Image

    names, known = tuple(folders(place)), Image.registered_extensions()
    if not names:
        raise DataError(f"{place} has no class folder; put images there, in one folder for each class")
    if {name.lower() for name in names} <= _PARTS:
        raise DataError(
            f"{place} has the folders {' and '.join(names)}, which are parts of a data set and no classes; name the "
            "one for training train and the other test, each with one folder for each class"
        )
    found: list[tuple[Path, int]] = []
    for path in sorted(entry for entry in place.iterdir() if entry.is_file() and not _is_hidden(entry.name)):
        if path.suffix.lower() in known or is_dicom(path):
            raise DataError(f"the image {path} is in no class folder; move it into one, or take it away")
    for label, name in enumerate(names):
        for path in _files(place / name):
            if path.suffix.lower() in known or is_dicom(path):
                found.append((path, label))
            elif path.suffix.lower() not in _NOTES:
                raise DataError(f"the file {path} is no image that can be read here; convert it to PNG, or take it out")
    if not found:
        raise DataError(f"{place} has the class folders {', '.join(names)}, and no image in any; put some there")
    return found, names


def _files(place: Path) -> Iterator[Path]:
    """Visible files in a folder, in the order in which torchvision has them."""
    for where, _, names in sorted(os.walk(place, followlinks=True)):
        if any(map(_is_hidden, Path(where).relative_to(place).parts)):
            continue
        yield from (Path(where) / name for name in sorted(names) if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or Path(name).name.lower() in _NO_DATA

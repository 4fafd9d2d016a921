"""The data sets of FedRE's experiments, T-SROIE and DocTamper, read from folders as published by their authors.

Neither may be redistributed, so nothing is fetched. Crops of their images are drawn from a seed, because whole pages
are too large for a small model. Labels say whether a crop shows tampering: neither set names formats of documents.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import fedplug
import numpy as np
from fedplug import Declares, Field
from fedplug.api.errors import DataError, SetupError
from fedplug.api.streams import stream

from fedplug_fedre import _crops, _files
from fedplug_fedre.tampering import CLASSES, TextBox

if TYPE_CHECKING:
    from fedplug import Dataset
    from fedplug.api.data import Examples
    from numpy.typing import NDArray

Picture: TypeAlias = "tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]"
"""An image (C, H, W), its mask (H, W) of 0 and 1, its regions (H, W)."""

_T_SROIE = (
    "T-SROIE as published: sroie_train_1011.json, sroie_test_1011.json and the folders train and test with the images; "
    "Wang et al. give it out at github.com/wangyuxin87/Tampered_sroie"
)
_DOCTAMPER = (
    "DocTamper as published: DocTamperV1-TrainingSet, DocTamperV1-TestingSet, DocTamperV1-FCD and DocTamperV1-SCD, "
    "each with a data.mdb; Qu et al. give it out on request at github.com/qcf-568/DocTamper"
)
_TAMPERED = 2  # category_id of tampered text in T-SROIE; every other annotation is original text


class _Crops(fedplug.Options):
    train_count: int = Field(2000, ge=1, description="training crops to take, at random by the seed")
    test_count: int = Field(500, ge=1, description="test crops to take")
    size: int = Field(128, ge=32, le=1024, description="width and height of a crop, in pixels")
    scale: float = Field(1.0, gt=0, le=4, description="images are scaled by this before they are cut")
    around_tampering: float = Field(
        0.8, ge=0, le=1, description="share of crops around tampered text; the others are around any text, or anywhere"
    )
    seed: int = Field(0, ge=0, description="seed of the crops, separate from the recipe's")


class TSroie(fedplug.DataSource):
    """T-SROIE: receipts of SROIE with text that a model has edited, 626 + 360 images (Wang et al. 2022).

    "Tampered text detection via RGB and frequency relationship modeling", Chinese Journal of Network and Information
    Security 8(3). The annotations are polygons around text, tampered or not; both are the sensitive region `text`.
    """

    class Options(_Crops):
        """Where the data set is and what to take from it."""

        path: str = Field("T-SROIE", description="the folder, absolute or inside the data folder")

    @property
    def declares(self) -> Declares:
        """Gray crops of the chosen size, untouched or tampered with."""
        size = self.options.size
        return Declares(shape=(1, size, size), num_classes=len(CLASSES), per="pixel")

    def load(self, root: str | None) -> Dataset:
        """Reads as many images as crops are needed.

        Raises:
            DataError: the folder is missing or damaged, or marks no tampered text.
        """
        folder = _files.folder_of(root, self.options.path, _T_SROIE)
        parts = {split: _annotations(folder, split) for split in ("train", "test")}

        def picture(split: str, index: int) -> Picture:
            name, polygons = parts[split][index]
            pixels = _files.read_image(folder / split / name, f"{split}/{name}")
            mask = drawn(pixels.shape, (points for category, points in polygons if category == _TAMPERED))
            return pixels[None], mask, drawn(pixels.shape, (points for _, points in polygons))

        sizes = {split: len(part) for split, part in parts.items()}
        return _dataset(self.options, sizes, picture, "fedre.t_sroie", ("text",), channels=1)


class DocTamper(fedplug.DataSource):
    """DocTamper: 170,000 document images, 512x512, with copy-moved, spliced and generated text (Qu et al., CVPR 2023).

    Training and test images are LMDB databases, which need the package lmdb. They come without text boxes, so the data
    marks no sensitive region. Instead, a preference of the client (`fedre.psi`) names boxes.
    """

    class Options(_Crops):
        """Where the data set is and what to take from it."""

        path: str = Field("DocTamper", description="the folder, absolute or inside the data folder")
        test_set: Literal["TestingSet", "FCD", "SCD"] = Field(
            "TestingSet", description="the published test set, or one of the two from other sources"
        )
        grayscale: bool = Field(True, description="one channel in place of three")

    @property
    def declares(self) -> Declares:
        """Crops of the chosen size and colours, untouched or tampered with."""
        chosen = self.options
        channels = 1 if chosen.grayscale else 3
        return Declares(shape=(channels, chosen.size, chosen.size), num_classes=len(CLASSES), per="pixel")

    def load(self, root: str | None) -> Dataset:
        """Reads as many images as crops are needed.

        Raises:
            DataError: the folder is missing or damaged, or an image has no mask.
            SetupError: the package lmdb is missing.
        """
        chosen = self.options
        folder = _files.folder_of(root, chosen.path, _DOCTAMPER)
        names = {"train": "DocTamperV1-TrainingSet", "test": f"DocTamperV1-{chosen.test_set}"}
        opened = {split: _Lmdb(folder / name) for split, name in names.items()}

        def picture(split: str, index: int) -> Picture:
            data = opened[split]
            pixels = _files.read_image(io.BytesIO(data.get(f"image-{index:09d}")), data.named(index), chosen.grayscale)
            label = data.get(f"label-{index:09d}")
            mask = (_files.read_image(io.BytesIO(label), f"{data.named(index)} (mask)") > 0).astype(np.uint8)
            if mask.shape != pixels.shape[-2:]:
                raise DataError(
                    f"image {data.named(index)} is {pixels.shape[-1]}x{pixels.shape[-2]}, its mask {mask.shape[1]}x"
                    f"{mask.shape[0]}; they must be alike: get it again"
                )
            return pixels[None] if chosen.grayscale else pixels, mask, np.zeros_like(mask)

        try:
            sizes = {split: data.size for split, data in opened.items()}
            return _dataset(chosen, sizes, picture, "fedre.doctamper", (), channels=1 if chosen.grayscale else 3)
        finally:
            for data in opened.values():
                data.close()


class _Lmdb:
    """One published database: `num-samples`, and for each sample `image-%09d` and `label-%09d`, encoded images."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "data.mdb").is_file():
            missing = folder / "data.mdb"
            raise DataError(f"there is no {missing}; expected {_DOCTAMPER}; without it, use fedre.documents")
        try:
            import lmdb
        except ImportError as error:
            raise SetupError("fedre.doctamper reads LMDB databases; for those: pip install lmdb") from error
        self.folder, self._errors = folder, lmdb.Error
        try:
            self._environment = lmdb.open(str(folder), readonly=True, lock=False, readahead=False, meminit=False)
        except lmdb.Error as error:
            raise DataError(f"{folder} cannot be read: {error}; get it again") from error
        count = self.get("num-samples")
        if not count.isdigit() or not int(count):
            raise DataError(f"num-samples in {folder} is {count!r}, but must be a number above 0; get it again")
        self.size = int(count)

    def get(self, key: str) -> bytes:
        """The value of a key.

        Raises:
            DataError: the key is missing, or the database is damaged.
        """
        try:
            with self._environment.begin(write=False) as transaction:
                value = transaction.get(key.encode())
        except self._errors as error:
            raise DataError(f"{self.folder} cannot be read: {error}; get it again") from error
        if value is None:
            raise DataError(
                f"{self.folder} has no {key}; every image of a tamper-detection set needs a mask: expected {_DOCTAMPER}"
            )
        return bytes(value)

    def named(self, index: int) -> str:
        """The name of one of its images in messages."""
        return f"{self.folder.name} number {index}"

    def close(self) -> None:
        self._environment.close()


def _annotations(folder: Path, split: str) -> list[tuple[str, list[tuple[int, NDArray[np.float64]]]]]:
    """For each image of a split its file name, and its polygons with their categories.

    Raises:
        DataError: the file is missing or not as published, or it marks no tampered text.
    """
    file = folder / f"sroie_{split}_1011.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        images = {entry["id"]: (str(entry["file_name"]), []) for entry in content["images"]}  # type: ignore[var-annotated]
        for entry in content["annotations"]:
            points = np.array(entry["segmentation"], np.float64).reshape(4, 2)
            images[entry["image_id"]][1].append((int(entry["category_id"]), points))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}; expected {_T_SROIE}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file} is not as published ({error!r}); expected {_T_SROIE}") from error
    found = list(images.values())
    if not any(category == _TAMPERED for _, polygons in found for category, _ in polygons):
        raise DataError(
            f"{file} marks no tampered text (category_id {_TAMPERED}) in {len(found)} images; SROIE itself has no "
            "masks: for real receipts with generated tampering use fedre.receipts"
        )
    return found


def drawn(shape: tuple[int, ...], polygons: Iterable[NDArray[np.float64]]) -> NDArray[np.uint8]:
    """1 inside any of the polygons (points (x, y), (k, 2)) and 0 outside, uint8 (H, W)."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (shape[1], shape[0]), 0)
    for points in polygons:
        ImageDraw.Draw(canvas).polygon([(float(x), float(y)) for x, y in points], fill=1)
    return np.asarray(canvas)


def _dataset(
    chosen: _Crops,
    sizes: dict[str, int],
    picture: Callable[[str, int], Picture],
    name: str,
    region_names: tuple[str, ...],
    channels: int,
) -> Dataset:
    """Crops of randomly chosen images of each split, all images equally often."""
    from fedplug.api.data import Dataset, Examples

    def examples(split: str, count: int) -> Examples:
        turns, made = stream(chosen.seed, name, split, "order"), []
        order = np.concatenate([turns.permutation(sizes[split]) for _ in range(-(-count // sizes[split]))])[:count]
        for number, index in enumerate(order):
            rng = stream(chosen.seed, name, split, number)
            made.append(_cropped(picture(split, int(index)), chosen, rng))
        inputs, masks, regions = (np.stack([parts[place] for parts in made]) for place in range(3))
        tampered = np.array([mask.any() for mask in masks], np.int64)
        return Examples(inputs, tampered, targets=masks, regions=regions if region_names else None)

    return Dataset(
        train=examples("train", chosen.train_count),
        test=examples("test", chosen.test_count),
        classes=CLASSES,
        mean=(0.85,) * channels,
        std=(0.25,) * channels,
        kinds=CLASSES,
        region_names=region_names,
    )


def _cropped(picture: Picture, chosen: _Crops, rng: np.random.Generator) -> Picture:
    """One crop: around tampered text, around text, or anywhere."""
    image, mask, regions = (_files.scaled(part, chosen.scale, smooth=not place) for place, part in enumerate(picture))
    wanted = mask if mask.any() and rng.random() < chosen.around_tampering else regions
    spots = np.flatnonzero(wanted)
    spot = int(spots[int(rng.integers(len(spots)))]) if len(spots) else int(rng.integers(mask.size))
    y, x = np.unravel_index(spot, mask.shape)
    box = TextBox(int(x), int(y), int(x) + 1, int(y) + 1, 0)
    place = _crops.around([box], mask.shape, chosen.size, rng)
    return (
        _crops.cut(image, place, chosen.size, fill=255),
        _crops.cut(mask, place, chosen.size, fill=0),
        _crops.cut(regions, place, chosen.size, fill=0),
    )

"""PneumoniaMNIST, from the one file in which MedMNIST publishes it."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug import Dataset, Declares, Examples
from fedplug.api.errors import DataError

from fedplug_std.datasets import Images
from fedplug_std.options import ImageOptions

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = ("normal", "pneumonia")


class PneumoniaMnist(Images):
    """PneumoniaMNIST: 4,708 + 624 chest X-rays of children, 28x28 gray, normal or pneumonia (MedMNIST v2).

    Yang et al. 2023, from Kermany et al. 2018. The validation images (524) are left out, because nothing here is tuned
    on them. Three of four training images show pneumonia, five of eight test images.
    """

    _pixels = Declares(shape=(1, 28, 28), num_classes=len(CLASSES))

    class Options(ImageOptions):
        """The number of examples."""

    def load(self, root: str | None) -> Dataset:
        """Reads `pneumoniamnist.npz`, in the data folder or in its folder `pneumoniamnist`.

        Raises:
            DataError: missing or damaged.
        """
        from fedplug_std import _dataset_files as files

        folder = files.data_folder(root)
        places = [folder / "pneumoniamnist" / "pneumoniamnist.npz", folder / "pneumoniamnist.npz"]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise DataError(f"PneumoniaMNIST is neither {places[0]} nor {places[1]}; get it from medmnist.com")
        train, test = (_split(path, split) for split in ("train", "test"))
        # Of all training images, as published.
        return files.dataset(train, test, self.options, CLASSES, (0.5719,), (0.1684,))


def _split(path: Path, split: str) -> Examples:
    try:
        with np.load(path, allow_pickle=False) as stored:
            images, labels = (np.asarray(stored[f"{split}_{what}"]) for what in ("images", "labels"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"PneumoniaMNIST in {path} cannot be read: {error}; fetch it again") from error
    return _examples(images, labels, path)


def _examples(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], path: Path) -> Examples:
    fits = images.dtype == np.uint8 and images.ndim == 3 and labels.shape in (images.shape[:1], (len(images), 1))
    if not fits:
        raise DataError(
            f"PneumoniaMNIST in {path} has images {images.dtype}{images.shape} and labels {labels.shape}, which are "
            "not 8-bit images with a label each; fetch it again"
        )
    return Examples(images[:, None], labels.reshape(-1).astype(np.int64))

"""PneumoniaMNIST, from the one file in which MedMNIST publishes it."""

from __future__ import annotations

from typing import Any

from fedplug import Declares
from fedplug.api.errors import DataError

from fedplug_std import arrays
from fedplug_std.data_folder import data_folder
from fedplug_std.datasets import Images, Known

CLASSES = ("normal", "pneumonia")


class PneumoniaMnist(Known, Images):
    """PneumoniaMNIST: 4,708 + 624 chest X-rays of children, 28x28 gray, normal or pneumonia (MedMNIST v2).

    Yang et al. 2023, from Kermany et al. 2018. The validation images (524) are left out, because nothing here is tuned
    on them. Three of four training images show pneumonia, five of eight test images.
    """

    _pixels = Declares(shape=(1, 28, 28), num_classes=len(CLASSES))
    _names = CLASSES
    _constants = (0.5719,), (0.1684,)  # of all training images, as published

    def _read(self, files: Any, root: str | None) -> Any:
        """Reads `pneumoniamnist.npz`, in the data folder or in its folder `pneumoniamnist`."""
        folder = data_folder(root)
        places = [folder / "pneumoniamnist" / "pneumoniamnist.npz", folder / "pneumoniamnist.npz"]
        path = next((place for place in places if place.is_file()), None)
        if path is None:
            raise DataError(f"PneumoniaMNIST is neither {places[0]} nor {places[1]}; get it from medmnist.com")
        stored = arrays.read(path, "fetch it again")
        return arrays.two_of(stored, path)

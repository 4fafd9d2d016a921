"""Loading a data set, and files of the right format."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.data import Dataset
from PIL import Image

RNG = np.random.default_rng(0)


def load(component: Any, root: str | Path | None = None, **options: Any) -> Dataset:
    dataset = component(component.Options(**options)).load(None if root is None else str(root))
    assert isinstance(dataset, Dataset)
    for part in (dataset.train, dataset.test):
        assert part.inputs.dtype == np.uint8
        assert part.labels.dtype == np.int64
        assert part.inputs.ndim == 4
        assert len(part.inputs) == len(part.labels)
    assert len(dataset.mean) == len(dataset.std) == dataset.shape[0]
    return dataset


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def pixels(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 256, shape, np.uint8)


def fake_mnist(root: Path, suffix: str = ".gz", folder: str = "MNIST") -> dict[str, np.ndarray[Any, Any]]:
    raw = root / folder / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    arrays = {
        "train-images-idx3": pixels(12, 28, 28),
        "train-labels-idx1": np.arange(12, dtype=np.uint8) % 10,
        "t10k-images-idx3": pixels(4, 28, 28),
        "t10k-labels-idx1": np.arange(4, dtype=np.uint8),
    }
    for stem, values in arrays.items():
        write_idx(raw / f"{stem}-ubyte{suffix}", values)
    return arrays


def write_idx(path: Path, values: np.ndarray[Any, Any]) -> None:
    content = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def save_image(path: Path, height: int, width: int, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((height, width, 3), colour, np.uint8)).save(path, quality=95)


def image_tree(root: Path, classes: dict[str, int]) -> None:
    for number, (name, count) in enumerate(classes.items()):
        for index in range(count):
            save_image(root / name / f"{index}.png", 12, 12, (number * 50, index, 7))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])

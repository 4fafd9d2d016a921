"""PneumoniaMNIST: the file where it is, a small one of the same format elsewhere, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Dataset
from fedplug.api.errors import DataError
from fedplug_kit.static import check_component
from fedplug_std.medmnist import PneumoniaMnist

RNG = np.random.default_rng(0)


def write(folder: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {}
    for split, count in (("train", 12), ("val", 3), ("test", 5)):
        arrays[f"{split}_images"] = RNG.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[f"{split}_labels"] = np.arange(count, dtype=np.uint8)[:, None] % 2
    arrays = {name: value for name, value in (arrays | changes).items() if value is not None}
    folder.mkdir(exist_ok=True)
    np.savez(folder / "pneumoniamnist.npz", **arrays)
    return folder


def load(root: Path | str, **options: Any) -> Dataset:
    return PneumoniaMnist(PneumoniaMnist.Options(**options)).load(str(root))


def test_conforms() -> None:
    check_component("std.pneumonia_mnist")


@pytest.mark.parametrize("inside", ["", "pneumoniamnist"])
def test_reads_its_file(tmp_path: Path, inside: str) -> None:
    write(tmp_path / inside)
    dataset = load(tmp_path)
    assert dataset.shape == (1, 28, 28)
    assert (len(dataset.train), len(dataset.test), dataset.classes) == (12, 5, ("normal", "pneumonia"))
    assert dataset.train.labels.tolist() == [0, 1] * 6
    assert dataset.train.inputs.dtype == np.uint8
    assert dataset.train.labels.dtype == np.int64
    assert len(load(tmp_path, train_size=4).train) == 4


def test_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"PneumoniaMNIST is neither .*pneumoniamnist\.npz"):
        load(tmp_path)
    write(tmp_path, test_labels=None)
    with pytest.raises(DataError, match="test_labels"):
        load(tmp_path)
    write(tmp_path, train_labels=np.zeros((3, 1), np.uint8))
    with pytest.raises(DataError, match=r"train_labels is uint8 \(3,\), but must be a class for each of 12 examples"):
        load(tmp_path)
    (tmp_path / "pneumoniamnist.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(DataError, match="cannot be read"):
        load(tmp_path)


@pytest.mark.data
def test_the_published_split(data_root: str) -> None:
    dataset = load(data_root)
    assert (len(dataset.train), len(dataset.test)) == (4708, 624)
    assert np.bincount(dataset.test.labels).tolist() == [234, 390]
    pixels = dataset.train.inputs / 255
    assert pixels.mean() == pytest.approx(dataset.mean[0], abs=1e-4)
    assert pixels.std() == pytest.approx(dataset.std[0], abs=1e-4)

"""Arrays in one file: what is read, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Dataset
from fedplug.api.errors import DataError
from fedplug_kit.static import check_component
from fedplug_std.arrays import Arrays

RNG = np.random.default_rng(0)


def write(folder: Path, **changes: Any) -> Path:
    arrays: dict[str, Any] = {"classes": ["normal", "pneumonia"]}
    for split, count in (("train", 12), ("test", 5)):
        arrays[f"{split}_images"] = RNG.integers(0, 256, (count, 6, 4), np.uint8)
        arrays[f"{split}_labels"] = np.arange(count, dtype=np.uint8)[:, None] % 2
    arrays = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(folder / "data.npz", **arrays)
    return folder


def load(root: Path, **options: Any) -> Dataset:
    return Arrays(Arrays.Options(**options)).load(str(root))


def test_conforms() -> None:
    check_component("std.arrays")


def test_reads_gray_and_colour_images(tmp_path: Path) -> None:
    gray = load(write(tmp_path), mean=0.4, std=0.2, train_size=8)
    assert (gray.shape, gray.classes, gray.mean, gray.std) == ((1, 6, 4), ("normal", "pneumonia"), (0.4,), (0.2,))
    assert (len(gray.train), len(gray.test), gray.test.labels.tolist()) == (8, 5, [0, 1, 0, 1, 0])
    assert (gray.train.inputs.dtype, gray.train.labels.dtype) == (np.uint8, np.int64)
    colour = {f"{split}_images": np.zeros((n, 3, 6, 4), np.float32) for split, n in (("train", 12), ("test", 5))}
    assert load(write(tmp_path, **colour)).mean == (0.5, 0.5, 0.5)


def test_names_of_classes_may_stand_in_the_recipe(tmp_path: Path) -> None:
    write(tmp_path, classes=None)
    with pytest.raises(DataError, match=r"data\.npz has no array classes"):
        load(tmp_path)
    assert load(tmp_path, classes=("well", "ill")).classes == ("well", "ill")
    assert load(write(tmp_path), classes=("well", "ill")).classes == ("normal", "pneumonia")


def test_reads_classes_of_pixels_and_marked_fields(tmp_path: Path) -> None:
    of_pixels = {
        f"{split}_{what}": np.full((count, 6, 4), value, np.uint8)
        for split, count in (("train", 12), ("test", 5)) for what, value in (("targets", 1), ("regions", 2))
    }  # fmt: skip
    found = load(write(tmp_path, kinds=["letter", "bill", "list"], region_names=["name", "address"], **of_pixels))
    assert (found.kinds, found.region_names) == (("letter", "bill", "list"), ("name", "address"))
    assert found.train.answers.shape == (12, 6, 4)
    assert found.test.regions is not None
    assert found.test.regions.max() == 2
    with pytest.raises(DataError, match=r"train_regions is uint8 \(12, 6, 3\), but must be uint8 \(12, 6, 4\)"):
        load(write(tmp_path, train_regions=np.zeros((12, 6, 3), np.uint8)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_labels": None}, r"has no array test_labels; it has classes, test_images"),
        ({"train_labels": np.zeros(3, int)}, r"train_labels is int64 \(3,\), but must be a whole number for each"),
        ({"train_labels": np.zeros(12)}, r"train_labels is float64"),
        ({"train_labels": np.full(12, 7)}, r"training labels are 7 to 7, but must be 0 to 1"),
        ({"test_images": np.zeros((5, 6, 4))}, r"test_images is float64 \(5, 6, 4\), but must be uint8 \(0 to"),
        ({"test_images": np.zeros((5, 24), np.uint8)}, r"test_images is uint8 \(5, 24\).*pictures of one line with"),
        ({"test_images": np.zeros((5, 6, 4))}, r"become float32 with \.astype"),
        ({"classes": [1, 2]}, r"classes is int64 \(2,\), but must be a list of names"),
        ({"classes": np.array(["a", 2], object)}, r"data\.npz cannot be read as \.npz: it holds Python objects"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        load(write(tmp_path, **changes))


def test_says_what_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*data\.npz"):
        load(tmp_path)
    (tmp_path / "data.npz").write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(DataError, match=r"cannot be read as \.npz"):
        load(tmp_path)
    (tmp_path / "data.npz").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"another kind of file; .*my_data\.py:load") as found:
        load(tmp_path)
    assert "allow_pickle" not in str(found.value)
    with (tmp_path / "data.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match="one array without a name"):
        load(tmp_path)


def test_without_a_data_folder_the_file_is_looked_for_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user with one file needs no folder of data sets; with a folder, files elsewhere are never used."""
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    monkeypatch.chdir(write(tmp_path))
    assert len(Arrays(Arrays.Options()).load(None).train) == 12
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"there is no file .*empty"):
        load(empty)
    monkeypatch.setenv("FEDPLUG_DATA", str(empty))
    with pytest.raises(DataError, match=r"there is no file .*empty"):
        Arrays(Arrays.Options()).load(None)

"""Arrays in one file: what is read, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import Dataset
from fedplug.api.errors import DataError
from fedplug_kit.static import check_component
from fedplug_std._intake import plain
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


def test_reads_whose_each_example_is(tmp_path: Path) -> None:
    names = [f"P{number % 5}" for number in range(12)]
    found = load(write(tmp_path, train_users=names))
    assert found.train.users is not None
    assert found.train.users.tolist() == [number % 5 for number in range(12)]
    assert found.train.take(np.array([7, 3])).users.tolist() == [2, 3]  # type: ignore[union-attr]
    assert found.test.users is None
    assert load(write(tmp_path)).train.users is None
    with pytest.raises(DataError, match=r"train_users has shape \[11\], but must name a user for each of 12"):
        load(write(tmp_path, train_users=names[1:]))


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


@pytest.mark.parametrize("kind", [np.uint8, np.int64, ">i2", bool, np.float64, np.float16, ">f4", "F"])
def test_images_of_any_type_are_the_same_pixels(tmp_path: Path, kind: Any) -> None:
    """As a model sees them: in parts of white."""
    pixels = {f"{split}_images": RNG.integers(0, 2, (n, 6, 4)) * 255 for split, n in (("train", 12), ("test", 5))}
    stored = pixels
    if kind == "F":
        stored = {name: np.asfortranarray(array).astype(np.uint8) for name, array in pixels.items()}
    else:
        white = {"b": 255, "f": 255}.get(np.dtype(kind).kind, 1)
        stored = {name: (array / white).astype(kind) for name, array in pixels.items()}
    found = load(write(tmp_path, **stored))
    white = 255 if found.train.inputs.dtype == np.uint8 else 1
    assert found.train.inputs.dtype in (np.uint8, np.float32)
    np.testing.assert_array_equal(found.train.inputs[:, 0] / white, pixels["train_images"] / 255)


@pytest.mark.parametrize(
    ("given", "classes"),
    [
        (np.array([0.0, 1.0, 1.0, 0.0]), ("a", "b")),
        (np.array([False, True, True, False]), ("a", "b")),
        (np.eye(2)[[0, 1, 1, 0]], ("a", "b")),
        (np.array(["a", "b", "b", "a"]), ("a", "b")),
        (np.array([b"a", b"b", b"b", b"a"]), ("a", "b")),
        (np.array([7, 2**40, 2**40, 7]), ("7", str(2**40))),
        (np.array([1, 2, 2, 1], np.int8), ("1", "2")),
        (np.array([-1, 1, 1, -1]), ("-1", "1")),
    ],
)
def test_labels_of_any_form_are_places_of_classes(tmp_path: Path, given: Any, classes: tuple[str, ...]) -> None:
    labels = {"train_labels": np.concatenate([given] * 3), "test_labels": np.concatenate([given, given[:1]])}
    found = load(write(tmp_path, classes=None, **labels), classes=classes)
    assert found.train.labels.tolist() == [0, 1, 1, 0] * 3
    assert found.test.labels.tolist() == [0, 1, 1, 0, 0]
    assert found.train.labels.dtype == np.int64


def test_labels_that_are_places_and_names_of_other_classes_are_a_question(tmp_path: Path) -> None:
    labels = {"train_labels": np.ones(12, int), "test_labels": np.ones(5, int)}
    with pytest.raises(DataError, match=r"test_labels hold 1, which are places from 0 and also names among .* 1, 2, 3"):
        load(write(tmp_path, classes=["1", "2", "3"], **labels))
    assert load(write(tmp_path, classes=["0", "1", "2"], **labels)).train.labels.tolist() == [1] * 12


def test_masks_and_bytes_that_are_no_texts_are_refused() -> None:
    masked = np.ma.masked_array([1.0, -999.0], [False, True])
    with pytest.raises(DataError, match=r"train_inputs has 1 masked values.*\.filled\(VALUE\)"):
        plain(masked, "train_inputs")
    assert plain(np.ma.masked_array([1.0, 2.0]), "train_inputs").tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match="train_labels holds bytes that are no UTF-8"):
        plain(np.array([b"\xfcbel"]), "train_labels")


def test_damage_inside_a_file_names_the_array(tmp_path: Path) -> None:
    write(tmp_path)
    arrays = dict(np.load(tmp_path / "data.npz"))
    np.savez_compressed(tmp_path / "data.npz", **arrays)
    held = bytearray((tmp_path / "data.npz").read_bytes())
    at = held.index(b"train_images.npy") + 60
    held[at : at + 40] = bytes(40)
    (tmp_path / "data.npz").write_bytes(held)
    with pytest.raises(DataError, match=r"data\.npz cannot be read as \.npz: array train_images: "):
        load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_labels": None}, r"has no array test_labels, and no test_targets; it has classes, test_images"),
        ({"train_labels": np.zeros(3, int)}, r"train_labels is int64 \(3,\), but must be a class for each of 12"),
        ({"train_labels": np.full(12, 0.5)}, r"train_labels is float64 and holds 0\.5 for example 0 .* std\.regr"),
        ({"train_labels": np.full(12, np.nan)}, r"train_labels is float64 and holds nan for example 0"),
        ({"train_labels": np.eye(2)[[0] * 11 + [1]] + np.eye(2)[1]}, r"row 0 \(counted from 0\), \[1\.0, 1\.0\], is"),
        ({"train_labels": ["normal"] * 11 + ["Normal"]}, r"holds 'Normal' for example 11 .* classes are normal, pneu"),
        ({"test_images": np.zeros((5, 24), np.uint8)}, r"test_images is uint8 \(5, 24\).* name the arrays train_in"),
        ({"test_images": np.zeros((5, 6, 6, 3))}, r"test_images is float64 .*last axis .*\.transpose\(0, 3, 1, 2\)"),
        ({"test_images": np.zeros((5, 6, 4), complex)}, r"test_images is complex128 .* must be numbers of at most 64"),
        ({"classes": [1, 2]}, r"classes is int64 \(2,\), but must be a list of names"),
        ({"classes": np.array(["a", 2], object)}, r"cannot be read as \.npz: array classes: it holds Python objects"),
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

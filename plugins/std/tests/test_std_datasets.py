"""Data sets: the real files where they are, small files of the right format elsewhere."""

from __future__ import annotations

import math
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_toys import cut, fake_mnist, load, md5, pixels, save_image
from fedplug.api.errors import DataError
from fedplug_std import datasets
from fedplug_std._splits import stratified
from fedplug_std.torchvision_import import torchvision
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from sklearn.model_selection import train_test_split


def test_digits() -> None:
    dataset = load(datasets.Digits)
    assert dataset.shape == (1, 8, 8)
    assert (len(dataset.train), len(dataset.test)) == (1437, 360)
    everything = np.concatenate([dataset.train.inputs, dataset.test.inputs])
    assert (everything.min(), everything.max()) == (0, 255)
    assert len(np.unique(everything)) == 17
    assert (everything / 255).mean() == pytest.approx(dataset.mean[0], abs=1e-4)
    assert (everything / 255).std() == pytest.approx(dataset.std[0], abs=1e-4)
    shares = np.bincount(dataset.test.labels) / (np.bincount(dataset.train.labels) + np.bincount(dataset.test.labels))
    np.testing.assert_allclose(shares, 0.2, atol=0.01)
    again = load(datasets.Digits)
    np.testing.assert_array_equal(dataset.train.inputs, again.train.inputs)
    as_rows = {image.tobytes() for image in dataset.train.inputs}
    assert sum(image.tobytes() in as_rows for image in dataset.test.inputs) == 0, "no image is in both splits"


def test_digits_are_scikit_learns_without_importing_it() -> None:
    """Same images, same split; a process that loads them has not imported scikit-learn."""
    from sklearn.datasets import load_digits

    bunch, dataset = load_digits(), load(datasets.Digits)
    train, _ = train_test_split(np.arange(1797), test_size=0.2, random_state=0, stratify=bunch.target)
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    np.testing.assert_array_equal(dataset.train.inputs, images[np.sort(train)])
    np.testing.assert_array_equal(dataset.train.labels, bunch.target[np.sort(train)])
    code = "import sys; from fedplug_std import _dataset_files as f; f.digits(); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@given(st.lists(st.integers(2, 30), min_size=2, max_size=6), st.floats(0.1, 0.9), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_splits_within_classes_are_scikit_learns(counts: list[int], fraction: float, seed: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    smaller = min(math.ceil(fraction * len(labels)), len(labels) - math.ceil(fraction * len(labels)))
    assume(smaller >= len(counts))
    wanted = train_test_split(np.arange(len(labels)), test_size=fraction, random_state=seed, stratify=labels)
    for ours, theirs in zip(stratified(labels, fraction, seed), wanted, strict=True):
        np.testing.assert_array_equal(np.sort(ours), np.sort(theirs))


def test_a_class_of_one_example_is_not_split() -> None:
    with pytest.raises(ValueError, match="each class needs 2"):
        stratified(np.array([0, 0, 0, 1]), 0.5, 0)


def test_sizes_are_nested_and_fixed() -> None:
    hundred, fifty = (load(datasets.Digits, train_size=n, test_size=20) for n in (100, 50))
    assert (len(hundred.train), len(hundred.test), len(fifty.train)) == (100, 20, 50)
    more = {image.tobytes() for image in hundred.train.inputs}
    assert all(image.tobytes() in more for image in fifty.train.inputs)
    np.testing.assert_array_equal(hundred.test.inputs, fifty.test.inputs)
    assert len(np.unique(hundred.train.labels)) == 10
    with pytest.raises(DataError, match="test_size=361 must be at most 360"):
        load(datasets.Digits, test_size=361)
    with pytest.raises(ValidationError):
        load(datasets.Digits, train_size=0)


@pytest.mark.data
def test_real_mnist(data_root: str) -> None:
    dataset = load(datasets.Mnist, data_root)
    assert dataset.shape == (1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    np.testing.assert_array_equal(np.bincount(dataset.train.labels), counts)
    np.testing.assert_array_equal(
        np.bincount(dataset.test.labels), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    )
    scaled = dataset.train.inputs / np.float32(255)
    assert scaled.mean(dtype=np.float64) == pytest.approx(dataset.mean[0], abs=1e-4)
    assert scaled.std(dtype=np.float64) == pytest.approx(dataset.std[0], abs=1e-4)


@pytest.mark.data
def test_real_fashion_mnist_found_through_the_environment(data_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDPLUG_DATA", data_root)
    dataset = load(datasets.FashionMnist)
    assert np.bincount(dataset.train.labels).tolist() == [6000] * 10
    assert np.bincount(dataset.test.labels).tolist() == [1000] * 10
    assert dataset.classes[9] == "Ankle boot"
    scaled = dataset.train.inputs / np.float32(255)
    assert scaled.mean(dtype=np.float64) == pytest.approx(dataset.mean[0], abs=1e-4)
    assert scaled.std(dtype=np.float64) == pytest.approx(dataset.std[0], abs=1e-4)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(("component", "folder"), [(datasets.Mnist, "MNIST"), (datasets.FashionMnist, "FashionMNIST")])
def test_idx_files_packed_or_not(tmp_path: Path, suffix: str, component: Any, folder: str) -> None:
    arrays = fake_mnist(tmp_path, suffix, folder)
    dataset = load(component, tmp_path)
    np.testing.assert_array_equal(dataset.train.inputs[:, 0], arrays["train-images-idx3"])
    np.testing.assert_array_equal(dataset.test.labels, arrays["t10k-labels-idx1"])


def fake_cifar(root: Path, kind: Any, monkeypatch: pytest.MonkeyPatch, label_key: str, names: list[str]) -> Path:
    """Files of the right format under the right names, and their checksums where torchvision looks for them."""
    folder = root / str(kind.base_folder)
    folder.mkdir()

    def write(name: str, content: Any) -> str:
        (folder / name).write_bytes(pickle.dumps(content))
        return md5(folder / name)

    for listing in ("train_list", "test_list"):
        entries = []
        for name, _ in getattr(kind, listing):
            batch = {"data": pixels(5, 3072), label_key: list(range(5))}
            entries.append([name, write(name, batch)])
        monkeypatch.setattr(kind, listing, entries)
    monkeypatch.setattr(kind, "meta", {**kind.meta, "md5": write(kind.meta["filename"], {kind.meta["key"]: names})})
    return folder


@pytest.mark.parametrize(
    ("component", "name", "label_key", "classes", "batches"),
    [(datasets.Cifar10, "CIFAR10", "labels", 10, 5), (datasets.Cifar100, "CIFAR100", "fine_labels", 100, 1)],
)
def test_cifar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, component: Any, name: str, label_key: str, classes: int,
    batches: int,
) -> None:  # fmt: skip
    with pytest.raises(DataError, match="download: true"):
        load(component, tmp_path)
    kind = getattr(torchvision().datasets, name)
    folder = fake_cifar(tmp_path, kind, monkeypatch, label_key, [f"class {n}" for n in range(classes)])
    dataset = load(component, tmp_path)
    assert dataset.shape == (3, 32, 32)
    assert len(dataset.train) == 5 * batches
    assert len(dataset.classes) == classes
    first = pickle.loads((folder / kind.train_list[0][0]).read_bytes())
    np.testing.assert_array_equal(dataset.train.inputs[:5].reshape(5, -1), first["data"])
    assert dataset.test.labels.tolist() == [0, 1, 2, 3, 4]
    cut(folder / kind.test_list[0][0])
    with pytest.raises(DataError, match="corrupted"):
        load(component, tmp_path)


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.io import savemat  # type: ignore[import-untyped]

    with pytest.raises(DataError, match=r"train_32x32\.mat is missing"):
        load(datasets.Svhn, tmp_path)
    kind = torchvision().datasets.SVHN
    listing = {}
    images = pixels(32, 32, 3, 10)
    for split in ("train", "test"):
        path = tmp_path / f"{split}_32x32.mat"
        savemat(path, {"X": images, "y": np.arange(1, 11)[:, None]})
        listing[split] = ["", path.name, md5(path)]
    monkeypatch.setattr(kind, "split_list", listing)
    dataset = load(datasets.Svhn, tmp_path)
    np.testing.assert_array_equal(dataset.train.inputs, images.transpose(3, 2, 0, 1))
    assert dataset.train.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0], "the file writes 0 as 10"
    cut(tmp_path / "test_32x32.mat")
    with pytest.raises(DataError, match="corrupted"):
        load(datasets.Svhn, tmp_path)


def test_stl10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="stl10_binary is missing"):
        load(datasets.Stl10, tmp_path)
    kind = torchvision().datasets.STL10
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    images = pixels(3, 3, 96, 96)
    for split in ("train", "test"):
        (folder / f"{split}_X.bin").write_bytes(images.tobytes())
        (folder / f"{split}_y.bin").write_bytes(bytes([1, 10, 5]))
    for name in ("train_list", "test_list"):
        present = [[file, md5(folder / file)] for file, _ in getattr(kind, name) if (folder / file).exists()]
        monkeypatch.setattr(kind, name, present)
    dataset = load(datasets.Stl10, tmp_path)
    np.testing.assert_array_equal(dataset.train.inputs, images.transpose(0, 1, 3, 2), "the file is column by column")
    assert dataset.train.labels.tolist() == [0, 9, 4]
    cut(folder / "train_X.bin")
    with pytest.raises(DataError, match="corrupted"):
        load(datasets.Stl10, tmp_path)


def test_imagenette(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="imagenette2-160 is missing"):
        load(datasets.Imagenette, tmp_path)
    for split in ("train", "val"):
        for number, folder in enumerate(("n01440764", "n02102040", "n03888257")):
            save_image(tmp_path / "imagenette2-160" / split / folder / "a.JPEG", 20, 30, (number * 100, 0, 0))
    dataset = load(datasets.Imagenette, tmp_path, image_size=16)
    assert dataset.shape == (3, 16, 16)
    assert dataset.classes == ("tench", "English springer", "parachute")
    np.testing.assert_allclose(dataset.train.inputs.mean((2, 3))[:, 0], [0, 100, 200], atol=3)
    with pytest.raises(DataError, match="imagenette2-320 is missing"):
        load(datasets.Imagenette, tmp_path, source="320px")
    (tmp_path / "imagenette2-160" / "val" / "n01440764" / "a.JPEG").write_bytes(b"\xff\xd8 no image")
    with pytest.raises(DataError, match=r"a\.JPEG cannot be read"):
        load(datasets.Imagenette, tmp_path, image_size=16)

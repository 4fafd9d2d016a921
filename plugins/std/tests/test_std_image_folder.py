"""Folders of images: a class each, with a test folder or split at random."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dataset_toys import cut, image_tree, load
from fedplug.api.errors import DataError
from fedplug_std import datasets
from PIL import Image
from pydantic import ValidationError


@pytest.mark.data
def test_real_chest_x_rays_as_image_folder(data_root: str) -> None:
    dataset = load(datasets.ImageFolder, data_root, path="chest_xray_128", image_size=32, grayscale=True)
    assert dataset.shape == (1, 32, 32)
    assert dataset.classes == ("BACTERIA", "NORMAL", "VIRUS")
    assert np.bincount(dataset.train.labels).tolist() == [250] * 3
    assert np.bincount(dataset.test.labels).tolist() == [75] * 3
    assert 0.4 < (dataset.train.inputs / 255).mean() < 0.6


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_image_folder_with_a_test_folder(tmp_path: Path, test_name: str) -> None:
    image_tree(tmp_path / "mine" / "train", {"cat": 3, "dog": 2})
    image_tree(tmp_path / "mine" / test_name, {"cat": 1, "dog": 1})
    dataset = load(datasets.ImageFolder, tmp_path, path="mine", image_size=12)
    assert dataset.classes == ("cat", "dog")
    assert dataset.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert dataset.train.inputs[:, :, 0, 0].tolist() == [[0, 0, 7], [0, 1, 7], [0, 2, 7], [50, 0, 7], [50, 1, 7]]
    grey = load(datasets.ImageFolder, None, path=str(tmp_path / "mine"), image_size=8, grayscale=True, mean=0.1)
    assert grey.shape == (1, 8, 8)
    assert (grey.mean, grey.std) == ((0.1,), (0.25,))
    (tmp_path / "mine" / test_name / "dog").rename(tmp_path / "mine" / test_name / "fox")
    with pytest.raises(DataError, match="they must agree"):
        load(datasets.ImageFolder, tmp_path, path="mine")


@pytest.mark.parametrize("below", ["", "train"])
def test_image_folder_split_at_random_within_classes(tmp_path: Path, below: str) -> None:
    image_tree(tmp_path / "mine" / below, {"cat": 10, "dog": 20})
    options = {"path": "mine", "image_size": 12, "test_fraction": 0.3}
    dataset, again, other = (load(datasets.ImageFolder, tmp_path, **options, split_seed=seed) for seed in (0, 0, 1))
    assert dataset.classes == ("cat", "dog")
    assert np.bincount(dataset.test.labels).tolist() == [3, 6]
    assert np.bincount(dataset.train.labels).tolist() == [7, 14]
    np.testing.assert_array_equal(dataset.test.inputs, again.test.inputs)
    assert not np.array_equal(dataset.test.inputs, other.test.inputs)
    both = np.concatenate([dataset.train.inputs, dataset.test.inputs])[:, :, 0, 0]
    assert len(np.unique(both, axis=0)) == 30


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    image_tree(tmp_path / "vehicles", {"car": 5, "train": 5})
    assert load(datasets.ImageFolder, tmp_path, path="vehicles", image_size=8).classes == ("car", "train")


def test_the_middle_of_an_oblong_image_is_kept(tmp_path: Path) -> None:
    picture = np.zeros((16, 48), np.uint8)
    picture[:, 16:32] = 200
    for split in ("train", "test"):
        for name in ("a", "b"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            Image.fromarray(picture).save(folder / "0.png")
    dataset = load(datasets.ImageFolder, None, path=str(tmp_path), image_size=16, grayscale=True)
    assert (dataset.train.inputs == 200).all()


def test_bad_image_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        load(datasets.ImageFolder, tmp_path, path="absent")
    (tmp_path / "bare").mkdir()
    with pytest.raises(DataError, match="class folder"):
        load(datasets.ImageFolder, tmp_path, path="bare")
    image_tree(tmp_path / "lonely", {"cat": 5, "dog": 1})
    with pytest.raises(DataError, match="lonely: 6 examples of 2 classes, the smallest of 1, cannot be split"):
        load(datasets.ImageFolder, tmp_path, path="lonely", image_size=8)
    image_tree(tmp_path / "broken", {"cat": 5, "dog": 5})
    cut(tmp_path / "broken" / "dog" / "3.png")
    with pytest.raises(DataError, match=r"3\.png cannot be read"):
        load(datasets.ImageFolder, tmp_path, path="broken", image_size=8)
    with pytest.raises(ValidationError, match="path"):
        load(datasets.ImageFolder)
    with pytest.raises(ValidationError, match="less than 1"):
        load(datasets.ImageFolder, path="x", test_fraction=1)


def test_images_may_have_several_labels_by_their_folders(tmp_path: Path) -> None:
    image_tree(tmp_path / "mine", {"bacteria": 10, "none": 10, "virus": 10})
    labels = {"pneumonia": ["bacteria", "virus"], "viral": ["virus"]}
    dataset = load(datasets.ImageFolder, tmp_path, path="mine", image_size=8, labels=labels)
    assert (dataset.classes, dataset.kinds) == (("pneumonia", "viral"), ("bacteria", "none", "virus"))
    assert dataset.train.targets is not None
    found = [dataset.train.targets[dataset.train.labels == kind][0].tolist() for kind in range(3)]
    assert found == [[1, 0], [0, 0], [1, 1]]
    declared = datasets.ImageFolder(datasets.ImageFolder.Options(path="mine", labels=labels)).declares
    assert (declared.num_classes, declared.task) == (2, "std.multi_label")
    with pytest.raises(DataError, match=r"labels\.viral names the folder flu, but the folders are bacteria, none"):
        load(datasets.ImageFolder, tmp_path, path="mine", image_size=8, labels={"viral": ["flu"]})

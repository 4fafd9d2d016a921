"""Files of a data set that are missing, damaged or to be fetched."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dataset_toys import cut, fake_mnist, load, write_idx
from fedplug.api.errors import DataError
from fedplug_std import datasets
from fedplug_std.torchvision_import import torchvision


def test_a_missing_set_says_where_it_looked_and_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    with pytest.raises(DataError) as caught:
        load(datasets.Mnist, tmp_path)
    for part in (str(Path("MNIST") / "raw"), "train-images-idx3-ubyte[.gz]", "download: true"):
        assert part in str(caught.value)


def test_without_any_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    with pytest.raises(DataError, match=r"FEDPLUG_DATA.*std\.digits"):
        load(datasets.Mnist)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(bytes(content))


def other_kind(path: Path) -> None:
    path.write_bytes(gzip.compress(b"<html>not found</html>"))


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [cut, flip, other_kind, empty])
def test_a_damaged_idx_file_is_named(tmp_path: Path, damage: Any) -> None:
    fake_mnist(tmp_path)
    damage(tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte.gz")
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        load(datasets.Mnist, tmp_path)


def test_idx_files_that_do_not_belong_together(tmp_path: Path) -> None:
    raw = tmp_path / "MNIST" / "raw"
    fake_mnist(tmp_path)
    write_idx(raw / "train-labels-idx1-ubyte.gz", np.zeros(11, np.uint8))
    with pytest.raises(DataError, match="do not match"):
        load(datasets.Mnist, tmp_path)


def test_download_happens_on_request_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fetch(url: str, download_root: str, **_: Any) -> None:
        calls.append(url)
        fake_mnist(tmp_path, "")

    monkeypatch.setattr(torchvision().datasets.mnist, "download_and_extract_archive", fetch)
    with pytest.raises(DataError):
        load(datasets.Mnist, tmp_path)
    assert not calls
    assert len(load(datasets.Mnist, tmp_path, download=True).train) == 12
    assert calls
    calls.clear()
    load(datasets.Mnist, tmp_path, download=True)
    assert not calls, "what is there is not fetched again"


def test_a_failing_download_is_a_data_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any, **__: Any) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(torchvision().datasets.mnist, "download_and_extract_archive", fetch)
    monkeypatch.setattr(torchvision().datasets.cifar, "download_and_extract_archive", fetch)
    for component in (datasets.Mnist, datasets.Cifar10):
        with pytest.raises(DataError, match=r"cannot be fetched or read: .*no network"):
            load(component, tmp_path, download=True)

"""Tampered receipts: no receipt in both splits, text in every crop, and errors that name the file and the line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fedplug import stream
from fedplug.api.errors import DataError
from fedplug_fedre.receipts import FORMATS, Receipt, Receipts, crop, read_receipts, split_receipts
from fedplug_fedre.tampering import FIELDS
from fedplug_kit.static import check_component
from PIL import Image

LINE = {"box": [6.4, 8.2, 60.0, 20.9], "text": "SHOP 12", "field": "company"}
ROWS = [LINE, {"box": [6, 40, 50, 52], "text": "3.20", "field": "total"}, {"box": [6, 70, 58, 83], "text": "thanks", "field": None}]  # fmt: skip  # noqa: E501


def folder_of(root: Path, count: int = 8, rows: Any = None, name: str = "sroie_subset") -> Path:
    """Receipts of 72x160 and 160x160 pixels in turn, with a few marks in their boxes."""
    folder = root / name
    folder.mkdir(parents=True)
    entries = []
    for number in range(count):
        wide = 72 if number % 2 else 160
        pixels = np.random.default_rng(number).normal(225, 5, (160, wide)).clip(0, 255).astype(np.uint8)
        for row in ROWS:
            x0, y0, x1, y1 = (int(value) for value in row["box"])  # type: ignore[attr-defined]
            pixels[y0 + 3 : y1 - 3 : 2, x0:x1:3] = 30
        Image.fromarray(pixels).save(folder / f"{number}.png")
        entries.append({"file": f"{number}.png", "lines": ROWS if rows is None else rows})
    (folder / "annotations.jsonl").write_text("\n".join(map(json.dumps, entries)))
    return root


def options(**changes: Any) -> Receipts.Options:
    return Receipts.Options(**{"train_count": 24, "test_count": 8, "size": 48, **changes})


def test_conforms() -> None:
    check_component("fedre.receipts")


def test_examples_are_as_described(tmp_path: Path) -> None:
    data = Receipts(options()).load(str(folder_of(tmp_path)))
    assert data.shape == (1, 48, 48)
    assert (data.classes, data.kinds, data.region_names) == (("untouched", "tampered"), FORMATS, FIELDS)
    assert data.train.targets is not None
    assert data.train.regions is not None
    assert data.train.regions.reshape(24, -1).any(1).all()  # text in every crop
    assert set(np.unique(data.train.targets)) == {0, 1}
    assert sorted(np.bincount(data.train.labels).tolist()) == [0, 0, 12, 12]  # each receipt equally often
    again = Receipts(options()).load(str(tmp_path))
    assert np.array_equal(data.train.inputs, again.train.inputs)
    assert np.array_equal(data.test.targets, again.test.targets)  # type: ignore[arg-type]
    kinds = Receipts(options(task="kinds")).load(str(tmp_path))
    assert (kinds.classes, kinds.kinds, kinds.train.targets) == (FORMATS, (), None)
    assert np.array_equal(kinds.train.inputs, data.train.inputs)
    fewer = Receipts(options(train_count=9)).load(str(tmp_path))
    assert np.array_equal(fewer.train.inputs, data.train.inputs[:9])


def test_the_mask_is_exact_against_the_receipt(tmp_path: Path) -> None:
    root = folder_of(tmp_path)
    data = Receipts(options(untouched=0, train_count=6)).load(str(root))
    train, _ = split_receipts(read_receipts(root / "sroie_subset"), 0.25, 0)
    assert data.train.targets is not None
    turns = stream(0, "fedre.receipts", "train", "order")
    for number, turn in enumerate(turns.permutation(len(train))):
        kept = data.train.targets[number] == 0
        windows = np.lib.stride_tricks.sliding_window_view(train[turn].pixels, (48, 48)).reshape(-1, 48, 48)
        assert (windows[:, kept] == data.train.inputs[number, 0][kept]).all(1).any()  # a place of it, but for the mask


def test_a_line_in_the_crop_keeps_its_place_and_its_part_of_the_text(tmp_path: Path) -> None:
    receipt = read_receipts(folder_of(tmp_path) / "sroie_subset")[0]
    assert [(box.x0, box.y0, box.x1, box.y1, box.field) for box in receipt.boxes] == [
        (6, 8, 60, 21, 0), (6, 40, 50, 52, 3), (6, 70, 58, 83, 4),
    ]  # fmt: skip
    for seed in range(30):
        sheet = crop(receipt, 40, np.random.default_rng(seed))
        assert sheet.boxes
        for box in sheet.boxes:
            assert any(box.text in line.text for line in receipt.boxes)
    doubled = read_receipts(tmp_path / "sroie_subset", scale=2)[0]
    assert doubled.pixels.shape == (320, 320)
    assert (doubled.boxes[1].x0, doubled.boxes[1].y1) == (12, 104)


def receipts_of(formats: list[int]) -> list[Receipt]:
    return [Receipt(str(number), np.zeros((1, 1), np.uint8), (), kind) for number, kind in enumerate(formats)]


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.99])
def test_no_receipt_is_in_both_splits(share: float) -> None:
    found = receipts_of([0] * 8 + [1] * 16 + [3] * 4)
    train, test = split_receipts(found, share, 3)
    assert train
    assert test
    assert sorted(r.file for r in train + test) == sorted(r.file for r in found)
    assert [r.file for r in split_receipts(found, share, 3)[1]] == [r.file for r in test]
    if share == 0.25:
        assert np.bincount([receipt.format for receipt in test]).tolist() == [2, 4, 0, 1]
        assert [r.file for r in split_receipts(found, share, 4)[1]] != [r.file for r in test]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", r"annotations.jsonl:2 is not a receipt"),
        ('{"file": "0.png"}', r"annotations.jsonl:2 is not a receipt \(KeyError\('lines'\)\)"),
        ("[1]", r"annotations.jsonl:2 is not a receipt"),
        ('{"file": "gone.png", "lines": []}', r"gone.png cannot be read"),
        ('{"file": "0.png", "lines": []}', r"annotations.jsonl:2 lists no line of text for 0.png"),
        (json.dumps({"file": "0.png", "lines": [{**LINE, "box": [6, 8, 200, 20]}]}), r"must lie inside the image, 160"),
        (json.dumps({"file": "0.png", "lines": [{**LINE, "box": [60, 8, 6, 20]}]}), r":2: box \[60, 8, 6, 20\] must"),
        (json.dumps({"file": "0.png", "lines": [{**LINE, "box": [1, 2, 3]}]}), r"must be \[x0, y0, x1, y1\]"),
        (json.dumps({"file": "0.png", "lines": [{**LINE, "field": "iban"}]}), r"field 'iban' must be .*'company'"),
    ],
)
def test_damaged_annotations_are_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = folder_of(tmp_path) / "sroie_subset" / "annotations.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[0], line, *lines[2:]]))
    with pytest.raises(DataError, match=complaint):
        Receipts(options()).load(str(tmp_path))


def test_missing_receipts_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FEDPLUG_DATA", raising=False)
    with pytest.raises(DataError, match=r"FEDPLUG_DATA.*fedre\.documents, which needs none"):
        Receipts(options()).load(None)
    with pytest.raises(DataError, match=r"no folder .*sroie_subset; expected receipts of SROIE .*rrc\.cvc\.uab\.es"):
        Receipts(options()).load(str(tmp_path))
    (tmp_path / "sroie_subset").mkdir()
    with pytest.raises(DataError, match=r"annotations\.jsonl cannot be read"):
        Receipts(options()).load(str(tmp_path))
    with pytest.raises(DataError, match="holds 3 receipts, but 4 are needed"):
        Receipts(options(path="few")).load(str(folder_of(tmp_path, count=3, name="few")))
    (tmp_path / "few" / "0.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"0\.png cannot be read"):
        Receipts(options(path=str(tmp_path / "few"))).load(None)


@pytest.mark.data
def test_the_real_receipts(data_root: str) -> None:
    """80 receipts, with every line of text inside its image, none in both splits, every format in both."""
    found = read_receipts(Path(data_root) / "sroie_subset")
    assert len(found) == 80
    for receipt in found:
        for box in receipt.boxes:
            assert 0 <= box.x0 < box.x1 <= receipt.pixels.shape[1]
            assert 0 <= box.y0 < box.y1 <= receipt.pixels.shape[0]
    train, test = split_receipts(found, 0.25, 0)
    assert not {receipt.file for receipt in train} & {receipt.file for receipt in test}
    assert (len(train), len(test)) == (60, 20)
    assert {r.format for r in train} == {r.format for r in test} == {0, 1, 2, 3}
    for number in range(40):
        assert crop(found[number % 80], 128, stream(0, "look", number)).regions.any()


@pytest.mark.data
def test_real_examples_have_every_field_and_a_sensible_share_of_tampering(data_root: str) -> None:
    data = Receipts(Receipts.Options(train_count=120, test_count=40)).load(data_root)
    assert data.train.targets is not None
    assert data.train.regions is not None
    assert set(np.unique(data.train.regions)) == set(range(len(FIELDS) + 1))
    assert 0.02 < data.train.targets.mean() < 0.15
    assert (data.train.targets.reshape(120, -1).any(1)).mean() == pytest.approx(0.8, abs=0.12)

"""T-SROIE and DocTamper from tiny folders in their authors' layout, and the errors for other layouts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug import Dataset
from fedplug.api.errors import DataError, SetupError
from fedplug_fedre.published import DocTamper, TSroie
from fedplug_kit.static import check_component
from numpy.typing import NDArray
from PIL import Image

TEXT, TAMPERED = 1, 2
LITERAL = Path(__file__).parents[3] / "recipes/paper/fedre/literal.yaml"


@pytest.mark.parametrize("name", ["fedre.t_sroie", "fedre.doctamper"])
def test_conforms(name: str) -> None:
    check_component(name)


# -- T-SROIE -----------------------------------------------------------------------------------------------------------


def t_sroie(root: Path, categories: tuple[int, ...] = (TEXT, TAMPERED)) -> Path:
    """Three images per split, 90 wide and 120 high, gray 200; text in category 1 is 100, in category 2 is 10."""
    for split in ("train", "test"):
        (root / "T-SROIE" / split).mkdir(parents=True)
        images: list[dict[str, Any]] = []
        annotations: list[dict[str, Any]] = []
        for number in range(3):
            pixels = np.full((120, 90), 200, np.uint8)
            images.append({"id": 10 + number, "file_name": f"X{number}.jpg"})
            for row, category in enumerate(categories):
                x0, y0, x1, y1 = 10, 10 + 50 * row, 69, 29 + 50 * row
                pixels[y0 : y1 + 1, x0 : x1 + 1] = 100 if category == TEXT else 10
                corners = [x0, y0, x1, y0, x1, y1, x0, y1]
                annotations.append({"image_id": 10 + number, "category_id": category, "segmentation": [corners]})
            Image.fromarray(pixels).save(root / "T-SROIE" / split / f"X{number}.jpg", quality=100)
        content = {"images": images, "annotations": annotations}
        (root / "T-SROIE" / f"sroie_{split}_1011.json").write_text(json.dumps(content))
    return root


def load_t_sroie(root: Path, **changes: Any) -> Dataset:
    return TSroie(TSroie.Options(**{"train_count": 12, "test_count": 5, "size": 40, **changes})).load(str(root))


def test_t_sroie_marks_what_its_polygons_mark(tmp_path: Path) -> None:
    data = load_t_sroie(t_sroie(tmp_path))
    assert data.shape == (1, 40, 40)
    assert (data.kinds, data.region_names) == (("untouched", "tampered"), ("text",))
    for examples in (data.train, data.test):
        assert examples.targets is not None
        assert examples.regions is not None
        pixels = examples.inputs[:, 0]
        # Two pixels away from an edge JPEG leaves a flat area unchanged.
        assert np.array_equal(inner(examples.targets), inner((pixels < 50).astype(np.uint8)))
        assert np.array_equal(inner(examples.regions), inner((pixels < 150).astype(np.uint8)))
        assert np.array_equal(examples.labels, examples.targets.reshape(len(examples), -1).any(1))
    assert data.train.labels.any()
    assert np.array_equal(data.train.inputs, load_t_sroie(tmp_path).train.inputs)
    assert not np.array_equal(data.train.inputs, load_t_sroie(tmp_path, seed=1).train.inputs)


def inner(masks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """2 near an edge of the mask, elsewhere the mask."""
    out = masks.copy()
    for axis in (1, 2):
        for step in (-2, -1, 1, 2):
            out[np.roll(masks, step, axis) != masks] = 2
    return np.where((out == 2), 2, masks)[:, 3:-3, 3:-3]


def test_t_sroie_crops_are_around_tampering_as_often_as_asked(tmp_path: Path) -> None:
    root = t_sroie(tmp_path)
    always = load_t_sroie(root, around_tampering=1, train_count=30).train
    sometimes = load_t_sroie(root, around_tampering=0, train_count=30).train
    assert always.labels.all()
    assert 0 < sometimes.labels.mean() < 1


def test_larger_crops_than_images_are_filled_with_paper(tmp_path: Path) -> None:
    data = load_t_sroie(t_sroie(tmp_path), size=128, scale=1.5, train_count=2)
    assert data.shape == (1, 128, 128)
    assert load_t_sroie(tmp_path, size=128, train_count=2).train.inputs[0, 0, -1, -1] == 255


def test_t_sroie_without_masks_is_refused(tmp_path: Path) -> None:
    """SROIE itself, or an annotation of text alone."""
    with pytest.raises(DataError, match=r"sroie_train_1011\.json marks no tampered text .*fedre\.receipts"):
        load_t_sroie(t_sroie(tmp_path, (TEXT, TEXT)))


@pytest.mark.slow
def test_the_literal_recipe_learns_from_t_sroie_as_published(tmp_path: Path) -> None:
    """Every line of the recipe, with smaller numbers: eq. 3 to 11 on crops of the folder."""
    less = {
        "rounds": 1, "data.clients": 3, "data.size": 32, "data.train_count": 12, "data.test_count": 4, "data.public": 2,
        "train.epochs": 1, "score_parameters.0.samples": 1, "aggregate.samples": 1,
        "score_parameters.0.projections": 4, "aggregate.projections": 4,
    }  # fmt: skip
    run = fedplug.run(LITERAL, less, data=t_sroie(tmp_path), output=tmp_path / "runs", quiet=True)
    row = run.metrics[-1]
    assert row.zones["noised"] == 1
    assert row.log["fedre.pda_pam.scored_layers"] == 1
    assert row.log["fedre.pda_pam.weight_max"] > 3  # eq. 11 as printed: 1 / alpha-hat, of three shares of 1 in all
    assert row.figures is not None
    assert 0 <= row.figures["IoU"] <= 1


def test_t_sroie_says_what_is_missing_and_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder .*T-SROIE; .*sroie_train_1011\.json.*wangyuxin87/Tampered_sroie"):
        load_t_sroie(tmp_path)
    (tmp_path / "T-SROIE").mkdir()
    with pytest.raises(DataError, match=r"sroie_train_1011\.json cannot be read"):
        load_t_sroie(tmp_path)
    full = t_sroie(tmp_path / "full")
    (full / "T-SROIE" / "train" / "X1.jpg").unlink()
    with pytest.raises(DataError, match=r"train/X1\.jpg cannot be read"):
        load_t_sroie(full)
    for content in ("{", "[]", '{"images": [], "annotations": [{"segmentation": [1, 2]}]}'):
        (full / "T-SROIE" / "sroie_train_1011.json").write_text(content)
        with pytest.raises(DataError, match=r"sroie_train_1011\.json is not as published"):
            load_t_sroie(full)


# -- DocTamper ---------------------------------------------------------------------------------------------------------


def encoded(pixels: NDArray[np.uint8], kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def doctamper(root: Path, count: int = 4, without: str = "", white: int = 255, names: tuple[str, ...] = ()) -> Path:
    """Images of 64x64, red where they were tampered with, and their masks."""
    lmdb = pytest.importorskip("lmdb")
    for name in names or ("TrainingSet", "TestingSet"):
        folder = root / "DocTamper" / f"DocTamperV1-{name}"
        folder.mkdir(parents=True)
        with lmdb.open(str(folder), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
            for number in range(count):
                mask = np.zeros((64, 64), np.uint8)
                mask[20:40, 10 + number : 50] = 1
                pixels = np.full((64, 64, 3), 220, np.uint8)
                pixels[mask == 1] = (200, 30, 30)
                transaction.put(b"image-%09d" % number, encoded(pixels, "png"))
                transaction.put(b"label-%09d" % number, encoded(mask * np.uint8(white), "png"))
            transaction.put(b"num-samples", str(count).encode())
            if without:
                transaction.delete(without.encode())
    return root


def load_doctamper(root: Path, **changes: Any) -> Dataset:
    chosen = DocTamper.Options(**{"train_count": 6, "test_count": 3, "size": 32, **changes})
    return DocTamper(chosen).load(str(root))


@pytest.mark.parametrize("white", [1, 255])
def test_doctamper_marks_what_its_masks_mark(tmp_path: Path, white: int) -> None:
    """Published masks are 0 and 1 or 0 and 255."""
    data = load_doctamper(doctamper(tmp_path, white=white), grayscale=False)
    assert data.shape == (3, 32, 32)
    assert len(data.mean) == len(data.std) == 3
    assert data.region_names == ()
    for examples in (data.train, data.test):
        assert examples.regions is None
        assert np.array_equal(examples.targets, (examples.inputs[:, 1] < 100).astype(np.uint8))  # type: ignore[arg-type]
    assert np.array_equal(data.train.inputs, load_doctamper(tmp_path, grayscale=False).train.inputs)
    assert load_doctamper(tmp_path).shape == (1, 32, 32)


def test_doctamper_can_be_tested_on_the_other_sets(tmp_path: Path) -> None:
    root = doctamper(tmp_path, names=("TrainingSet", "FCD"))
    assert len(load_doctamper(root, test_set="FCD").test) == 3
    with pytest.raises(DataError, match=r"no .*DocTamperV1-SCD.data\.mdb; expected DocTamper as published"):
        load_doctamper(root, test_set="SCD")


@pytest.mark.parametrize("key", ["label-000000002", "image-000000001"])
def test_doctamper_without_a_mask_or_an_image_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(DataError, match=rf"DocTamperV1-TrainingSet has no {key}; every image .* needs a mask"):
        load_doctamper(doctamper(tmp_path, without=key))


def test_doctamper_says_what_is_missing_and_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no folder .*DocTamper; .*on request at github\.com/qcf-568/DocTamper"):
        load_doctamper(tmp_path)
    (tmp_path / "DocTamper").mkdir()
    with pytest.raises(DataError, match=r"no .*DocTamperV1-TrainingSet.data\.mdb"):
        load_doctamper(tmp_path)
    with pytest.raises(DataError, match=r"has no num-samples"):
        load_doctamper(doctamper(tmp_path / "a", without="num-samples"))
    broken = tmp_path / "b" / "DocTamper" / "DocTamperV1-TrainingSet"
    broken.mkdir(parents=True)
    (broken / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(DataError, match="cannot be read"):
        load_doctamper(tmp_path / "b")


def test_without_lmdb_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "DocTamper" / "DocTamperV1-TrainingSet"
    folder.mkdir(parents=True)
    (folder / "data.mdb").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "lmdb", None)
    with pytest.raises(SetupError, match="pip install lmdb"):
        load_doctamper(tmp_path)

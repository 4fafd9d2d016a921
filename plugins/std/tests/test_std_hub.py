"""Data sets of Hugging Face on disk, and classes of torchvision: what is read, what is refused."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import fedplug
import numpy as np
import pytest
from dataset_toys import fake_mnist, image_tree
from fedplug import Dataset
from fedplug.api.errors import DataError, RecipeError, SetupError
from fedplug.recipe.recipe import Recipe
from fedplug_kit.static import check_component
from fedplug_std.hub import HuggingFace, Torchvision
from PIL import Image
from table_toys import recipe, rows

REASON = "Hugging Face's datasets is the extra huggingface of fedplug-std"


def from_hub(folder: Path, **options: Any) -> Dataset:
    return HuggingFace(HuggingFace.Options.model_validate({"path": str(folder), **options})).load(None)


def from_torchvision(folder: Path, **options: Any) -> Dataset:
    return Torchvision(Torchvision.Options.model_validate({"path": str(folder), **options})).load(None)


def saved(folder: Path, features: dict[str, Any] | None = None, **parts: dict[str, list[Any]]) -> Path:
    """A folder as save_to_disk writes it, with one split or several."""
    datasets = pytest.importorskip("datasets", reason=REASON)
    kinds = features and datasets.Features(features)
    made = {name: datasets.Dataset.from_dict(columns, features=kinds) for name, columns in parts.items()}
    (datasets.DatasetDict(made) if len(made) > 1 else next(iter(made.values()))).save_to_disk(str(folder))
    return folder


def test_conform() -> None:
    check_component("std.huggingface", {"path": "absent"})
    check_component("std.torchvision", {"dataset": "KMNIST"})


def test_numeric_columns_are_a_table(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason=REASON)
    columns = {
        "age": [float(row[1]) for row in rows()], "sex": [row[2] for row in rows()],
        "ill": [int(row[4] == "ill") for row in rows()],
    }  # fmt: skip
    named = {
        "age": datasets.Value("float32"), "sex": datasets.Value("string"),
        "ill": datasets.ClassLabel(names=["well", "ill"]),
    }  # fmt: skip
    folder = saved(tmp_path / "all", named, all=columns)
    options = {"answer": "ill", "categories": {"sex": ["f", "m"]}, "scale": {"age": [50, 10]}}
    data = from_hub(folder, **options)
    assert (data.classes, data.columns, len(data.train)) == (("well", "ill"), ("age", "sex=f", "sex=m"), 48)
    assert ((data.train.labels == 1) == (data.train.inputs[:, 0] * 10 + 50 > 50.5)).all()
    with pytest.raises(DataError, match=r"column sex has texts \(f, m\)"):
        from_hub(folder, answer="ill")
    parts = saved(tmp_path / "parts", named, train=columns, test={name: held[:9] for name, held in columns.items()})
    assert (len(from_hub(parts, **options).train), len(from_hub(parts, **options).test)) == (60, 9)
    with pytest.raises(DataError, match=r"has no split learn; it has train, test"):
        from_hub(parts, **options, train_split="learn")
    run = fedplug.run(
        recipe(use="std.huggingface", path=str(parts), **options), output=tmp_path / "runs", quiet=True, rounds=2
    )
    assert run.complete


def test_images(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason=REASON)
    pictures = [Image.fromarray(np.full((8, 8), 20 * number, np.uint8)) for number in range(10)]
    kinds = {"picture": datasets.Image(), "what": datasets.ClassLabel(names=["dark", "bright"])}
    folder = saved(tmp_path / "images", kinds, all={"picture": pictures, "what": [int(n > 4) for n in range(10)]})
    data = from_hub(folder, inputs="picture", answer="what")
    assert (data.shape, data.classes, data.mean) == ((1, 8, 8), ("dark", "bright"), (0.5,))
    assert data.train.inputs.dtype == np.uint8
    assert ((data.train.inputs.max((1, 2, 3)) > 80) == (data.train.labels == 1)).all()
    assert from_hub(folder, inputs="picture", answer="what", image_size=4).shape == (1, 4, 4)
    pictures[7] = Image.fromarray(np.zeros((8, 9), np.uint8))
    odd = saved(tmp_path / "odd", kinds, all={"picture": pictures, "what": [0] * 10})
    with pytest.raises(DataError, match=r"image 8 is of another size or colour than the first \(1x8x8 and 1x8x9\)"):
        from_hub(odd, inputs="picture", answer="what")
    with pytest.raises(DataError, match="images need an answer"):
        from_hub(folder, inputs="picture")


def test_token_ids_and_text_are_for_a_language_model(tmp_path: Path) -> None:
    tokens = saved(tmp_path / "tokens", all={"ids": [list(range(10))] * 40, "label": [0, 1] * 20})
    data = from_hub(tokens, inputs="ids", context=8, vocabulary=10)
    assert (data.shape, len(data.classes), data.train.inputs.dtype) == ((8,), 10, np.int64)
    assert data.train.targets is not None
    assert np.array_equal(data.train.inputs[:, 1:], data.train.targets[:, :-1])
    with pytest.raises(DataError, match=r"holds the token id 9 in row 1, and vocabulary says 0 to 8"):
        from_hub(tokens, inputs="ids", context=8, vocabulary=9)
    with pytest.raises(DataError, match="give their number: vocabulary"):
        from_hub(tokens, inputs="ids")
    answered = from_hub(tokens, inputs="ids", vocabulary=10, answer="label")
    assert (answered.shape, answered.classes) == ((10,), ("0", "1"))
    text = saved(tmp_path / "text", all={"text": ["a line of text"] * 40})
    data = from_hub(text, inputs="text", context=8)
    assert (len(data.classes), bytes(data.train.inputs[0].astype(np.uint8))) == (256, b"a line o")
    with pytest.raises(DataError, match="has no column words, which inputs names; it has text"):
        from_hub(text, inputs="words")


def test_texts_with_an_answer_are_their_first_bytes(tmp_path: Path) -> None:
    text = saved(tmp_path / "text", all={"text": ["naïve", "no"] * 20, "label": [0, 1] * 20})
    data = from_hub(text, inputs="text", answer="label", context=3)
    assert (data.shape, data.classes, data.train.inputs.dtype, data.train.targets) == ((3,), ("0", "1"), np.int64, None)
    for row, label in zip(data.train.inputs, data.train.labels, strict=True):
        assert bytes(row.astype(np.uint8)) == (b"na\0" if label == 0 else b"no\0")  # half of a letter is left out


def test_what_is_no_folder_of_hugging_face(tmp_path: Path) -> None:
    pytest.importorskip("datasets", reason=REASON)
    with pytest.raises(DataError, match="there is no folder"):
        from_hub(tmp_path / "absent", answer="y")
    with pytest.raises(DataError, match=r"has neither dataset_dict\.json nor state\.json; write it with"):
        from_hub(tmp_path, answer="y")
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read: "):
        from_hub(tmp_path, answer="y")


def test_without_the_library_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(SetupError, match=r"pip install datasets"):
        from_hub(tmp_path, answer="y")


def test_a_table_needs_an_answer() -> None:
    with pytest.raises(RecipeError, match=r"name the column of the answers"):
        Recipe.from_plain(recipe(use="std.huggingface", path="absent"))


def test_images_of_every_depth_and_what_is_no_image(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason=REASON)
    shades = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    kinds = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])}
    options = {"inputs": "image", "answer": "label"}

    def pictures(name: str, *images: Any) -> Path:
        columns = {"image": list(images), "label": [0, 1] * (len(images) // 2)}
        return saved(tmp_path / name, kinds, train=columns, test=columns)

    deep = from_hub(pictures("deep", *[Image.fromarray(shades.astype(np.uint16) * 257)] * 4), **options)
    np.testing.assert_allclose(deep.train.inputs[0, 0] * 255, shades, atol=1e-4)
    plain = [Image.fromarray(shades)] * 4
    with pytest.raises(DataError, match=r"the image 4 of \S*gap is missing; leave such rows out"):
        from_hub(pictures("gap", *plain[:3], None), **options)
    whole = io.BytesIO()
    plain[0].save(whole, "PNG")
    cut = {"bytes": whole.getvalue()[:-40], "path": None}
    with pytest.raises(DataError, match=r"cut: the image in row 2 of column image cannot be read: "):
        from_hub(pictures("cut", plain[0], cut), **options)
    kinds["image"] = datasets.Array2D((8, 8), "float32")
    arrays = from_hub(pictures("arrays", *[(shades / 255).tolist()] * 4), **options)
    np.testing.assert_allclose(arrays.train.inputs[0, 0] * 255, shades, atol=1e-4)


# -- torchvision -------------------------------------------------------------------------------------------------------


def test_classes_of_torchvision_are_read_by_name(tmp_path: Path) -> None:
    fake_mnist(tmp_path, "", "KMNIST")
    data = from_torchvision(tmp_path, dataset="KMNIST")
    assert (data.shape, len(data.train), len(data.test), data.classes[0]) == ((1, 28, 28), 12, 4, "o")
    assert from_torchvision(tmp_path, dataset="KMNIST", image_size=14, train_size=5).shape == (1, 14, 14)
    image_tree(tmp_path / "tree", {"cat": 6, "dog": 6})
    tree = from_torchvision(tmp_path / "tree", dataset="ImageFolder")
    assert (tree.shape, tree.classes, len(tree.train) + len(tree.test)) == ((3, 12, 12), ("cat", "dog"), 12)
    for place in (tmp_path / "tree").rglob("*.png"):
        Image.fromarray(np.full((12, 12), 30_000, np.uint16)).save(place)
    deep = from_torchvision(tmp_path / "tree", dataset="ImageFolder").train.inputs
    assert (deep.shape[1:], np.unique(deep).tolist()) == ((3, 12, 12), [np.float32(30_000 / 65_535)])


@pytest.mark.parametrize("name", ["KMNIST", "CIFAR10", "Food101", "GTSRB"])
def test_missing_files_name_the_folder_and_what_is_looked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        from_torchvision(tmp_path, dataset=name)
    said = str(caught.value)
    assert f"{name} in {tmp_path} cannot be read" in said
    assert "torchvision says of that folder: " in said
    assert "Nothing is downloaded" in said
    assert not any(tmp_path.rglob("*.gz")), "nothing may be fetched"


def test_what_torchvision_has_not(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"torchvision\.datasets has no kmnist; write KMNIST"):
        from_torchvision(tmp_path, dataset="kmnist")
    with pytest.raises(DataError, match=r"there is no folder .* the expected place of KMNIST"):
        from_torchvision(tmp_path / "absent", dataset="KMNIST")
    with pytest.raises(DataError, match="FakeData reads no folder"):
        from_torchvision(tmp_path, dataset="FakeData")
    with pytest.raises(DataError, match=r"EMNIST: .*'split'; write it in data\.arguments"):
        from_torchvision(tmp_path, dataset="EMNIST")
    with pytest.raises(DataError, match=r"It looks in \S+/food-101\."):
        from_torchvision(tmp_path, dataset="Food101")
    with pytest.raises(ValueError, match="download cannot be set in a recipe"):
        Torchvision.Options.model_validate({"dataset": "KMNIST", "arguments": {"download": True}})


def test_options_of_tables_are_refused_where_one_column_is_the_input() -> None:
    given = {"path": ".", "inputs": "pixels", "answer": "y", "replace": {"y": {"Ill": "ill"}}, "scale": {"x": [1, 2]}}
    said = HuggingFace(HuggingFace.Options.model_validate(given)).check(None)
    assert [each.partition(" ")[0] for each in said] == ["scale", "replace"]

"""Privacy preferences: the pixels that each way of naming regions marks, and the errors of invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fedplug import Examples
from fedplug.api.errors import DataError
from fedplug_fedre.preferences import Preference, marked
from fedplug_fedre.samples import sensitive
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError

HEIGHT, WIDTH = 6, 8
DOCUMENTS = SimpleNamespace(classes=("clean", "tampered"), kinds=("receipt", "invoice"),
                            region_names=("company", "date", "total"))  # fmt: skip
DIGITS = SimpleNamespace(classes=("zero", "one"), kinds=(), region_names=())


def documents() -> Examples:
    """Three documents: kinds 0, 1, 0; a company in the first two, a date in the first, nothing in the third."""
    regions = np.zeros((3, HEIGHT, WIDTH), np.uint8)
    regions[:2, 0, :4] = 1
    regions[0, 3, 3] = 2
    return Examples(np.zeros((3, 1, HEIGHT, WIDTH), np.uint8), np.array([0, 1, 0]), np.zeros_like(regions), regions)


def digits() -> Examples:
    """Two images in which the data marks nothing."""
    return Examples(np.zeros((2, 3, HEIGHT, WIDTH), np.uint8), np.array([1, 0]))


def box(x0: int, y0: int, x1: int, y1: int) -> NDArray[np.bool_]:
    found = np.zeros((HEIGHT, WIDTH), np.bool_)
    for y in range(y0, y1):
        for x in range(x0, x1):
            found[y, x] = True
    return found


NONE = np.zeros((HEIGHT, WIDTH), np.bool_)
ALL = ~NONE


def regions(preference: Any, examples: Examples | None = None, data: Any = DOCUMENTS, root: Any = None) -> Any:
    found = documents() if examples is None else examples
    return marked(Preference(**preference), found, data, root and str(root))


# -- what is marked ----------------------------------------------------------------------------------------------------


def test_the_default_is_what_the_data_marks_or_else_the_whole_image() -> None:
    found = regions({})
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(found, np.stack([box(0, 0, 4, 1) | box(3, 3, 4, 4), box(0, 0, 4, 1), NONE]))
    np.testing.assert_array_equal(regions({}, digits(), DIGITS), [ALL, ALL])


def test_one_box_for_all_images() -> None:
    np.testing.assert_array_equal(regions({"box": [1, 2, 4, 6]}), [box(1, 2, 4, 6)] * 3)
    np.testing.assert_array_equal(regions({"box": [0, 0, WIDTH, HEIGHT]}), [ALL] * 3)


@given(st.data())
def test_a_box_marks_its_area(data: Any) -> None:
    x0, y0 = data.draw(st.integers(0, WIDTH - 1)), data.draw(st.integers(0, HEIGHT - 1))
    x1, y1 = data.draw(st.integers(x0 + 1, WIDTH)), data.draw(st.integers(y0 + 1, HEIGHT))
    found = regions({"box": [x0, y0, x1, y1]}, digits(), DIGITS)
    assert found.sum() == 2 * (x1 - x0) * (y1 - y0)
    assert found[0, y0, x0]
    assert found[1, y1 - 1, x1 - 1]


def test_boxes_by_kind_of_document() -> None:
    found = regions({"kinds": {"receipt": [0, 0, 2, 2], "invoice": [[1, 1, 3, 3], [5, 5, 8, 6]]}})
    receipt, invoice = box(0, 0, 2, 2), box(1, 1, 3, 3) | box(5, 5, 8, 6)
    np.testing.assert_array_equal(found, [receipt, invoice, receipt])
    np.testing.assert_array_equal(regions({"kinds": {"invoice": [0, 0, 2, 2]}}), [NONE, box(0, 0, 2, 2), NONE])
    found = regions({"kinds": {"one": [0, 0, 2, 2]}}, digits(), DIGITS)  # without kinds, the classes
    np.testing.assert_array_equal(found, [box(0, 0, 2, 2), NONE])


def test_fields_by_name() -> None:
    np.testing.assert_array_equal(regions({"fields": ["date"]}), [box(3, 3, 4, 4), NONE, NONE])
    both = regions({"fields": ["company", "date"]})
    np.testing.assert_array_equal(both, regions({"fields": ["all"]}))
    np.testing.assert_array_equal(both, regions({}))


def test_boxes_of_each_image_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"0": [0, 0, 2, 2], "2": [[1, 1, 3, 3], [5, 5, 8, 6]]}))
    (tmp_path / "a.csv").write_text("image,x0,y0,x1,y1\n0,0,0,2,2\n\n2, 1, 1, 3, 3\n2,5,5,8,6\n")
    (tmp_path / "kinds.json").write_text(json.dumps({"receipt": [0, 0, 1, 1], "0": [5, 5, 6, 6], "1": []}))
    for name in ("a.json", "a.csv"):
        found = regions({"boxes": name}, root=tmp_path)
        np.testing.assert_array_equal(found, [box(0, 0, 2, 2), NONE, box(1, 1, 3, 3) | box(5, 5, 8, 6)])
    found = regions({"boxes": "kinds.json"}, root=tmp_path)
    np.testing.assert_array_equal(found, [box(0, 0, 1, 1) | box(5, 5, 6, 6), NONE, box(0, 0, 1, 1)])


def test_a_file_numbers_images_as_the_data_does(tmp_path: Path) -> None:
    """The second and third example of a selection are images 7 and 2 of the data."""
    (tmp_path / "a.json").write_text(json.dumps({"7": [0, 0, 2, 2], "1": [0, 0, 8, 6]}))
    preference = Preference(boxes="a.json")
    found = marked(preference, documents(), DOCUMENTS, str(tmp_path), places=np.array([5, 7, 2]))
    np.testing.assert_array_equal(found, [NONE, box(0, 0, 2, 2), NONE])


def test_a_mask_file(tmp_path: Path) -> None:
    wanted = box(2, 1, 5, 4)
    (tmp_path / "sub").mkdir()
    np.save(tmp_path / "sub" / "mask.npy", wanted)
    np.save(tmp_path / "floats.npy", wanted * 0.25)
    Image.fromarray(wanted.astype(np.uint8) * 255).save(tmp_path / "mask.png")
    Image.fromarray(wanted).save(tmp_path / "bits.png")
    for name in ("sub/mask.npy", "floats.npy", "mask.png", "bits.png"):
        np.testing.assert_array_equal(regions({"mask": name}, root=tmp_path), [wanted] * 3)


def test_what_it_goes_by() -> None:
    assert Preference().marks == "default"
    assert Preference(fields=("all",)).marks == "fields"
    assert Preference(mask="a.png").in_file
    assert Preference(boxes="a.csv").in_file
    assert not Preference(box=(0, 0, 1, 1)).in_file


def test_it_reads_back_from_plain_data() -> None:
    for options in (
        {"box": [0, 1, 2, 3]}, {"kinds": {"a": [0, 1, 2, 3], "b": [[0, 1, 2, 3]]}}, {"fields": ["all"]},
        {"mask": "m.png"}, {"boxes": "b.csv"}, {},
    ):  # fmt: skip
        preference = Preference(**options)
        assert Preference(**json.loads(preference.model_dump_json())) == preference


# -- what is wrong -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": [3, 0, 3, 2]}, r"box \[3, 0, 3, 2\] must have 0 <= x0 < x1"),
        ({"box": [0, 4, 3, 2]}, r"box \[0, 4, 3, 2\] must have 0 <= x0 < x1 and 0 <= y0 < y1"),
        ({"box": [-1, 0, 3, 2]}, r"box \[-1, 0, 3, 2\] must have 0 <= x0"),
        ({"box": [0, 0, 3]}, "Field required"),
        ({"box": [0, 0, 3, 2.5]}, "valid integer"),
        ({"kinds": {"receipt": [3, 0, 3, 2]}}, "must have 0 <= x0 < x1"),
        ({"kinds": {}}, "at least 1 item"),
        ({"fields": []}, "at least 1 item"),
        ({"box": [0, 0, 1, 1], "fields": ["all"]}, r"one of box, boxes, .*, not by \['box', 'fields'\]"),
        ({"boxes": "/etc/passwd"}, "must lie inside the folder of data sets"),
        ({"mask": "../other/mask.png"}, "must lie inside the folder of data sets"),
        ({"bxo": [0, 0, 1, 1]}, "Extra inputs are not permitted"),
    ],
)
def test_options_out_of_bounds(options: Any, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Preference(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": [0, 0, 9, 2]}, r"box: the region \[0, 0, 9, 2\] .* outside the image, which is 8 wide and 6 high"),
        ({"box": [0, 0, 2, 7]}, "x1 must be <= 8 and y1 <= 6"),
        ({"kinds": {"invoice": [[0, 0, 1, 1], [7, 0, 9, 1]]}}, r"kinds.invoice: the region \[7, 0, 9, 1\]"),
        ({"kinds": {"bill": [0, 0, 1, 1]}}, "kinds: 'bill' must be a kind of image of the data set: receipt, invoice"),
        ({"fields": ["date", "name"]}, r"fields: \['name'\] must be among company, date, total, or all"),
        ({"fields": ["total"]}, r"the preference \(fields\) marks no pixel in any of 3 examples"),
        ({"boxes": "no.json"}, "boxes: there is no file .*no.json; put it there"),
        ({"mask": "no.png"}, "mask: there is no file .*no.png"),
        ({"boxes": "text.txt"}, "must end in .json or .csv"),
        ({"mask": "text.txt"}, "must end in .png or .npy"),
        ({"boxes": "broken.json"}, "boxes file .*broken.json does not parse: .*; write "),
        ({"boxes": "list.json"}, "list.json does not parse: it holds a list where an object of images is needed"),
        ({"boxes": "binary.csv"}, "binary.csv does not parse"),
        ({"boxes": "short.json"}, r"short.json, image 0: box \[1, 2, 3\] must be four whole numbers"),
        ({"boxes": "float.json"}, r"float.json, image 0: box \[0, 0, 1.5, 2\] must be four whole numbers"),
        ({"boxes": "swapped.csv"}, r"swapped.csv, line 2: box \[3, 0, 1, 2\] must have 0 <= x0 < x1"),
        ({"boxes": "words.csv"}, r"words.csv, line 1: box \['left', 'top', 3, 4\] must be four whole numbers"),
        ({"boxes": "outside.json"}, r"outside.json, image 1: the region \[0, 0, 80, 2\] .* lies outside the image"),
        ({"boxes": "stranger.json"}, "'bill' must be the number of an image or a kind of image of the data set"),
        ({"boxes": "others.json"}, r"the preference \(boxes\) marks no pixel in any of 3 examples"),
        ({"mask": "size.npy"}, r"size.npy is 6x8 of bool, but the images are 8x6 \(width x height\); scale"),
        ({"mask": "size.png"}, r"size.png is 4x4 of uint8, but the images are 8x6"),
        ({"mask": "broken.npy"}, "broken.npy cannot be read"),
        ({"mask": "broken.png"}, "broken.png cannot be read"),
        ({"mask": "words.npy"}, "words.npy is 8x6 of <U1"),
        ({"mask": "empty.npy"}, r"the preference \(mask\) marks no pixel"),
    ],
)
def test_what_does_not_fit_the_images(options: Any, message: str, tmp_path: Path) -> None:
    texts = {
        "text.txt": "0,0,0,1,1",
        "broken.json": '{"0": [0, 0',
        "list.json": "[[0, 0, 1, 1]]",
        "short.json": '{"0": [[1, 2, 3]]}',
        "float.json": '{"0": [0, 0, 1.5, 2]}',
        "swapped.csv": "0,0,0,1,2\n0,3,0,1,2",
        "words.csv": "0,left,top,3,4",
        "outside.json": '{"1": [0, 0, 80, 2]}',
        "stranger.json": '{"bill": [0, 0, 1, 1]}',
        "others.json": '{"17": [0, 0, 1, 1]}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    for name in ("binary.csv", "broken.npy", "broken.png"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00garbage")
    for name, array in (("size", box(0, 0, 1, 1).T), ("words", np.full((HEIGHT, WIDTH), "a")), ("empty", NONE)):
        np.save(tmp_path / f"{name}.npy", array)
    Image.new("L", (4, 4)).save(tmp_path / "size.png")
    with pytest.raises(DataError, match=message):
        sensitive(Preference(**options), documents(), DOCUMENTS, str(tmp_path), np.arange(3), 3)


def test_files_without_a_folder_of_data_sets() -> None:
    with pytest.raises(DataError, match=r"boxes: 'a.json' is in the client's folder of data sets, and none is known"):
        regions({"boxes": "a.json"})


def test_fields_where_the_data_marks_none() -> None:
    with pytest.raises(DataError, match=r"fields: \['all'\]: this data set marks no privacy-sensitive fields"):
        regions({"fields": ["all"]}, digits(), DIGITS)


def test_no_marked_pixel_is_no_error_where_others_may_have_some() -> None:
    assert not marked(Preference(fields=("total",)), documents(), DOCUMENTS, None).any()

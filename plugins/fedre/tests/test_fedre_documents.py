"""Generated documents: deterministic, of four formats, with their text inside, tampered with where the mask says."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from fedplug import Dataset, Examples, stream
from fedplug_fedre.documents import DOCUMENT_FIELDS, FORMATS, Documents, document
from fedplug_kit.static import check_component


def load(**options: object) -> Dataset:
    return Documents(Documents.Options(**{"train_count": 20, "test_count": 8, **options})).load(None)  # type: ignore[arg-type]


def same(a: Examples, b: Examples) -> bool:
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(a))


def test_conforms() -> None:
    check_component("fedre.documents")


def test_examples_are_as_described() -> None:
    data = load()
    assert data.shape == (1, 64, 64)
    assert data.classes == ("untouched", "tampered")
    assert data.kinds == tuple(FORMATS) == ("invoice", "identity card", "letter", "ticket")
    assert data.region_names == DOCUMENT_FIELDS
    for examples, count in ((data.train, 20), (data.test, 8)):
        assert examples.targets is not None
        assert examples.regions is not None
        assert examples.inputs.dtype == examples.targets.dtype == examples.regions.dtype == np.uint8
        assert np.array_equal(examples.labels, np.arange(count) % 4)
        assert set(np.unique(examples.targets)) == {0, 1}
        assert examples.regions.max() <= len(DOCUMENT_FIELDS)
        assert examples.regions.reshape(count, -1).any(1).all()  # each shows text
        tampered = examples.targets.reshape(count, -1).any(1)
        assert 0.6 < tampered.mean() < 1  # a fifth is left alone


def test_asked_for_kinds_the_same_images_have_one_label_each() -> None:
    pixels, kinds = load(), load(task="kinds")
    assert kinds.classes == kinds.label_names == pixels.kinds
    assert kinds.train.targets is None
    assert kinds.test.targets is None
    assert np.array_equal(kinds.train.answers, pixels.train.labels)
    assert np.array_equal(kinds.train.inputs, pixels.train.inputs)
    assert pixels.train.regions is not None
    assert kinds.train.regions is not None
    assert np.array_equal(kinds.train.regions, pixels.train.regions)
    assert kinds.region_names == DOCUMENT_FIELDS


def test_the_same_seed_gives_the_same_examples_and_another_others() -> None:
    first, again, other = load(), load(), load(seed=1)
    assert same(first.train, again.train)
    assert same(first.test, again.test)
    assert not same(first.train, other.train)
    assert not np.array_equal(first.train.inputs[:8], first.test.inputs)
    assert same(load(train_count=8).train, first.train.take(slice(8)))  # a smaller set is the start of a larger one


def test_untouched_and_single_ways_of_tampering() -> None:
    """The other sets were made from an untouched set, so their mask is exact in the whole data set too."""
    originals = [
        document(tuple(FORMATS)[number % 4], 64, stream(0, "fedre.documents", "train", number)).image
        for number in range(20)
    ]
    for kind in ("copy_move", "splice", "replace"):
        train = load(untouched=0, tampering=[kind]).train
        assert train.targets is not None
        kept = train.targets == 0
        assert np.array_equal(train.inputs[:, 0][kept], np.stack(originals)[kept])
        assert (train.inputs[:, 0] != np.stack(originals)).reshape(20, -1).any(1).mean() > 0.9


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [48, 64, 96, 129])
def test_text_boxes_are_inside_and_hold_the_ink(kind: str, size: int) -> None:
    """`Sheet` refuses a box that is not inside. Nearly all dark pixels are in a box."""
    for seed in range(5):
        sheet = document(kind, size, np.random.default_rng(seed))
        assert len(sheet.boxes) >= 2
        dark = sheet.image < np.median(sheet.image) - 50
        assert dark.sum() > 20
        assert (sheet.regions[dark] > 0).mean() > 0.95
        if size >= 96:  # all of its lines have room
            assert {box.field for box in sheet.boxes} >= {0, 1}  # a name and a date in every format


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"tampering": []}, "at least 1 item"),
        ({"tampering": ["redact"]}, "copy_move"),
        ({"untouched": 1}, "less than 1"),
        ({"size": 32}, "greater than or equal to 48"),
        ({"areas": 0}, "greater than or equal to 1"),
        ({"task": "labels"}, "'pixels' or 'kinds'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Documents.Options(**options)  # type: ignore[arg-type]

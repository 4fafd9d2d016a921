"""Copy-move, splice and replacement: the mask is exactly what is written, and regions follow the pixels."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug_fedre.tampering import FIELDS, KINDS, Kind, Sheet, TextBox, printed, replace, tamper, transplant
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

SIZE = 64
OTHER = len(FIELDS) - 1


def page(seed: int, tone: int = 220, fields: tuple[int, ...] = (0, 3, OTHER)) -> Sheet:
    """Noisy paper with one line of dark marks for each field, all equally high."""
    rng = np.random.default_rng(seed)
    image = np.clip(rng.normal(tone, 6, (SIZE, SIZE)), 0, 255).astype(np.uint8)
    boxes = [TextBox(4, 4 + 18 * row, 56, 16 + 18 * row, field, "TOTAL 12.50") for row, field in enumerate(fields)]
    for box in boxes:
        marks = rng.random((box.height, box.width)) < 0.2
        image[box.y0 : box.y1, box.x0 : box.x1][marks] = rng.integers(10, 60)
    return Sheet(image, boxes)


def sheets() -> tuple[Sheet, NDArray[np.uint8], NDArray[np.uint8]]:
    sheet = page(1)
    return sheet, sheet.image.copy(), sheet.regions.copy()


@given(seed=st.integers(0, 10_000), kinds=st.lists(st.sampled_from(KINDS), min_size=1), areas=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_outside_the_mask_every_bit_stays(seed: int, kinds: list[Kind], areas: int) -> None:
    sheet, before, regions = sheets()
    done = tamper(sheet, page(2), kinds, areas, np.random.default_rng(seed))
    assert set(done) <= set(kinds)
    assert len(done) <= areas
    assert sheet.mask.any() == bool(done)
    assert set(np.unique(sheet.mask)) <= {0, 1}
    untouched = sheet.mask == 0
    assert np.array_equal(sheet.image[untouched], before[untouched])
    assert np.array_equal(sheet.regions[untouched], regions[untouched])
    assert (sheet.image != before).any() == bool(done)


def test_the_mask_is_what_was_written_and_nothing_more() -> None:
    sheet, *_ = sheets()
    writes = np.zeros((SIZE, SIZE), np.uint8)
    plain = sheet.write

    def watched(y: int, x: int, patch: NDArray[np.uint8], regions: NDArray[np.uint8]) -> None:
        writes[y : y + patch.shape[0], x : x + patch.shape[1]] = 1
        plain(y, x, patch, regions)

    sheet.write = watched  # type: ignore[method-assign]
    assert len(tamper(sheet, page(2), KINDS, 3, np.random.default_rng(5))) == 3
    assert np.array_equal(sheet.mask, writes)


@pytest.mark.parametrize("kind", KINDS)
def test_one_kind_is_only_that_kind_and_deterministic(kind: Kind) -> None:
    made = []
    for _ in range(2):
        sheet, *_ = sheets()
        assert tamper(sheet, page(2), [kind], 2, np.random.default_rng(3)) == [kind, kind]
        made.append(sheet)
    assert np.array_equal(made[0].image, made[1].image)
    assert np.array_equal(made[0].regions, made[1].regions)
    other, *_ = sheets()
    tamper(other, page(2), [kind], 2, np.random.default_rng(4))
    assert not np.array_equal(made[0].image, other.image)


def test_copy_move_puts_pixels_of_the_same_document_there_bit_for_bit() -> None:
    """All lines are equally high, so nothing is scaled. The patch occurs unchanged somewhere in the image."""
    sheet, before, regions = sheets()
    assert transplant(sheet, sheet, np.random.default_rng(0))
    rows, columns = (np.flatnonzero(sheet.mask.any(axis)) for axis in (1, 0))
    patch = sheet.image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    windows = np.lib.stride_tricks.sliding_window_view(before, patch.shape)
    found = np.argwhere((windows == patch).all((2, 3)))
    assert len(found) == 1
    y, x = found[0]
    moved = sheet.regions[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    assert np.array_equal(moved, regions[y : y + patch.shape[0], x : x + patch.shape[1]])  # the field came along
    assert y != rows[0]


def test_a_splice_brings_its_field_and_is_brought_to_the_tone_of_the_paper() -> None:
    sheet = page(1, tone=220, fields=(0, 0, 0))
    source = page(2, tone=150, fields=(2, 2, 2))
    assert transplant(sheet, source, np.random.default_rng(0))
    written = sheet.mask == 1
    assert set(np.unique(sheet.regions[written])) == {3}
    assert abs(float(np.percentile(sheet.image[written], 75)) - 220) < 12


def test_replacement_keeps_the_field_and_prints_dark_text_on_the_papers_tone() -> None:
    sheet, before, regions = sheets()
    assert replace(sheet, np.random.default_rng(1))
    written = sheet.mask == 1
    assert np.array_equal(sheet.regions, regions)
    assert abs(float(np.percentile(sheet.image[written], 75)) - 220) < 15
    assert sheet.image[written].min() < 120
    assert not np.array_equal(sheet.image[written], before[written])


def test_scaled_patches_do_not_mix_regions() -> None:
    """Regions are indices: between fields 0 and 3 there is no field 1."""
    image = np.full((SIZE, SIZE), 230, np.uint8)
    source = Sheet(image, [TextBox(2, 2, 60, 17, 0), TextBox(2, 9, 60, 22, 3)])  # two lines that overlap
    sheet = Sheet(image, [TextBox(2, 30, 40, 42, 4)])
    assert transplant(sheet, source, np.random.default_rng(0))
    assert set(np.unique(sheet.regions)) <= {0, 1, 4, 5}


def test_what_is_too_small_or_tampered_already_is_left_alone() -> None:
    sheet = Sheet(np.full((32, 32), 240, np.uint8), [TextBox(0, 0, 30, 4, 0), TextBox(2, 8, 30, 20, 1)])
    rng = np.random.default_rng(0)
    assert tamper(sheet, sheet, ["replace"], 5, rng) == ["replace"]
    assert not sheet.mask[:5].any()
    assert tamper(Sheet(sheet.image, []), sheet, KINDS, 3, rng) == []


@pytest.mark.parametrize("box", [(-1, 0, 5, 5), (0, 0, 33, 5), (3, 3, 3, 9), (0, 30, 4, 33)])
def test_a_box_outside_the_image_is_refused(box: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="not inside an image of 32x32"):
        Sheet(np.zeros((32, 32), np.uint8), [TextBox(*box, 0)])


def test_printed_text_fits_its_box() -> None:
    for text in ("1", "TOTAL 123.45", "W" * 40):
        cover = printed(text, 12, 40)
        assert cover.shape == (12, 40)
        assert 0.3 < cover.max() <= 1
        assert cover.min() == 0

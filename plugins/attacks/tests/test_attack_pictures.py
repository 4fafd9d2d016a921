"""Pictures of attacked targets: what is in them, and that equal results give equal files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from fedplug_attacks.workshop.pictures import MOST_CLASSES, POINTS, chart, draw, roc_curve
from fedplug_attacks.workshop.records import TargetResult, TrueClasses
from numpy.typing import NDArray
from target_toys import a_target, an_outcome


def images(number: int, channels: int = 1, side: int = 8) -> NDArray[np.float32]:
    return np.random.default_rng(number).random((number, channels, side, side), np.float32)


def counts_result(true: list[int], **found: Any) -> TargetResult:
    forms = {form: an_outcome(counts=counts) for form, counts in found.items()}
    return a_target(forms=forms, truth=TrueClasses(true, []), picture=None)


def bars(svg: str) -> list[int]:
    """The number of bars of each path of a chart, the broad one."""
    broad = svg.partition('class="slim"')[0]
    return [found.count("z") for found in re.findall(r'<path d="([^"]*z)"', broad)]


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (3, 8), (1, 100)])
def test_rows_of_images_lie_below_each_other_as_they_are(channels: int, side: int, tmp_path: Path) -> None:
    truth, found = images(2, channels, side), images(3, channels, side)[:2]
    draw(tmp_path / "a.png", [[*truth], [found[0], None]])
    read = matplotlib.image.imread(tmp_path / "a.png")[..., :3]
    size = side * max(1, 72 // side) + 4
    assert read.shape == (2 * size, 2 * size, 3)
    step = max(1, 72 // side)
    for row, column, image in ((0, 0, truth[0]), (0, 1, truth[1]), (1, 0, found[0])):
        tile = read[row * size + 2 : (row + 1) * size - 2 : step, column * size + 2 : (column + 1) * size - 2 : step]
        assert np.abs(tile - image.transpose(1, 2, 0)).max() < 1 / 255  # small images are not smoothed
    assert read[size:, size:].min() == 1.0  # nothing was found


def test_pixels_that_are_no_numbers_have_a_colour_of_their_own(tmp_path: Path) -> None:
    broken = images(1)
    broken[0, 0, 0, 0], broken[0, 0, 1, 1] = np.nan, 7.0
    draw(tmp_path / "a.png", [[*broken]])
    read = matplotlib.image.imread(tmp_path / "a.png")
    assert read[3, 3, 0] > 2 * read[3, 3, 1]
    assert read[13, 13, :3].tolist() == [1, 1, 1]


def test_the_same_images_give_the_same_bytes_without_names_of_software_or_machine(tmp_path: Path) -> None:
    files = [tmp_path / "one.png", tmp_path / "there" / "two.png"]
    files[1].parent.mkdir()
    for file in files:
        draw(file, [[*images(2)], [*images(2)]])
    first, second = (file.read_bytes() for file in files)
    assert first == second
    for trace in (b"atplotlib", b"Software", b"tIME", str(tmp_path).encode()):
        assert trace not in first
    draw(files[0], [[*images(2)], [*(1 - images(2))]])
    assert files[0].read_bytes() != first


def test_a_picture_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.png"
    draw(file, [[*images(1)]])
    before = file.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        draw(file, [[*images(2)]])
    assert file.read_bytes() == before


def test_counts_are_narrow_bars_in_front_of_the_true_ones() -> None:
    svg = chart(counts_result([3, 0, 2], naive=[0, 0, 0], adaptive=[3, 1, 1]), "one", "words")
    assert bars(svg) == [2, 3, 2]  # a bar of no height is none: the naive form has no bar at all
    assert "naive (narrow bars)" in svg
    assert "adaptive (narrow bars)" in svg
    assert chart(counts_result([3, 0, 2], adaptive=[1.0]), "one", "") == ""  # of other classes
    assert chart(counts_result([1] * (MOST_CLASSES + 1), adaptive=[1.0] * (MOST_CLASSES + 1)), "one", "") == ""


def test_labels_are_counted_where_there_are_no_counts() -> None:
    result = counts_result([1, 2], adaptive=None)
    result.forms["adaptive"].labels = [0, 1, 1]
    assert bars(chart(result, "one", "")) == [2, 2]


@pytest.mark.parametrize("wrong", [1e9, float("nan"), float("inf"), -3.0])
def test_a_count_far_off_does_not_hide_the_true_ones(wrong: float) -> None:
    assert chart(counts_result([3, 0, 2], naive=[wrong, 0, 1]), "one", "") != ""


def test_members_have_a_roc_curve_for_each_form() -> None:
    members = np.arange(40) < 20
    forms = {
        "naive": an_outcome(roc=roc_curve(np.zeros(40), members)),
        "adaptive": an_outcome(roc=roc_curve(members.astype(np.float64), members)),
    }  # fmt: skip
    svg = chart(a_target(forms=forms, picture=None), "one", "words")
    assert "adaptive: area 1.000" in svg
    assert "naive: area 0.500" in svg
    assert chart(a_target(forms={"adaptive": an_outcome(roc=[(0.0, 0.0)])}), "one", "") != ""


def test_roc_curve_of_a_worked_example() -> None:
    # Sorted: member, other and member tied, other. The tie is one point.
    curve = roc_curve(np.array([0.9, 0.5, 0.5, np.nan]), np.array([True, False, True, False]))
    assert curve == [(0, 0), (0, 0.5), (0.5, 1), (1, 1)]
    assert roc_curve(np.empty(0), np.empty(0, bool)) == [(0, 0)]
    long = roc_curve(np.arange(5000.0), np.arange(5000) % 2 == 0)
    assert len(long) <= POINTS
    assert (long[0], long[-1]) == ((0, 0), (1, 1))

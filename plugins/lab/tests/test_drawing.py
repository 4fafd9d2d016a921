"""Figures drawn by hand: where values lie, which numbers label them, and that nothing is lost or forged."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from fedplug_lab.axis import Axis, lettering, powers, round_step, width_of
from fedplug_lab.drawing import Drawing
from fedplug_lab.panel import Box, Panel, named_places

BOX = Box(100, 10, 200, 50)


def drawn(panel: Panel, box: Box = BOX) -> str:
    return panel.draw(box, "c", lettering(panel.x, box.width, box.font, panel.y.marks()))


def shapes(panel: Panel, only: str) -> list[str]:
    """The paths whose style holds a text."""
    return re.findall(rf'd="([^"]*)" style="[^"]*{only}', drawn(panel))


@pytest.mark.parametrize(
    ("least", "whole", "expected"),
    [(0.9, False, 1), (1.2, False, 2), (2.1, False, 2.5), (2.1, True, 5), (0.03, False, 0.05), (0.03, True, 1),
     (7, False, 10), (1e299, False, 1e299), (3e-100, False, 5e-100)],
)  # fmt: skip
def test_steps_are_round(least: float, whole: bool, expected: float) -> None:
    assert round_step(least, whole) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("axis", "texts"),
    [
        (Axis(0, 1, most=5), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (Axis(0, 0.9, most=4), ["0.00", "0.25", "0.50", "0.75"]),
        (Axis(-10, 10, most=4), ["-10", "-5", "0", "5", "10"]),
        (Axis(10, -10, most=4), ["-10", "-5", "0", "5", "10"]),
        (Axis(0.5, 3.5, most=9, whole=True), ["1", "2", "3"]),
        (Axis(0, 3e9, most=3), ["0", "1e+09", "2e+09", "3e+09"]),
        (Axis(1, 100, logarithmic=True), ["1", "2", "5", "10", "20", "50", "100"]),
        (Axis(1, 1e4, logarithmic=True), ["1", "10", "100", "1000", "10000"]),
        (Axis(0, 2, ticks=[(1.0, "one"), (3.0, "three")]), ["one"]),
        (Axis(0, 1, most=2, write=lambda value: f"<{value:g}>"), ["<0>", "<0.5>", "<1>"]),
    ],
)
def test_the_numbers_beside_an_axis(axis: Axis, texts: list[str]) -> None:
    marks = axis.marks()
    assert [text for _, text in marks] == texts
    assert all(-1e-9 <= place <= 1 + 1e-9 for place, _ in marks)


def test_values_lie_in_proportion() -> None:
    assert Axis(0, 10).places([0, 5, 10]).tolist() == [0, 0.5, 1]
    assert Axis(10, 0).places([0, 5, 10]).tolist() == [1, 0.5, 0]
    assert Axis(1, 100, logarithmic=True).places([1, 10, 100]).tolist() == [0, 0.5, 1]
    assert Axis(0, 1).places([-1e300, 1e300, math.inf]).tolist() == [-1, 2, 2], "no coordinate that no reader can read"
    assert np.isnan(Axis(0, 1).places([math.nan])).all()


def test_what_has_no_number_lies_in_a_strip_at_the_end_of_its_axis() -> None:
    axis = Axis(1, 100, logarithmic=True, strip="no guarantee")
    end = axis.numbers_end
    assert 0.5 < end < 1
    assert axis.places([1, 10, 100, math.inf]).tolist() == pytest.approx([0, end / 2, end, (1 + end) / 2])
    assert axis.marks()[-1] == (pytest.approx((1 + end) / 2), "no guarantee")
    assert Axis(1, 2).numbers_end == 1


def test_names_are_written_beside_their_points_and_cover_nothing() -> None:
    crowd = [(100 + 12 * i, 30 + 4 * (i % 3)) for i in range(6)]
    found = named_places(BOX, crowd, [f"name{i}" for i in range(6)])
    rooms = []
    for _, (x, y, anchor), text, _ in found:
        wide, high = width_of(text, 0.9 * BOX.font), 1.2 * 0.9 * BOX.font
        left = x - {"start": 0, "end": wide, "middle": wide / 2}[anchor]
        rooms.append((left, y - high / 2, left + wide, y + high / 2))
    assert found
    for number, (left, top, right, bottom) in enumerate(rooms):
        assert left >= BOX.x
        assert right <= BOX.x + BOX.width
        assert not any(left < x < right and top < y < bottom for x, y in crowd)
        assert not any(left < c and a < right and top < d and b < bottom for a, b, c, d in rooms[:number])
    assert [text for *_, text, _ in named_places(BOX, [(150, 30), (150, 30)], ["", "b"])] == ["b"]
    assert named_places(Box(0, 0, 20, 20), [(10, 10)], ["much too long for it"]) == []


def test_steps_lead_from_the_best_point_to_the_end_of_the_numbers() -> None:
    panel = Panel()
    panel.x.low, panel.x.high, panel.y.low, panel.y.high = 0, 4, 0, 1
    panel.stairs([1, 2], [0.5, 1.0], "red", right=True, up=True)
    panel.stairs([3, 1], [0.5, 0.0], "blue", right=False, up=False)
    assert shapes(panel, "stroke: red") == ["M150 60H150V35H200V10H300"]
    assert shapes(panel, "stroke: blue") == ["M250 10H250V35H150V60H100"]


def test_an_axis_without_ends_goes_a_little_beyond_what_it_sees() -> None:
    axis = Axis()
    axis.see([1, math.nan, 3], [11])
    assert axis.ends() == (0.5, 11.5)
    axis.low = 0
    assert axis.ends() == (0, 11.5)
    alone, nothing = Axis(), Axis()
    alone.see([7])
    low, high = alone.ends()
    assert low < 7 < high
    assert nothing.ends()[0] < nothing.ends()[1]


@pytest.mark.parametrize("values", [[1e300, 1e300], [-1e308, 1e308], [1e-300, 2e-300], [1e16, 1e16 + 2], [0, 0]])
def test_any_values_make_an_axis(values: list[float]) -> None:
    axis = Axis()
    axis.see(values)
    assert len(axis.marks()) <= 61
    assert np.isfinite(axis.places(values)).all()


def test_powers_are_thinned_where_there_are_many() -> None:
    assert len(powers(1e-100, 1e100, 5)) <= 7
    assert powers(1, 10, 5)[:4] == [1, 2, 5, 10]


def test_a_line_has_gaps_and_dots_mark_points() -> None:
    panel = Panel()
    panel.x.low, panel.x.high, panel.y.low, panel.y.high = 0, 4, 0, 1
    panel.line([0, 1, 2, 3, 4], [0, 0.5, math.nan, 1, 0], "red")
    panel.dots([2], [0.5], "blue")
    assert shapes(panel, "stroke: red") == ["M100 60L150 35M250 10L300 60"]
    assert shapes(panel, "stroke: blue") == ["M200 35h0"]


def test_bars_areas_and_steps() -> None:
    panel = Panel()
    panel.x.low, panel.x.high, panel.y.low, panel.y.high = 0, 4, 0, 1
    panel.bars([1, 3], [0, 0.5], [1, math.nan], 1.0, "red")
    panel.area([0, 1, 2, 3, 4], [0, 0, math.nan, 0, 0], [1, 1, 1, 1, 1], "blue", 0.22)
    panel.steps([0, 2, 4], [0, 0], [0.5, 1], "green")
    panel.lying_bars([0.5], [2], 0.5, "black")
    assert shapes(panel, "fill: red") == ["M125 60H175V10H125z"], "of two bars one has no height"
    assert shapes(panel, "fill: blue; opacity: 0.22") == ["M100 60L150 60L150 10L100 10zM250 60L300 60L300 10L250 10z"]
    assert shapes(panel, "fill: green") == ["M100 60L200 60L200 60L300 60L300 10L200 10L200 35L100 35z"]
    assert shapes(panel, "fill: black") == ["M100 47.5H200V22.5H100z"]


def test_a_matrix_is_a_picture_whose_cells_anybody_can_read() -> None:
    import base64
    import io

    from matplotlib.image import imread

    panel = Panel()
    panel.x.low, panel.x.high, panel.y.low, panel.y.high = -0.5, 2.5, 1.5, -0.5
    panel.cells(np.array([[0, 0.2, 0.4], [0.6, 0.8, 1.0]]), (255, 0, 51))
    (address,) = re.findall(r'base64,([^"]*)"', drawn(panel))
    pixels = imread(io.BytesIO(base64.b64decode(address)))
    assert pixels.shape == (2, 3, 4)
    assert np.allclose(pixels[..., 3], [[0, 0.2, 0.4], [0.6, 0.8, 1.0]], atol=1 / 255)
    assert np.allclose(pixels[..., :3], [1, 0, 0.2])
    assert 'x="100" y="10" width="200" height="50"' in drawn(panel)


def test_a_drawing_is_sound_and_its_texts_are_texts() -> None:
    evil = "<script>alert('x')</script>\" onload=\"boom"
    drawing = Drawing(10, 5, 3, columns=2, shared=False)
    drawing.x_label = drawing.y_label = evil
    for panel in drawing.panels:
        panel.title = panel.x_label = panel.y_label = evil
        panel.x.ticks = [(0.5, evil)]
        panel.line([0, 1], [0, 1], "red")
    broad, slim = ET.fromstring(f"<p>{drawing.svg('k', evil)}</p>")
    for tree in (broad, slim):
        assert tree.get("role") == "img"
        assert tree.get("aria-label") == evil
        assert [text.text for text in tree.iter("text")].count(evil) == 2 + 3 * 4
    ids = [found.get("id") for tree in (broad, slim) for found in tree.iter() if found.get("id")]
    assert ids == ["k-0", "k-1", "k-2", "k-slim-0", "k-slim-1", "k-slim-2"]


def test_panels_lie_apart_and_inside() -> None:
    drawing = Drawing(10, 5, 4, columns=2, shared=False)
    for panel in drawing.panels:
        panel.x.ticks, panel.x.turned = [(0.5, "a long name of a layer")], True
        panel.line([0, 1], [0, 12345], "red")
    broad, slim = drawing.sheets()
    boxes = [box for box, _ in drawing.places(broad)]
    assert all(box.x > 30 and box.x + box.width <= 720 and box.y >= 0 and box.y + box.height < 360 for box in boxes)
    one, two, three, _ = boxes
    assert one.x + one.width < two.x
    assert one.y + one.height + 60 < three.y, "room for the slanted names"
    boxes = [box for box, _ in drawing.places(slim)]
    assert all(box.x > 30 and box.x + box.width <= slim.width < 350 for box in boxes)
    assert all(one.y + one.height + 60 < two.y for one, two in pairwise(boxes)), "below each other"


def test_panels_that_share_an_axis_write_its_numbers_once() -> None:
    drawing = Drawing(10, 5, 2)
    drawing.panels[0].line([0, 1], [0, 70], "red")
    drawing.panels[1].line([0, 1], [0, 700], "red")
    broad, slim = drawing.svg("k", "").split("</svg>")[:2]
    assert broad.count(">600</text>") == 1
    assert slim.count(">600</text>") == 2, "below each other each has its own"


def test_numbers_below_an_axis_do_not_run_into_each_other() -> None:
    axis = Axis(0, 70_000, most=8)
    assert len(lettering(axis, 400, 9, []).across) == 8
    narrow = lettering(axis, 150, 11, []).across
    assert 2 <= len(narrow) <= 4
    names = Axis(-0.5, 9.5, ticks=[(float(i), f"class {i}") for i in range(10)])
    assert not lettering(names, 600, 9, []).turned
    turned = lettering(names, 200, 11, [])
    assert turned.turned
    assert len(turned.across) == 10
    assert len(lettering(names, 60, 11, []).across) == 4, "of too many, some"


def test_counts_in_cells_are_all_there_or_none_is() -> None:
    panel = Panel()
    panel.x.low, panel.x.high, panel.y.low, panel.y.high = -0.5, 1.5, 0.5, -0.5
    panel.notes([(0, 0, "7"), (1, 0, "12345")])
    assert drawn(panel).count("12345") == 1
    assert ">7<" in drawn(panel, BOX._replace(font=11.0))
    assert ">7<" not in drawn(panel, BOX._replace(font=11.0, width=60)), "a blank would look like zero"

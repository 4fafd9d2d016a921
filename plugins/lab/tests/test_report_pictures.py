"""What components draw, in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fedplug_lab.figures import picture_charts
from fedplug_lab.pictures import Pictures
from fedplug_lab.report import write_report
from report_toys import HOSTILE, LEDGER, NOBODY, Page
from row_toys import a_summary


def kept(**pictures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = Pictures(lambda note: pytest.fail(note))
    for name, picture in pictures.items():
        found.add(name, picture, "client 3", 2)
    return found.kept


def histogram(panels: int = 1, counts: Any = (6, 2, 2), mark: float | None = 2.0, **changes: Any) -> dict[str, Any]:
    panel = {"title": "fc", "edges": list(range(len(counts) + 1)), "counts": counts, "mark": mark}
    return {"kind": "histogram", "title": "Scores", "x_label": "score", "mark_label": "tau", "log_y": False,
            "panels": [{**panel, "title": f"fc{i}"} for i in range(panels)], **changes}  # fmt: skip


def boxes(panels: int = 1, count: int = 2, low: float = 0.0, log_y: bool = True) -> dict[str, Any]:
    five = [[low, *((i + 1) * x for x in (1e-6, 1e-4, 0.1, 1.0))] for i in range(count)]
    panel = {"title": "raw", "labels": [f"layer {i}" for i in range(count)], "boxes": five, "log_y": log_y}
    text = {"title": "By layer", "y_label": "Fisher", "note": "As in a paper."}
    return {"kind": "box", **text, "panels": [panel] * panels}


def test_histograms_are_drawn_and_said_in_words() -> None:
    (one,) = picture_charts(kept(a=histogram()))
    assert (one.title, one.wide) == ("Scores", False)
    assert one.alt == "fc0: half of the 10 values lie below 1, about 20.0% above tau 2."
    assert one.note == "From client 3, in round 2."
    assert [label for label, _, _ in one.legend] == ["number of values", "tau"]
    assert ">score</text>" in one.svg
    (many,) = picture_charts(kept(a=histogram(40, mark=None)))
    assert many.wide
    assert many.alt.endswith("fc5: half of the 10 values lie below 1. 18 more panels are drawn.")
    assert "16 more panels are in figures.json." in many.note
    assert [label for label, _, _ in many.legend] == ["number of values"]


def test_boxes_are_drawn_and_said_in_words() -> None:
    (one,) = picture_charts(kept(a=boxes()))
    assert one.note == "As in a paper. From client 3, in round 2."
    assert one.alt == (
        "raw: medians from 0.0001 (layer 0) to 0.0002 (layer 1); all values lie between 0 and 2. "
        "Values of 0 and below are drawn at the bottom."
    )
    for label in ("layer 0", "layer 1", "Fisher"):
        assert f">{label}</text>" in one.svg
    (single,) = picture_charts(kept(a=boxes(count=1, log_y=False)))
    assert single.alt == "raw: the median of layer 0 is 0.0001; all values lie between 0 and 1."


@pytest.mark.parametrize(
    "picture",
    [
        histogram(counts=(0, 0), log_y=True), histogram(counts=(0, 0)), histogram(counts=(1, 10**9), log_y=True),
        histogram(counts=(1e15, 1e15)), histogram(mark=-1e100), histogram(24, log_y=True), boxes(low=-5.0),
        boxes(low=-5.0, log_y=False), boxes(8, 200), boxes(low=1e-7),
        {"kind": "box", "title": "", "panels": [{"labels": ["x"], "boxes": [[0] * 5], "log_y": True}]},
        {"kind": "box", "title": "", "panels": [{"labels": ["x"], "boxes": [[-1e100, 0, 0, 0, 1e100]]}]},
        {"kind": "histogram", "title": HOSTILE, "x_label": HOSTILE, "mark_label": HOSTILE, "note": HOSTILE,
         "panels": [{"title": HOSTILE, "edges": [1e-100, 2e-100], "counts": [1], "mark": 0}]},
        {"kind": "box", "title": HOSTILE, "y_label": "$x_1$", "panels": [{"labels": [HOSTILE], "boxes": [[1] * 5]}]},
    ],
)  # fmt: skip
def test_any_picture_makes_a_sound_page(tmp_path: Path, picture: dict[str, Any]) -> None:
    path = write_report(tmp_path, [], LEDGER, a_summary(class_distribution=NOBODY), kept(a=picture, b=boxes()))
    text = path.read_text("utf-8")
    page = Page(text)
    assert page.count("script") == 0
    assert page.count("svg") == page.count("figcaption") == 2
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert len(text) < 900_000


def test_a_page_shows_so_many_pictures_and_names_the_rest(tmp_path: Path) -> None:
    many = kept(**{f"p{i:02}": boxes(count=1) for i in range(26)})
    text = write_report(tmp_path, [], LEDGER, a_summary(class_distribution=NOBODY), many).read_text("utf-8")
    assert Page(text).count("svg") == 24
    assert "2 more pictures are in figures.json." in text

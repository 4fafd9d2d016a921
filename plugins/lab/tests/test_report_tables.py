"""Tables of the report: plain data, groups, assessments and classes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from fedplug_lab.figures import charts
from fedplug_lab.tables import render, sentence
from fedplug_runs.folder import Distribution
from report_toys import Page, written
from row_toys import a_row


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "–"), (True, "yes"), (1e-5, "1e-05"), (math.inf, "∞"), ("inf", "∞"), (math.nan, "NaN"), ([], "none"),
     ([1, 2], "1, 2"), (1234567, "1\u202f234\u202f567"), (70000.0, "70\u202f000"), ("a<b", "a&lt;b"), ({}, "–")],
)  # fmt: skip
def test_plain_data(value: Any, expected: str) -> None:
    assert render(value) == expected


def test_records_become_one_table_with_every_column() -> None:
    page = Page(render([{"a_b": 1}, {"c": [2, {"d": "x"}]}], "cap"))
    assert [text for tag, text in page.texts if tag == "th"] == ["a b", "c", "1", "–"]
    assert ("span", "cap") in page.texts
    turned = Page(render({z: {f"k{i}": f"{z}{i}" for i in range(9)} for z in ("p", "q")}, "cap"))
    assert [text for tag, text in turned.texts if tag == "th"] == ["p", "q", *(f"k{i}" for i in range(9))]
    assert [text for tag, text in turned.texts if tag == "td"] == [f"{z}{i}" for i in range(9) for z in "pq"]
    nested = Page(render({"local_view": {"epsilon": 2.5}, "another": {"why": "x"}}))
    assert [text for tag, text in nested.texts if tag == "th"] == ["epsilon", "why", "local view", "another"]


def test_no_line_ends_inside_a_number() -> None:
    assert sentence("DP zone ε=8.00, δ=1e-05 (client, a-b); 4.2 s, 12 of 30 <") == (
        'DP zone <span class="whole">ε=8.00,</span> <span class="whole">δ=1e-05</span> (client, a-b); '
        '<span class="whole">4.2 s,</span> 12 of 30 &lt;'
    )


def text_of_one_group(folder: Path) -> str:
    (folder / "report.html").unlink()
    return written(folder, [a_row(1, group_members={"all": [0, 1]}), a_row(2, group_members={})])


def test_groups_are_listed_with_their_clients(tmp_path: Path) -> None:
    rows = [
        a_row(r, groups={"even": {"accuracy": 0.7 - r / 10, "loss": 1.0}, "odd": {"accuracy": 0.25, "loss": math.nan}},
              group_members={"even": [0, 2], "odd": [1]} if r > 1 else {"even": [0], "odd": [1, 2]})
        for r in (1, 2, 3)
    ]  # fmt: skip
    page = Page(written(tmp_path, rows))
    assert "Groups of clients with a model each, as in round 3." in page.visible()
    assert "They changed once." in page.visible()
    texts = [text for _, text in page.texts]
    at = texts.index("even")
    assert texts[at : at + 7] == ["even", "2", "0, 2", "0.400", "0.400", "1.000", "0.600"]
    assert texts[at + 7 : at + 14] == ["odd", "1", "1", "0.900", "0.250", "NaN", "0.250"]
    at = texts.index("Accuracy in groups")
    assert texts[at + 1 : at + 3] == [
        "0.650", "2 models, 0.400 to 0.900, each on test data like its clients'; on all classes 0.503"
    ], "a run leads with what groups are for"
    heads = [text for tag, text in page.texts if tag == "th"]
    assert heads.index("accuracy in groups") == heads.index("accuracy on all classes") - 1
    assert "Groups" not in Page(text_of_one_group(tmp_path)).visible()


def test_assessments_are_a_table(tmp_path: Path) -> None:
    found = {"sensecrypt.clusters": {"adjusted_rand_index": 0.875, "silhouette": math.nan}, "x": {}}
    shown = Page(written(tmp_path, [a_row(1)], assessments=found)).visible()
    for expected in ("Assessments", "sensecrypt.clusters", "adjusted rand index", "0.875", "silhouette", "NaN"):
        assert expected in shown
    (tmp_path / "report.html").unlink()
    assert "Assessments" not in Page(written(tmp_path, [a_row(1)], assessments={})).visible()


def test_the_class_distribution_of_twenty_clients_shows_every_count() -> None:
    clients = {k: [(k * 37 + c * 101) % 400 for c in range(10)] for k in range(20)}
    (one,) = charts([], Distribution([str(c) for c in range(10)], clients))
    assert one.wide, "alone it uses the width of the page"
    for k, row in clients.items():
        assert f">{k}</text>" in one.svg
        assert all(f">{count}</text>" in one.svg for count in row if count)

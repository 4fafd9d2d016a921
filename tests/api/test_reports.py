"""A party's report with its answer: plausible counts, and printable names."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fedplug.api.records import MOST
from fedplug.api.reports import MOST_PICTURES, Reports


def test_reports_travel_as_plain_data() -> None:
    given = Reports(
        seconds_total=2.0, seconds={"train": 1.5}, train={"loss": math.inf}, zones={"clear": 1.0}, churn=0.25,
        evaluation={"correct": 3, "task": {"hits": 2.0}}, pictures={"a": "{}"}, unpictured={"b": "why"},
        operations={"mul": [3, 0.5]}, unopened={"encrypted": "too few"}, opened_before={"encrypted": [1, 2]},
    )  # fmt: skip
    assert Reports.from_plain(given.to_plain()) == given
    assert Reports.from_plain({}) == Reports()
    assert Reports().to_plain() == {"seconds_total": 0.0}


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"log": {"a\nb": 1.0}}, r"log\.a b\.\[key\] is 'a\\nb': string should match"),
        ({"zones": {"x" * 201: 1.0}}, "at most 200 characters"),
        ({"operations": {"mul": [1]}}, r"operations\.mul is a list: .*at least 2"),
        ({"operations": {"mul": [1, -0.5]}}, r"operations\.mul\.1 is -0.5"),
        ({"operations": {"mul": [1, 1e307]}}, r"operations\.mul: 1e\+307 seconds must be below"),
        ({"operations": {"mul": [1e307, 1]}}, r"operations\.mul: 1e\+307 operations must be a whole number below"),
        ({"operations": {"mul": [1e-300, 1]}}, r"operations\.mul: 1e-300 operations must be a whole number"),
        ({"seconds_total": 1e308}, r"seconds_total is 1e\+308"),
        ({"seconds": {"train": math.inf}}, r"seconds\.train is inf"),
        ({"opened_before": {"clear": [MOST]}}, r"opened_before\.clear\.0 is "),
        ({"log": {f"n{i}": 1.0 for i in range(1001)}}, "log is a dict: .*at most 1000 items"),
        ({"train": {f"n{i}": 1.0 for i in range(1001)}}, "train is a dict: .*at most 1000 items"),
        ({"operations": {f"n{i}": [1, 1.0] for i in range(1001)}}, "operations is a dict: .*at most 1000 items"),
        ({"unopened": {f"n{i}": "" for i in range(1001)}}, "unopened is a dict: .*at most 1000 items"),
        ({"opened_before": {"clear": [1] * 1001}}, "opened_before.clear is a list: .*at most 1000 items"),
        ({"churn": "much"}, "churn is 'much'"),
        ({"speed": 1}, "speed is 1: unexpected"),
    ],
)
def test_what_the_server_cannot_compute_with_is_refused_by_name(plain: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Reports.from_plain(plain)


def test_reasons_are_one_line() -> None:
    found = Reports.from_plain({"unopened": {"clear": "no\r\x1b[2Jroom" + "y" * 900}})
    assert found.unopened["clear"].startswith("no  [2Jroom")
    assert len(found.unopened["clear"]) == 500


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"pictures": {f"p{i}": "0" for i in range(MOST_PICTURES + 1)}}, "at most 16 items"),
        ({"pictures": ["0"]}, "pictures is a list: input should be a valid dictionary"),
        ({"pictures": {"x": {"kind": "box"}}}, "pictures.x is a dict: input should be a valid string"),
        ({"pictures": {"x": "0" * 2_000_001}}, "at most 2000000 characters"),
        ({"pictures": {"x" * 201: "0"}}, "at most 200 characters"), ({"pictures": {5: "0"}}, "valid string"),
        ({"unpictured": {"x": 5}}, "unpictured.x is 5: input should be a valid string"),
    ],
)  # fmt: skip
def test_pictures_that_arrive_are_text_of_bounded_size(wrong: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Reports.from_plain(wrong)

"""A party's report with its answer: plausible counts, and printable names."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from fedplug.api.records import MOST
from fedplug.api.reports import MOST_PICTURES, Evaluated, Reports, drawn
from hypothesis import given
from hypothesis import strategies as st


def test_reports_travel_as_plain_data() -> None:
    given = Reports(
        seconds_total=2.0, seconds={"train": 1.5}, train={"loss": math.inf}, zones={"clear": 1.0}, churn=0.25,
        evaluation=Evaluated(3, 4, 2.5, 1, 2, personal_correct=0.0, task={"hits": 2.0}),
        operations={"mul": [3, 0.5]}, unopened={"encrypted": "too few"}, opened_before={"encrypted": [1, 2]},
    )  # fmt: skip
    assert Reports.from_plain(given.to_plain()) == given
    assert Reports.from_plain({}) == Reports()
    assert Reports().to_plain() == {"seconds_total": 0.0}


@given(st.integers(0, 50), st.integers(0, 50))
def test_there_are_no_more_right_answers_than_questions(correct: int, count: int) -> None:
    plain = {"correct": correct, "count": count, "loss": 0.0, "own_correct": 0, "own_count": 0}
    if correct <= count:
        assert Evaluated.from_plain(plain).correct == correct
    else:
        with pytest.raises(ValueError, match=f"evaluation.correct is {correct}.* of {count}.* examples"):
            Evaluated.from_plain(plain)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 3.5}, {"count": math.nan}, {"count": math.inf}, {"correct": -1}, {"correct": math.nan},
        {"own_correct": 3}, {"personal_correct": 5}, {"personal_own_correct": 3}, {"count": 2.0**53},
        {"own_count": 1e300},
    ],
    ids=str,
)  # fmt: skip
def test_an_evaluation_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    right = {"correct": 1, "count": 4, "loss": 0.0, "own_correct": 0, "own_count": 2}
    with pytest.raises(ValueError, match=r"evaluation\..* examples"):
        Reports.from_plain({"evaluation": {**right, **changes}})


@pytest.mark.parametrize(("loss", "fits"), [(math.nan, True), (math.inf, True), (1e300, True), (-math.inf, False)])
def test_a_loss_may_diverge_and_not_be_less_than_any_number(loss: float, fits: bool) -> None:
    plain = {"correct": 1, "count": 4, "loss": loss, "own_correct": 0, "own_count": 2}
    if fits:
        assert repr(Evaluated.from_plain(plain).loss) == repr(loss)
    else:
        with pytest.raises(ValueError, match=r"evaluation\.loss is -inf"):
            Evaluated.from_plain(plain)


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"log": {"a\nb": 1.0}}, r"the name 'a\\nb' holds what cannot be printed"),
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


def test_shares_are_of_one_answer() -> None:
    own = {"personal_correct": 2, "personal_own_correct": 2, "personal_task": {"pixels": 2.0}}
    assert Evaluated(3, 4, 2.0, 1, 2, task={"pixels": 6.0}, **own).shares() == Evaluated(
        0.75, 1, 0.5, 0.5, 1, personal_correct=0.5, personal_own_correct=1.0, task={"pixels": 1.5},
        personal_task={"pixels": 0.5},
    )  # fmt: skip
    assert Evaluated(0, 0, 0.0, 0, 0).shares() == Evaluated(0, 0, 0.0, 0, 0)


def test_what_components_draw_travels_as_json_and_what_cannot_is_named() -> None:
    good = {"counts": np.arange(2), "mark": np.float32(0.5)}
    figures: dict[Any, Any] = {"a": good, "b": object(), "": 1, "c\n": 1, 5: 1}
    texts, left_out = drawn(figures)
    assert not figures, "they are taken"
    assert {name: json.loads(text) for name, text in texts.items()} == {"a": {"counts": [0, 1], "mark": 0.5}}
    assert left_out.keys() == {"b", "", "c\n", "5"}
    assert "its name must be text" in left_out["5"]
    plain = {"seconds_total": 0.0, "pictures": texts, "unpictured": {"y": "why"}}
    assert Reports.from_plain(plain).to_plain() == plain
    many, rest = drawn({f"p{i}": "x" * 2_000_000 if i == 3 else i for i in range(MOST_PICTURES + 3)})
    assert len(many) == MOST_PICTURES
    assert rest.keys() == {"p3", "p17", "p18"}


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

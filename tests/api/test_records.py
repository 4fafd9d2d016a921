"""Records as plain data and back: the result is equal, and errors are named."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from fedplug.api.records import Amount, Count, Number, Record, Text, json_ready
from hypothesis import given, settings
from hypothesis import strategies as st


class Part(Record):
    weight: Amount
    names: list[Text] = dataclasses.field(default_factory=list)


class Whole(Record):
    count: Count
    value: Number
    parts: dict[int, Part] = dataclasses.field(default_factory=dict)
    note: Text = ""

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("thirteen is refused")


NUMBERS = st.floats(allow_nan=False)
PARTS = st.builds(Part, st.floats(0, 1e9), st.lists(st.text(max_size=5), max_size=3))
WHOLES = st.builds(
    Whole, st.integers(14, 2**40), NUMBERS, st.dictionaries(st.integers(0, 99), PARTS, max_size=3), st.text(max_size=9)
)


@settings(max_examples=40)
@given(WHOLES)
def test_a_record_comes_back_from_plain_data_and_from_json(whole: Whole) -> None:
    assert Whole.from_plain(whole.to_plain()) == whole
    assert Whole.from_json(whole.to_json()) == whole
    json.loads(whole.to_json(), parse_constant=pytest.fail)


def test_empty_fields_with_a_default_are_not_written() -> None:
    assert Whole(1, 0.0).to_plain() == {"count": 1, "value": 0.0}
    assert Whole(1, 0.0, {2: Part(1.0)}, "x").to_plain() == {
        "count": 1, "value": 0.0, "parts": {2: {"weight": 1.0}}, "note": "x"
    }  # fmt: skip


def test_json_spells_what_it_has_no_number_for() -> None:
    assert json.loads(Whole(1, -math.inf).to_json()) == {"count": 1, "value": "-inf"}
    assert json.loads(Whole(1, math.nan).to_json()) == {"count": 1, "value": None}
    assert math.isnan(Whole.from_json('{"count": 1, "value": null}').value)
    assert Whole(1, 2.0).to_json(indent=1).splitlines()[0] == "{"


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"value": 1.0}, "count: field required"),
        ({"count": -1, "value": 1.0}, "count is -1: input should be greater than or equal to 0"),
        ({"count": 1.5, "value": 1.0}, "count is 1.5: "),
        ({"count": 1, "value": "1"}, "value is '1': "),
        ({"count": 1, "value": True}, "value is True: "),
        ({"count": 1, "value": 1.0, "nore": "x"}, "nore is 'x': unexpected keyword argument"),
        ({"count": 1, "value": 1.0, "parts": {3: {"weight": math.inf}}}, r"parts\.3\.weight is inf: "),
        ({"count": 1, "value": 1.0, "parts": {3: {"weight": 1.0, "names": [1]}}}, r"parts\.3\.names\.0 is 1: "),
        ({"count": 13, "value": 1.0}, "^thirteen is refused$"),
        ([], "^it is a list: "),
    ],
)
def test_the_first_field_that_is_wrong_is_named_with_value_and_rule(plain: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Whole.from_plain(plain)


def test_a_key_of_another_party_forges_no_line_of_a_log() -> None:
    with pytest.raises(ValueError, match="unexpected keyword") as caught:
        Whole.from_plain({"count": 1, "value": 1.0, "\x1b[2J\nnote: all is well": 1})
    assert str(caught.value).isprintable()


def test_what_is_no_json_is_said() -> None:
    with pytest.raises(ValueError, match="invalid JSON"):
        Whole.from_json('{"count": 1')


def test_numbers_that_json_does_not_know() -> None:
    plain = json_ready({"loss": math.nan, "epsilon": math.inf, "deep": [(1.5, -math.inf)]})
    assert json.loads(json.dumps(plain, allow_nan=False)) == {"loss": None, "epsilon": "inf", "deep": [[1.5, "-inf"]]}

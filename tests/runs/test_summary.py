"""What ran, on what: written as `summary.json` and read back."""

from __future__ import annotations

import json

import pytest
from fedplug.runs.summary import Summary
from row_toys import a_summary


def test_a_summary_comes_back_from_json_with_clients_by_number() -> None:
    given = a_summary(assessments={"acme.groups": {"purity": 0.75}}, resumed=True)
    again = Summary.from_json(given.to_json(indent=2))
    assert again == given
    assert again.class_distribution.clients == {0: [5, 7], 1: [0, 9]}
    assert again.plan[0] == ("negotiate_mask", "paraaegis.vote", "encrypt 25%")
    assert "assessments" not in json.loads(a_summary().to_json())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": -1}, "parameters is -1"),
        ({"resumed": "maybe"}, "resumed is 'maybe'"),
        ({"plan": [("a", "b")]}, r"plan\.0"),
        ({"class_distribution": {"classes": ["a"], "clients": {"x": [1]}}}, r"class_distribution\.clients\.x"),
        ({"class_distribution": {"classes": ["a"], "clients": {0: [-1]}}}, r"class_distribution\.clients\.0\.0 is -1"),
        ({"versions": {"numpy": 2}}, r"versions\.numpy is 2"),
    ],
)
def test_a_field_that_cannot_be_is_refused_by_its_name(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        a_summary(**changes)

"""Comparing what is stated with what is reckoned again: every kind of difference has its place and both values."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug_evidence.rebuilt import CLOSE, own_uses, unlike


@pytest.mark.parametrize(
    ("stated", "again", "problems"),
    [
        ({"a": 1.0}, {"a": 1.0 + CLOSE / 2}, []),
        ({"a": 1.0}, {"a": 1.0 + 3 * CLOSE}, ["f, a: 1.0, and reckoned again 1.000003"]),
        ({"a": 1}, {"a": True}, ["f, a: 1, and reckoned again True"]),
        ({"a": "x"}, {"a": None}, ["f, a: 'x', and reckoned again None"]),
        ({"a": 1}, {}, ["f, a: 1, and reckoned again there is none"]),
        ({}, {"a": 1}, ["f, a: it is missing, and reckoned again 1"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["f, a, 1: 2, and reckoned again 3"]),
        ({"a": [1, 2]}, {"a": [1]}, ["f, a: [1, 2], and reckoned again [1]"]),
        ({"a": "inf"}, {"a": 1e300}, ["f, a: 'inf', and reckoned again 1e+300"]),
        ({"a": {"b": {"c": 0.0}}}, {"a": {"b": {"c": 0.0}}}, []),
    ],
)
def test_differences_are_named(stated: Any, again: Any, problems: list[str]) -> None:
    assert [*unlike(stated, again, "f")] == problems


def test_own_files_of_a_recipe_are_found_wherever_they_stand() -> None:
    plain = {"protect": {"clear": [{"use": "halve.py:Halve"}, {"use": "std.clip"}]}, "model": {"use": "net.py:Net"}}
    assert sorted(own_uses(plain)) == ["halve.py", "net.py"]
    assert not [*own_uses({"model": {"use": "std.mlp"}, "name": "x.py:Y"})]

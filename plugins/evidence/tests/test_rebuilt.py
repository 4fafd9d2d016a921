"""Comparing the stated and the recomputed ledger: every difference is reported with its place and both values."""

from __future__ import annotations

from typing import Any

import pytest
from fedplug_evidence.rebuilt import CLOSE, own_files, own_uses, unlike


@pytest.mark.parametrize(
    ("stated", "again", "problems"),
    [
        ({"a": 1.0}, {"a": 1.0 + CLOSE / 2}, []),
        ({"a": 1.0}, {"a": 1.0 + 3 * CLOSE}, ["f, a: 1.0, but recomputing gives 1.000003"]),
        ({"a": 1}, {"a": True}, ["f, a: 1, but recomputing gives True"]),
        ({"a": "x"}, {"a": None}, ["f, a: 'x', but recomputing gives None"]),
        ({"a": 1}, {}, ["f, a: 1, but recomputing gives none"]),
        ({}, {"a": 1}, ["f, a: missing, but recomputing gives 1"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["f, a, 1: 2, but recomputing gives 3"]),
        ({"a": [1, 2]}, {"a": [1]}, ["f, a: [1, 2], but recomputing gives [1]"]),
        ({"a": "inf"}, {"a": 1e300}, ["f, a: 'inf', but recomputing gives 1e+300"]),
        ({"a": {"b": {"c": 0.0}}}, {"a": {"b": {"c": 0.0}}}, []),
    ],
)
def test_differences_are_named(stated: Any, again: Any, problems: list[str]) -> None:
    assert [*unlike(stated, again, "f")] == problems


def test_files_of_a_recipe_are_found_wherever_they_stand() -> None:
    weights = {"model": {"base": {"file": "weights.pt", "sha256": "ab"}, "use": "net.py:Net", "sha256": "cd"}}
    assert dict(own_files(weights)) == {"weights.pt": "ab", "net.py": "cd"}
    plain = {"protect": {"clear": [{"use": "halve.py:Halve"}, {"use": "std.clip"}]}, "model": {"use": "net.py:Net"}}
    assert sorted(own_uses(plain)) == ["halve.py", "net.py"]
    assert not [*own_uses({"model": {"use": "std.mlp"}, "name": "x.py:Y"})]

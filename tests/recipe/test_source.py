"""Positions of what a recipe says, and its values."""

from __future__ import annotations

from fedplug.recipe.source import Source, leaves, too_long
from fedplug_runs import yaml_source


def test_positions_of_keys_and_values() -> None:
    source = yaml_source.read_text("a: 1\nb:\n  - x\n  - {c: d}\n", "f")
    assert str(source.where(("a",), key=True)) == "f:1:1"
    assert str(source.where(("a",))) == "f:1:4"
    assert str(source.where(("b", 1))) == "f:4:5"
    assert str(source.where(("b", 1, "c"), key=True)) == "f:4:6"
    assert str(source.where(("b", 1, "c"))) == "f:4:9"
    assert str(source.where(("b", 1, "absent"))) == "f:4:5"


def test_plain_data_has_its_keys_for_positions() -> None:
    assert str(Source("recipe", {"a": [1]}).where(("a", 0))) == "recipe.a.0"


def test_leaves_are_what_is_neither_mapping_nor_list() -> None:
    found = {path: value for path, value, _ in leaves({"a": [1, {"b": None}], "c": "x", "d": {}})}
    assert found == {("a", 0): 1, ("a", 1, "b"): None, ("c",): "x"}
    assert [too_long(value) for value in (2**64 - 1, 2**64, 1e300, "9" * 99)] == [False, True, False, False]

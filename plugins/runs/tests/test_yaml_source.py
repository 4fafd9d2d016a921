"""YAML with positions: scalars by YAML 1.2, refusals with places, and output that reads back."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
from fedplug_runs import shelf, yaml_source
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recipe_texts import PLAIN_DATA


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.0e-5", 1e-5),
        ("1e5", 1e5),
        ("-2E+3", -2000.0),
        (".5", 0.5),
        ("5.", 5.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        ("+7", 7),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("2020-01-01", "2020-01-01"),
        ("'1'", "1"),
        ("=", "="),
        ("!!str 5", "5"),
        ("", None),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    source = yaml_source.read_text(f"x: {text}", "f")
    assert source.problems == []
    assert source.data == {"x": value}
    assert type(source.data["x"]) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", r"f:3:1: duplicate key 'a', first given at f:1:1"),
        ("a: {b: 1, b: 2}", r"f:1:11: duplicate key 'b'"),
        ("a: [1\nb: 2", r"f:2:1: not YAML: .*did not find expected|f:2:\d: not YAML"),
        ("a: 'x", r"f:1:\d+: not YAML: .*end of stream"),
        ("a:\n\t- 1", r"f:2:1: not YAML: a tab cannot indent in YAML; write spaces"),
        ("a: \x01", r"f:1:4: not YAML: special characters"),
        ("a: !!python/object:os.system x", r"f:1:4: the tag .*python/object.* is not supported"),
        ("a: !secret x", r"f:1:4: the tag !secret is not supported"),
        ("a: &x [*x]", r"f:1:4: an alias refers to the value that contains it"),
        ("1: x", r"f:1:1: a key must be text, not '1'"),
        ("? [a]\n: x", r"f:1:3: a key must be text, not a list"),
        ("b: &b {x: 1}\nc: {<<: *b}", r"f:2:5: merge keys"),
        ("a: 1\n---\nb: 2", r"f:2:1: not YAML: .*another document"),
        ("a: !!int x", r"f:1:4: 'x' cannot be read as int"),
        ("a: *nope", r"f:1:4: not YAML: found undefined alias"),
        ("[" * 1000, r"f: nested too deeply"),
    ],
)
def test_bad_yaml_is_refused_with_its_position(text: str, expected: str) -> None:
    found = [str(problem) for problem in yaml_source.read_text(text, "f").problems]
    assert len(found) == 1
    assert re.match(expected, found[0]), found


def test_aliases_are_understood_but_may_not_explode() -> None:
    assert yaml_source.read_text("a: &x {b: 1}\nc: *x", "f").data == {"a": {"b": 1}, "c": {"b": 1}}
    bomb = "a0: &a0 [1, 1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 30))
    assert "use fewer aliases" in str(yaml_source.read_text(bomb, "f").problems[0])


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.text("abc", min_size=1), PLAIN_DATA, max_size=4))
def test_what_dump_writes_reads_back_unchanged(data: dict[str, Any]) -> None:
    if "'<<'" not in repr(data):  # a merge key is refused, in whatever quotes
        source = yaml_source.read_text(yaml_source.dump(data), "f")
        assert source.problems == []
        assert source.data == data
        assert repr(source.data) == repr(data)  # 1 is not 1.0, and not True


def test_a_name_that_is_close_is_offered(tmp_path: Path) -> None:
    """A misspelt name, one without its ending, and one without the folder of recipes."""
    (tmp_path / "recipes").mkdir()
    for name in ("mine.yaml", "recipes/fedavg.yaml"):
        (tmp_path / name).write_text("name: x")

    def said(name: str) -> str:
        (problem,) = shelf.read(tmp_path / name).problems
        return str(problem).partition("cannot read the recipe: ")[2]

    assert said("rounds=3") == "there is no such file; to change a value of a recipe, write --set rounds=3"
    assert said("mime.yaml") == f"there is no such file; did you mean {tmp_path / 'mine.yaml'}?"
    assert said("fedavg") == f"there is no such file; did you mean {tmp_path / 'recipes/fedavg.yaml'}?"
    assert said("recipes/fedavgg.yaml") == f"there is no such file; did you mean {tmp_path / 'recipes/fedavg.yaml'}?"
    assert said("other.yaml") == "there is no such file"

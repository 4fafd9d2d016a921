"""Reads what a stranger may have written: JSON and YAML that are bounded, plain, and mean one thing alone."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from fedplug.recipe import yaml_source

DEEPEST = 64
"""Lists and mappings inside each other; evidence has a dozen."""
_BRACKETS = re.compile(rb'"(?:[^"\\]+|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
"""A text, also one that does not end, or a bracket; never tries a byte twice."""


def read_json(data: bytes) -> Any:
    """Plain data of JSON.

    Raises:
        ValueError: it is no JSON in UTF-8, is nested too deeply, names a key twice, or has a number that JSON has not.
    """
    depth = 0
    for found in _BRACKETS.finditer(data):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(found[0], 0)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return _sound(json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number))


def read_yaml(data: bytes) -> Any:
    """Plain data of YAML, of the types that JSON has.

    Raises:
        ValueError: it is no YAML in UTF-8, is nested too deeply, names a key twice, or has aliases, anchors or tags.
    """
    text, depth = data.decode("utf-8"), 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            if getattr(event, "anchor", None) is not None:
                raise ValueError("it has anchors or aliases")
            if getattr(event, "tag", None) is not None:
                raise ValueError("it has tags")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise ValueError("it is nested too deeply")
    except yaml.YAMLError as error:
        raise ValueError(str(error).splitlines()[0]) from error
    source = yaml_source.read_text(text, "line")
    if source.problems:
        raise ValueError(f"line {source.problems[0].position.line}: {source.problems[0].message}")
    return _sound(source.data)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a key twice")
    return found


def _no_number(token: str) -> Any:
    raise ValueError(f"{token} is no number")


def _sound(plain: Any) -> Any:
    """The same, where it can be written again: no half of a character, no number without end."""
    json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    return plain

"""Reads files that a stranger may have written: JSON and YAML that are bounded, plain and unambiguous."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from fedplug_runs import yaml_source

DEEPEST = 64
"""The largest depth of nested lists and mappings. Evidence needs a dozen."""
_BRACKETS = re.compile(rb'"(?:[^"\\]+|\\.)*"?|[\[{]|[\]}]', re.DOTALL)
"""A string, terminated or not, or a bracket. It never tries a byte twice."""


def read_json(data: bytes) -> Any:
    """Plain data of JSON.

    Raises:
        ValueError: the data are not JSON in UTF-8, are nested too deeply, repeat a key, or have a number that JSON does
            not allow.
    """
    depth = 0
    for found in _BRACKETS.finditer(data):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(found[0], 0)
        if depth > DEEPEST:
            raise ValueError("it is nested too deeply")
    return _sound(json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_number))


def read_yaml(data: bytes) -> Any:
    """Plain data of YAML, limited to the types of JSON.

    Raises:
        ValueError: the data are not YAML in UTF-8, are nested too deeply, repeat a key, or have aliases, anchors or
            tags.
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
        raise ValueError("it repeats a key")
    return found


def _no_number(token: str) -> Any:
    raise ValueError(f"{token} is not a number")


def _sound(plain: Any) -> Any:
    """Returns the data unchanged. Fails if they cannot be written again: lone surrogates, or numbers without end."""
    json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
    return plain

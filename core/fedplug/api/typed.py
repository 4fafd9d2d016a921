"""The types of what arrives: whether a block's fields are of theirs, and how a value or a text is shown to people."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedplug.api.types import Block, Plan

MOST = 2**64
"""Whole numbers that arrive as a size, a count or a divisor are smaller: no number of a model comes near."""

MOST_EXAMPLES = 2**32
"""Training examples of one client: nobody is believed to have more."""


def shown(value: Any) -> str:
    """What a malformed value is, in a few words; never the value of an array."""
    if isinstance(value, np.ndarray | dict | list | Block | Plan):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and value.bit_length() > 64:  # Python writes no number of more than 4,300 digits
        return f"a whole number of {value.bit_length()} bits"
    return repr(value)[:40]


def one_line(text: str, most: int = 500) -> str:
    """What another party says, as one line without control characters, and no longer than `most`.

    Whoever writes to a terminal could otherwise clear it or forge lines of it, and fill a disk with one reason.
    """
    line = "".join(char if char.isprintable() else " " for char in text[: most + 1]).strip()
    return line if len(text) <= most else f"{line[: most - 3]}..."


def is_count(value: Any) -> bool:
    """Whether this is a whole number, 0 or more, that can count something."""
    return type(value) is int and 0 <= value < MOST


def is_number(value: Any) -> bool:
    """Whether this is a finite number, 0 or more."""
    return is_count(value) or (isinstance(value, float) and 0 <= value < math.inf)


def block_problem(block: Any) -> str:
    """Which field of a `Block` that arrived is not of its type, and the rule; empty if all are.

    Whether the values are finite is seen where they are summed, which costs no pass of its own.
    """
    if not isinstance(block.zone, str):
        return f"its zone is {shown(block.zone)}, which must be a name"
    for name in ("size", "contributors"):
        if not is_count(getattr(block, name)):
            return f"its {name} is {shown(getattr(block, name))}, which must be a whole number >= 0"
    for name, kind in (("values", np.float32), ("positions", np.uint32)):
        if problem := _array_problem(getattr(block, name), kind, block.size):
            return f"its {name} are {problem}"
    where = block.positions
    if where is not None and not (where[1:] > where[:-1]).all():
        return "its positions must be strictly ascending"
    if not isinstance(block.ciphertexts, tuple) or not all(isinstance(part, bytes) for part in block.ciphertexts):
        return f"its ciphertexts are {shown(block.ciphertexts)}, which must be bytes, one after the other"
    if not isinstance(block.sealed_by, str | None):
        return f"its sealed_by is {shown(block.sealed_by)}, which must be a component's name"
    if isinstance(block.divisor, np.ndarray):
        if problem := _array_problem(block.divisor, np.float64, block.size):
            return f"its divisors are {problem}"
    elif not is_number(block.divisor):
        return f"its divisor is {shown(block.divisor)}, which must be a number >= 0, or one for each scalar"
    if not isinstance(block.weighted, bool):
        return f"its weighted is {shown(block.weighted)}, which must be true or false"
    return _meta_problem(block.meta)


def _array_problem(array: Any, kind: type[np.generic], size: int) -> str:
    if array is None or (isinstance(array, np.ndarray) and array.dtype == kind and array.shape == (size,)):
        return ""
    rule = f"which must be {np.dtype(kind).name}[{size}]: one for each scalar"
    if not isinstance(array, np.ndarray):
        return f"{shown(array)}, {rule}"
    return f"{array.dtype}{list(array.shape)}, {rule}"


def _meta_problem(meta: Any) -> str:
    """Meta is plain data by name. Without recursion: a sender chooses how deeply lists lie in lists."""
    if not isinstance(meta, dict) or not all(isinstance(key, str) for key in meta):
        return f"its meta is {shown(meta)}, which must be plain data by name"
    left = list(meta.values())
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if not all(isinstance(key, str | int) for key in value):
                return "its meta holds a dict whose keys are neither names nor whole numbers"
            left.extend(value.values())
        elif isinstance(value, list | tuple):
            left.extend(value)
        elif not isinstance(value, int | float | str | bytes | np.ndarray | np.generic | None):
            return (
                f"its meta holds {kind_of(value)}, which must be numbers, text, bytes, arrays, or lists and "
                "dicts of these"
            )
    return ""


def kind_of(value: Any) -> str:
    """What a value is, with its article: `a set`, `an object`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def with_keys(value: Any) -> Any:
    """The value, all of whose dictionaries, however deep, have keys that arrive as they were: a tuple would as a list.

    Raises:
        TypeError: one has another key.
    """
    left, seen = [value], set()
    while left:
        item = left.pop()
        if type(item) not in (dict, list, tuple) or id(item) in seen:
            continue
        seen.add(id(item))
        if type(item) is dict:
            if strange := [key for key in item if not isinstance(key, str | int | float | bytes | np.generic | None)]:
                raise TypeError(f"a dict has {kind_of(strange[0])} as a key; use text or whole numbers as keys")
            left += item.values()
        else:
            left += item
    return value

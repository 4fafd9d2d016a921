"""The parts of any value by where they are: by them two answers, two states or two messages are compared."""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
from fedplug.api.blocks import Layout
from fedplug.api.facts import Facts
from fedplug.api.roles import Component

KEY = 16
"""Bytes of the shortest key."""
_DEEP = 12
_WHOLE = Facts, Layout, type, types.ModuleType, types.BuiltinFunctionType


def leaves(value: Any, path: str = "", deep: int = 0) -> dict[str, Any]:
    """The numbers, words and arrays in a value, by path: in containers, records, objects, and in what functions hold.

    Facts, classes and modules count by their type alone, and a component by its options too.
    """
    if isinstance(value, float):
        return {path: "nan" if math.isnan(value) else value}
    if isinstance(value, bool | int | str | bytes | None):
        return {path: value}
    if isinstance(value, np.ndarray | np.generic):
        return {path: (value.dtype.str, value.shape, value.tobytes())}
    if deep > _DEEP or isinstance(value, _WHOLE):
        return {path: type(value).__name__}
    parts: dict[str, Any] = {}
    if isinstance(value, Component):
        parts = {" options": str(value.options)}
    elif isinstance(value, Mapping):
        parts = {f"[{key!r}]": inner for key, inner in value.items()}
    elif isinstance(value, list | tuple):
        parts = {f"[{number}]": inner for number, inner in enumerate(value)}
    elif isinstance(value, Set):
        parts = {f"[{number}]": inner for number, inner in enumerate(sorted(value, key=repr))}
    elif isinstance(value, functools.partial):
        parts = {" function": value.func, "()": (*value.args, value.keywords)}
    elif inspect.ismethod(value):
        parts = {" method": value.__func__, " of": value.__self__}
    elif inspect.isfunction(value):
        held = inspect.getclosurevars(value).nonlocals
        parts = {" name": value.__qualname__, " defaults": value.__defaults__, " variables": held}
    elif hasattr(value, "__dict__"):
        parts = {f" {type(value).__name__}.{name}": inner for name, inner in vars(value).items()}
    found = {path: type(value).__name__}
    for key, inner in parts.items():
        found |= leaves(inner, f"{path}{key}", deep + 1)
    return found


def changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The first path at which two values differ; empty where they do not."""
    return next((at for at in [*one, *other] if at not in one or at not in other or one[at] != other[at]), "")


def all_told(memory: Mapping[str, Any], data: bytes) -> bool:
    """Whether data hold all that may be a key in a memory, so that nothing is left that its owner alone knows.

    A single one may be a nonce or a public key, which everybody may see. What is no string of bytes counts as not told.
    """
    held = [leaf for leaf in leaves(memory).values() if len(str(leaf)) >= KEY]
    return bool(held) and all(isinstance(leaf, bytes) and leaf in data for leaf in held)

"""A module's plain attributes, other than parameters and buffers, reset to their first values."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_HELD = (torch.Tensor, np.ndarray)


class Attributes:
    """Numbers, texts, tensors and arrays that a module assigns to itself, and lists and dictionaries of such.

    The clients of a process share the module, so values of one client would reach the next. Names that begin with an
    underscore, other objects, and torch's own modules, which keep nothing there, do not change.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        owners = [part for part in module.modules() if not type(part).__module__.startswith("torch.nn.")]
        self._first = [
            (owner, {key: _Kept(value) for key, value in _own(owner).items() if getattr(value, "is_leaf", True)})
            for owner in owners
        ]

    def begin_anew(self) -> None:
        """Restores changed attributes, and removes new ones."""
        for owner, first in self._first:
            now = _own(owner)
            for key in now.keys() - first.keys():
                delattr(owner, key)
            for key, kept in first.items():
                if key not in now or not kept.is_still(now[key]):
                    setattr(owner, key, kept.again())


class _Kept:
    def __init__(self, value: Any) -> None:
        self._value, self._copied = value, copy.deepcopy(value)

    def is_still(self, value: Any) -> bool:
        """Whether the value is neither reassigned nor modified."""
        return (isinstance(value, _PLAIN) or value is self._value) and _alike(value, self._copied)

    def again(self) -> Any:
        self._value = copy.deepcopy(self._copied)
        return self._value


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether tensors have one type, shape and values; no where torch does not compare such, as with sparse ones."""
    try:
        return one.dtype == other.dtype and torch.equal(one, other)
    except (NotImplementedError, RuntimeError):
        return False


def _alike(value: Any, first: Any) -> bool:
    """Whether a value is the same as one of a reproducible kind; torch's counters of changes miss those by `.data`."""
    if type(value) is not type(first):
        return False
    if isinstance(value, dict):
        return [*value] == [*first] and _alike([*value.values()], [*first.values()])
    if isinstance(value, list | tuple):
        return len(value) == len(first) and all(map(_alike, value, first))
    if isinstance(value, torch.Tensor):
        return value.grad is None and equal(value, first)
    if isinstance(value, np.ndarray):
        return value.dtype == first.dtype and value.dtype != object and np.array_equal(value, first)
    return bool(value == first)


def _own(owner: torch.nn.Module) -> dict[str, Any]:
    """A module's plain attributes of reproducible kinds."""
    return {
        key: value for key, value in vars(owner).items()
        if not key.startswith("_") and key != "training" and _can_be_made_again(value)
    }  # fmt: skip


def _can_be_made_again(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_can_be_made_again, value.values()))
    if isinstance(value, list | set | tuple):
        return all(map(_can_be_made_again, value))
    return isinstance(value, (*_PLAIN, *_HELD))

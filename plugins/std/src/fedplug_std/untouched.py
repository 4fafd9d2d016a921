"""Whether a module still is what it was when it was copied, but for values that each client overwrites.

The clients of a process share one model. Its author's code may keep more on it than parameters and buffers, and carry
that to the next client. A new copy for each client prevents this, and takes longer than a small step of training. So a
client gets a new copy only where something was kept, or where nobody can tell.
"""

from __future__ import annotations

import collections
import enum
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import Any

import torch

from fedplug_std.attributes import equal

_HANDED_ON = {
    type(None), int, float, bool, complex, str, bytes, range, types.EllipsisType, types.FunctionType,
    types.BuiltinFunctionType, weakref.ref, torch.dtype, torch.device, torch.layout, torch.Size,
}  # fmt: skip
"""Kinds that `copy.deepcopy` hands on as they are: a copy of the module would have the same objects."""
_MAPPINGS, _OTHERS = {dict, collections.OrderedDict}, {list, tuple, set, frozenset}


class _Plain:
    """All of it is in its `__dict__`, as of every object that has one and is as small."""


class Held:
    """What a module holds: the objects, and where they are.

    Args:
        module: is looked through, with all that it leads to.

    Attributes:
        tensors: all that were found, in the order in which they were.
        known: whether everything is of a kind that can be looked through: numbers, text, functions, classes, tensors,
            modules, plain objects, and containers of these.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.tensors = list[torch.Tensor]()
        self._insides = list[tuple[Callable[[], Iterable[Any]], tuple[Any, ...]]]()
        self._seen = dict[int, Any]()
        self.known = self._look(module)

    def is_still(self) -> bool:
        """Whether the same objects are in the same places; says nothing of the values of tensors."""
        return self.known and all(_same(held(), before) for held, before in self._insides)

    def _look(self, value: Any) -> bool:
        if type(value) in _HANDED_ON or isinstance(value, type | enum.Enum) or id(value) in self._seen:
            return True
        self._seen[id(value)] = value
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
        for held in _insides(value):
            inside = tuple(held())
            self._insides.append((held, inside))
            if not all(map(self._look, inside)):
                return False
        plain = type(value).__basicsize__ == _Plain.__basicsize__ and hasattr(value, "__dict__")
        return plain or type(value) in _KNOWN


_KNOWN = {torch.Tensor, torch.nn.Parameter, *_MAPPINGS, *_OTHERS}


def _insides(value: Any) -> Iterator[Callable[[], Iterable[Any]]]:
    """Functions that give what is in a value now."""
    kind = type(value)
    if kind in _MAPPINGS:
        yield value.keys
        yield value.values
    elif kind in _OTHERS:
        yield value.__iter__
    if kind not in (dict, *_OTHERS) and hasattr(value, "__dict__"):
        yield vars(value).keys
        yield vars(value).values


def _same(now: Iterable[Any], before: tuple[Any, ...]) -> bool:
    found = tuple(now)
    return len(found) == len(before) and all(map(is_, found, before))


class Untouched:
    """Compares a copy of a module, which clients use, with the original, which nobody does.

    Args:
        original, copied: the modules.
        overwritten: tensors of the copy whose values each client sets.
    """

    def __init__(
        self, original: torch.nn.Module, copied: torch.nn.Module, overwritten: Iterable[torch.Tensor]
    ) -> None:  # fmt: skip
        first, self._held, free = Held(original), Held(copied), {id(tensor) for tensor in overwritten}
        self._known = self._held.known and len(first.tensors) == len(self._held.tensors)
        pairs = zip(self._held.tensors, first.tensors, strict=False)
        self._pairs = [(one, other) for one, other in pairs if id(one) not in free] if self._known else []
        self._module = copied

    def is_still(self, module: torch.nn.Module) -> bool:
        """Whether this is the copy, and holds what the original holds."""
        return (
            self._known and module is self._module and self._held.is_still()
            and all(tensor.grad is None and tensor._backward_hooks is None for tensor in self._held.tensors)
            and all(equal(one, other) for one, other in self._pairs)
        )  # fmt: skip

"""Finds components that keep something on themselves, or write to what the clients of a process share. What one client
leaves there would be in reach of the next, whose upload it could enter; and another process would not have it.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
import weakref
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedplug.api.base import Component
from fedplug.api.codec import Message, Packed
from fedplug.api.errors import ProtectionError, describe
from fedplug.api.outer_roles import Extension

_Watched = OrderedDict[int, tuple[weakref.ref[NDArray[Any]], bytes]]
_DRAWING = (np.random.Generator, np.random.RandomState, random.Random)
_CONTENTS = (np.ndarray, *_DRAWING)
_INSIDE: dict[type, bool] = {}
_MOST_SHARED, _MOST_MODELS = 16, 4
"""Arrays of messages, and models, that are looked at; those that were shared last."""
_COPIED = 1 << 20
"""Bytes of an array of which a copy is kept: comparing is faster than sums, and takes memory."""


class OwnState:
    """What the components of a process keep on themselves. Extensions look on, and may count what they see.

    Seen are attributes, what is in their lists, dictionaries, sets, arrays and tensors, and how far generators of
    random numbers have drawn; not what is inside other objects. A cached property follows from the options, and may
    appear; what is in it may not change after that.

    Args:
        components: by name; other objects are not looked at.
    """

    def __init__(self, components: Mapping[str, Any]) -> None:
        self._parts = {
            name: part for name, part in components.items()
            if isinstance(part, Component) and not isinstance(part, Extension)
        }  # fmt: skip
        self._found = ""
        self._shared: dict[bool, _Watched] = {False: OrderedDict(), True: OrderedDict()}

    def share(self, held: NDArray[Any] | Message, model: bool = False) -> None:
        """Has an array, or those of a message that was not sent as bytes, looked at as long as somebody holds it.

        A `model` is not crowded out by what comes in messages.

        Several clients of the process hold it, and numpy lets nobody write to it; `torch.from_numpy` does.
        """
        if isinstance(held, Packed):
            for part in held.beside:
                self.share(part)
        elif isinstance(held, np.ndarray):
            watched, most = self._shared[model], _MOST_MODELS if model else _MOST_SHARED
            known = watched.get(id(held))
            if known is None or known[0]() is not held:
                copied = _memory(held)
                watched[id(held)] = weakref.ref(held), _sums(held) if copied is None else bytes(memoryview(copied))
            watched.move_to_end(id(held))
            while len(watched) > most:
                watched.popitem(last=False)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Inside, components may run, and must be afterwards as they were, whether or not they fail.

        Raises:
            ProtectionError: one is not, or one was not before, and has the values of another client since; names the
                component and the attribute, behind the error that ended what ran inside. Or a shared array changed.
        """
        if self._found:  # nobody runs beside what was left
            raise ProtectionError(self._found)
        before = {name: {key: _kept(value) for key, value in vars(part).items()} for name, part in self._parts.items()}
        try:
            yield
        except Exception as error:
            self._compare(before)
            if self._found:
                raise ProtectionError(f"{describe(error)}; besides, {self._found}") from error
            raise
        self._compare(before)
        if self._found:
            raise ProtectionError(self._found)

    def _compare(self, before: Mapping[str, Mapping[str, Any]]) -> None:
        for name, part in self._parts.items():
            now = vars(part)
            for key in {**before[name], **now}:
                if key not in before[name] and _is_cached(part, key):
                    # Made anew, of the options alone: this client may have added to what it made.
                    del now[key]
                    getattr(part, key)
                elif not (key in now and key in before[name] and _same(before[name][key], now[key])):
                    remedy = "keep it in client.memory(self), or in client.cache where it can be made again"
                    if isinstance(now.get(key), _DRAWING):
                        remedy = "draw from client.rng(self), of which each client has its own in each round"
                    self._found = (
                        f"component {name} keeps {key} on itself, where the other clients of its process find it; "
                        f"{remedy}"
                    )
                    return
        for watched, place in [(arrays, place) for arrays in self._shared.values() for place in arrays]:
            array, before_it = watched[place]
            there = array()
            if there is None:
                del watched[place]
            elif (_memory(there) or _sums(there)) != before_it:
                self._found = (
                    f"a component changed an array of {there.size} {there.dtype} values that the clients of its "
                    "process share, a global model or what came in a message; change a copy, such as array.copy()"
                )
                return


def _is_cached(part: Component, key: str) -> bool:
    return isinstance(inspect.getattr_static(type(part), key, None), functools.cached_property)


def _kept(value: Any) -> Any:
    """The value, or of what can be changed in place a copy: of containers whole, of an array its checksum."""
    if not _has_inside(value):
        return value
    if isinstance(value, dict):
        return {key: _kept(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_kept(inner) for inner in value]
    if isinstance(value, set):
        return set(value)
    return value, _contents(value)


def _is_tensor(kind: type) -> bool:
    """Whether it is one of tensors, of whatever library: of something whose memory numpy may look at."""
    return hasattr(kind, "__dlpack__")


def _has_inside(value: Any) -> bool:
    """Whether what is in a value of its type is looked at: asked of every attribute, twice a message."""
    kind = type(value)
    if kind not in _INSIDE:
        _INSIDE[kind] = issubclass(kind, (dict, list, tuple, set, *_CONTENTS)) or _is_tensor(kind)
    return _INSIDE[kind]


def _same(before: Any, now: Any) -> bool:
    if not _has_inside(now):
        return before is now or (isinstance(now, str | int | float) and bool(before == now))
    if isinstance(now, dict):
        return isinstance(before, dict) and before.keys() == now.keys() and all(_same(before[k], now[k]) for k in now)
    if isinstance(now, list | tuple):
        return isinstance(before, list) and len(before) == len(now) and all(map(_same, before, now))
    if isinstance(now, set):
        return isinstance(before, set) and before == now
    return isinstance(before, tuple) and before[0] is now and before[1] == _contents(now)


def _memory(array: NDArray[Any]) -> bytes | None:
    """Where a small array lies that nobody can change; None of any other."""
    below: Any = array
    while isinstance(below, np.ndarray):
        below = below.base
    return below if isinstance(below, bytes) and len(below) <= _COPIED else None


def _sums(array: NDArray[Any]) -> bytes:
    """Of the array's words in rows of 256, by column and by row: a part of a checksum's time. No accident leaves all as
    they are; rows that change places change the sums of the rows.
    """
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = data.size // 2048 * 2048
    words = data[:whole].view(np.uint64).reshape(-1, 256)
    columns: NDArray[np.uint64] = words.sum(0)
    return columns.tobytes() + zlib.crc32(words.sum(1)).to_bytes(4) + data[whole:].tobytes()


def _contents(value: Any) -> int | str:
    """A checksum of an array or a tensor; of a generator of random numbers, where it is."""
    if _is_tensor(type(value)) and not isinstance(value, np.ndarray):
        try:
            value = np.from_dlpack(value.detach().cpu() if hasattr(value, "detach") else value)
        except (BufferError, RuntimeError, TypeError, ValueError):  # a kind that numpy has no name for
            return repr(value)
    match value:
        case np.ndarray():
            return zlib.crc32(np.ascontiguousarray(value).data)
        case np.random.Generator():
            return repr(value.bit_generator.state)
        case np.random.RandomState():
            return repr(value.get_state())
    return repr(value.getstate())

"""The source of a function or a class of a Python session, whole: with the imports and definitions that it needs.

A cell of a notebook says `class Net(nn.Module)`, and another one `from torch import nn`. What runs again elsewhere has
both. So each name that the source needs is looked up in the session: what an installed package has becomes an import, a
function or a class of the session its source, a number or a text itself. Anything else is in memory alone.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import dataclasses
import functools
import inspect
import linecache
import pickle
import re
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

_LOADS = {"LOAD_NAME", "LOAD_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
_ANNOTATIONS = __future__.annotations
_FUTURE = _ANNOTATIONS.compiler_flag


class NotWhole(Exception):
    """There is no source that runs alone; the message says why, as half a sentence."""


def whole_source(name: str, value: Any) -> str:
    """The text of a Python file that has `value`, a function or a class, under `name`.

    Raises:
        NotWhole: there is none.
    """
    collected = _Collected()
    collected.need(name, value)
    future = ["from __future__ import annotations\n"] if collected.future else []
    return "\n".join([*future, *sorted(collected.imports), "", "\n\n".join(collected.parts)]).strip() + "\n"


class _Collected:
    """What a file has to hold so far."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.parts: list[str] = []
        self.future = False
        self._named: dict[str, Any] = {}

    def need(self, name: str, value: Any, beside: dict[str, Any] | None = None) -> None:
        """Adds the value of a name; `beside` are the names of the session among which it was found."""
        if name in self._named:
            if self._named[name] is not value:
                raise NotWhole(f"two different things are named {name}")
            return
        self._named[name] = value
        if isinstance(value, ModuleType):
            if not _installed(value.__name__):
                raise NotWhole(f"it needs {name}, a module that is not installed")
            self.imports.add(f"import {value.__name__}" + ("" if value.__name__ == name else f" as {name}"))
        elif _is_plain(value):
            self.parts.append(f"{name} = {value!r}")
        elif home := _home(value):
            known = value.__name__
            self.imports.add(f"from {home} import {known}" + ("" if known == name else f" as {name}"))
        elif isinstance(value, type | FunctionType):
            self._define(name, value, beside)
        else:
            raise NotWhole(f"it needs {name}, a {type(value).__name__}")

    def _define(self, name: str, value: Any, beside: dict[str, Any] | None) -> None:
        """A function or a class of the session: what it needs, and then its source."""
        place, own = _Place.of(value, beside), value.__name__
        text = place.definition(value)
        if own != name:
            self.need(own, value, beside)
            self.parts.append(f"{name} = {own}")
            return
        self.future |= bool(place.future)
        code = compile(text, own, "exec", flags=place.future, dont_inherit=True)
        around = place.around
        for needed in dict.fromkeys(_loaded(code)):
            if needed == "__file__":
                raise NotWhole("it asks where its file is")
            if needed == own or needed not in around or re.fullmatch("__.*__", needed):
                continue
            if around[needed] is not getattr(builtins, needed, _NOTHING):
                self.need(needed, around[needed], around)
        self.parts.append(text)


_NOTHING = object()


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a definition is: its file, a line in it if that is known, the names around it, how it was compiled."""

    file: str
    line: int | None
    around: dict[str, Any]
    future: int = 0

    @classmethod
    def of(cls, value: Any, beside: dict[str, Any] | None = None) -> _Place:
        """A class does not know its line; a function in it does. One without is looked for in its module's file, or in
        the cells of a notebook, the last ones first, where it is among the names `beside`.
        """
        found = [value] if isinstance(value, FunctionType) else vars(value).values()
        for each in found:
            inner = getattr(each, "__func__", each)
            inner = inspect.unwrap(inner) if callable(inner) else inner
            if isinstance(inner, FunctionType):
                code, around = inner.__code__, inner.__globals__
                # From Python 3.13 on a dataclass holds a function of the module `dataclasses`.
                if around.get("__name__") == value.__module__ and linecache.getlines(code.co_filename, around):
                    return cls(code.co_filename, code.co_firstlineno, around, code.co_flags & _FUTURE)
        module = sys.modules.get(value.__module__)
        file = getattr(module, "__file__", None)
        if module is not None and file and getattr(module, value.__name__, None) is value and linecache.getlines(file):
            return cls(file, None, vars(module), _FUTURE if vars(module).get("annotations") is _ANNOTATIONS else 0)
        if beside is not None and beside.get("__name__") == value.__module__:
            for cell, held in reversed(linecache.cache.items()):
                if (
                    len(held) == 4
                    and held[1] is None
                    and re.search(rf"(?m)^class {value.__name__}\b", "".join(held[2]))
                ):
                    return cls(cell, None, beside)
        raise NotWhole(f"the source of {value.__name__} cannot be found")

    def definition(self, value: Any) -> str:
        """The lines that define it, decorators included."""
        lines = linecache.getlines(self.file, self.around)
        kinds = ast.ClassDef if isinstance(value, type) else ast.FunctionDef | ast.AsyncFunctionDef
        try:
            nodes = ast.parse("".join(lines)).body
        except SyntaxError as error:
            raise NotWhole(f"the source of {value.__name__} cannot be read") from error
        for node in reversed(nodes):
            if isinstance(node, kinds) and node.name == value.__name__ and node.end_lineno:
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                if self.line is None or first <= self.line <= node.end_lineno:
                    return "".join(lines[first - 1 : node.end_lineno]).rstrip("\n")
        raise NotWhole(f"{value.__name__} is not defined at the top of its file or cell")


def _loaded(code: CodeType) -> Iterator[str]:
    """The names that code looks up around it, inner functions and classes included."""
    import dis

    yield from (str(each.argval) for each in dis.get_instructions(code) if each.opname in _LOADS)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _loaded(inner)


def _is_plain(value: Any) -> bool:
    """Whether a value is its own source: a number, a text, None, or a list, a tuple or a dictionary of such."""
    if isinstance(value, tuple | list | set):
        return type(value) in (tuple, list, set) and all(map(_is_plain, value)) and value != set()
    if isinstance(value, Mapping):
        return type(value) is dict and all(map(_is_plain, [*value, *value.values()]))
    if type(value) is float:
        return abs(value) < float("inf")
    return value is None or type(value) in (bool, int, str, bytes)


def _home(value: Any) -> str:
    """The module of an installed package that has a class or a function under its name; empty where none has."""
    name = getattr(value, "__name__", None)
    if not isinstance(name, str) or not callable(value) or not re.fullmatch(r"[^\W\d]\w*", name):
        return ""
    home = getattr(value, "__module__", None) or pickle.whichmodule(value, name)  # type: ignore[attr-defined]
    module = sys.modules.get(home)
    return home if module and _installed(home) and getattr(module, name, None) is value else ""


@functools.cache
def _installed(name: str) -> bool:
    """Whether a module comes with Python or with a package, rather than from a file of the user's own."""
    from importlib.metadata import packages_distributions

    top = name.partition(".")[0]
    if top in ("__main__", "__mp_main__"):
        return False
    if top in sys.stdlib_module_names or top == "fedplug" or top.startswith("fedplug_"):
        return not name.startswith("fedplug_own_")
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return bool(re.search(r"[/\\](site|dist)-packages[/\\]", file)) or top in packages_distributions()

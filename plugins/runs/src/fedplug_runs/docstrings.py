"""What plugins say of themselves in their source files, read without importing them: lists stay fast."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from fedplug.recipe.catalog import Entry

_CLASS = re.compile(
    r"^class[ \t]+(\w+)\b[^\n:(]*(?:\([^)]*\))?\s*:[^\n\"']*\n\s*[rR]?(\"\"\"|''')(.*?)\2", re.MULTILINE | re.DOTALL
)
_MOST_HOPS = 4


def summary(entry: Entry) -> str:
    """First line of the docstring of what an entry offers; empty where there is no source file."""
    return next(iter(docstring(entry).splitlines()), "").strip()


def docstring(entry: Entry) -> str:
    """The docstring of what an entry offers, as it is written; empty where there is no source file."""
    if entry.made_of is not None:
        return (entry.made_of.__doc__ or "").strip()
    if entry.own is not None:
        return entry.own.docstring(entry.value.rpartition(":")[2])
    module, _, name = entry.value.partition(":")
    return docstring_of(module.strip(), name.partition("[")[0].strip())  # "[extra]" names optional requirements


def docstring_of(module: str, qualname: str, hops: int = 0) -> str:
    """The docstring of a class or a function, as it is written; empty where there is no source file or no docstring."""
    path = source_file(module)
    if path is None or hops > _MOST_HOPS:
        return ""
    # Most classes match the pattern; parsing every file would double the time that `fedplug list` takes.
    return _by_pattern(path).get(qualname) or _by_parsing(path, module, qualname, hops)


@functools.cache
def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


@functools.cache
def _by_pattern(path: Path) -> dict[str, str]:
    """The classes at the top of a file, with their docstrings."""
    return {match[1]: match[3].strip() for match in _CLASS.finditer(_text(path))}


def _by_parsing(path: Path, module: str, qualname: str, hops: int) -> str:
    """The same for what the pattern misses: functions, nested classes, one-line strings, names imported elsewhere."""
    try:
        body = ast.parse(_text(path)).body
    except (SyntaxError, ValueError):
        return ""
    outer, _, inner = qualname.partition(".")
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == outer:
            while inner:
                outer, _, inner = inner.partition(".")
                nested = [n for n in node.body if isinstance(n, ast.ClassDef) and n.name == outer]
                if not nested:
                    return ""
                node = nested[0]
            return (ast.get_docstring(node) or "").strip()
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == outer:
                    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                    base = package[: len(package) - node.level + 1] if node.level else []
                    origin = ".".join([*base, *filter(None, [node.module])])
                    return docstring_of(origin, ".".join(filter(None, [alias.name, inner])), hops + 1)
    return ""


def decorator_text(module: str, function: str, keyword: str) -> str:
    """The text that a decorator of a function at the top of a module is given as `keyword`; empty where there is none.

    Imports nothing.
    """
    path = source_file(module)
    try:
        body = ast.parse(_text(path)).body if path else []
    except (SyntaxError, ValueError):
        return ""
    calls = [
        call for node in body if isinstance(node, ast.FunctionDef) and node.name == function
        for call in node.decorator_list if isinstance(call, ast.Call)
    ]  # fmt: skip
    for given in (given for call in calls for given in call.keywords if given.arg == keyword):
        if isinstance(given.value, ast.Constant) and isinstance(given.value.value, str):
            return given.value.value
    return ""


def source_file(module: str) -> Path | None:
    """The source file of a module, without importing it or a package around it; None where there is none."""
    spec = _spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def package_folders(package: str) -> list[Path]:
    """The folders of a package, without importing it or a package around it; empty where there is none. One inside
    another package needs no `__init__.py`.
    """
    outer, *inner = package.split(".")
    spec = _spec(outer)
    folders = [Path(folder, *inner) for folder in (spec and spec.submodule_search_locations) or ()]
    return [folder for folder in folders if folder.is_dir()]


@functools.cache
def _spec(module: str) -> ModuleSpec | None:
    package = module.rpartition(".")[0]
    try:
        # For a name without dots, find_spec only asks the finders; for one with dots it would import the parents.
        if not package:
            return importlib.util.find_spec(module)
        around = _spec(package)
        folders = around and around.submodule_search_locations
        return PathFinder.find_spec(module, folders) if folders else None
    except (ImportError, ValueError):
        return None

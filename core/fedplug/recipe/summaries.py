"""First lines of docstrings, read from source files: what lists show of classes and functions that nobody imports."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_CLASS = re.compile(
    r"^class[ \t]+(\w+)\b[^\n:(]*(?:\([^)]*\))?\s*:[^\n\"']*\n\s*[rR]?(\"\"\"|''')[ \t]*([^\n]*)", re.MULTILINE
)
_MOST_HOPS = 4


def summary_of(module: str, qualname: str, hops: int = 0) -> str:
    """The first docstring line of a class or a function; empty where there is no source file or no docstring."""
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
    """The classes at the top of a file, with their summaries."""
    return {match[1]: match[3].partition(match[2])[0].strip() for match in _CLASS.finditer(_text(path))}


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
            return next(iter((ast.get_docstring(node) or "").splitlines()), "").strip()
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == outer:
                    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
                    base = package[: len(package) - node.level + 1] if node.level else []
                    origin = ".".join([*base, *filter(None, [node.module])])
                    return summary_of(origin, ".".join(filter(None, [alias.name, inner])), hops + 1)
    return ""


def source_file(module: str) -> Path | None:
    """The source file of a module, without importing it or a package around it; None where there is none."""
    spec = _spec(module)
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


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

"""Components of the user's own files among those that are installed, for one command: `--plugin my.py`.

The class `Thing` of `my.py` is offered as `my.Thing`, in the group of each of its roles. A recipe that names it is
resolved to `my.py:Thing`, as if that stood there: digest, copies and what other processes are sent are those of
`fedplug.recipe.own_files`, and a resolved recipe needs no further `--plugin`.
"""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from fedplug.api.base import Component
from fedplug.api.errors import PluginError
from fedplug.api.role_table import ROLES
from fedplug.recipe import own_files
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.option_errors import closest


def with_files(catalog: Catalog | None, files: Iterable[Path | str] | None) -> Catalog:
    """A catalog with the components of these files beside its own; None: beside what is installed.

    Raises:
        PluginError: a file is missing, cannot be run, or has no component or two of a name; two files have one name; a
            name is that of an installed component.
    """
    catalog = catalog or Catalog.discover()
    read = [_read(Path(file)) for file in dict.fromkeys(map(str, files or ()))]
    for name, count in Counter(own.name for own in {own.path: own for own in read}.values()).items():
        if count > 1:
            raise PluginError(f"--plugin: {count} files are named {name}, and so would be their components; rename one")
    groups = {group: dict(entries) for group, entries in catalog.groups.items()}
    for entry in (entry for own in read for entry in entries_of(own)):
        other = groups[entry.group].setdefault(entry.name, entry)
        if other is not entry and other.own != entry.own:
            raise PluginError(
                f"--plugin {entry.distribution}: {entry.title} is installed already, by {other.distribution} "
                f"{other.version}; rename the file or the class"
            )
    return Catalog(groups, catalog.strays, catalog.sections)


def entries_of(own: own_files.OwnFile) -> list[Entry]:
    """The components of a file, one entry for each role of a class; names that begin with `_` are left out.

    Raises:
        PluginError: the file cannot be run, defines a name twice, or has no component.
    """
    module = own_files.module_of(own)
    _require_distinct(own)
    stem = own.name.removesuffix(".py")
    made = [(name, value) for name, value in own_files.made_in(module).items() if not name.startswith("_")]
    entries = [
        Entry(f"{stem}.{name}", group, f"{own.name}:{name}", own.name, own.sha256[:12], value, own)
        for name, value in made
        for group, role in ROLES.items()
        if isinstance(value, type) and issubclass(value, role) and name == value.__name__
    ]
    if not entries:
        near = "; ".join(_nearly(made)) or "it defines no class"
        raise PluginError(
            f"{own.name} has no component: {near}. A component is a class of a role, such as class "
            f"Halve(fedplug.Protector); of a torch module or a function a recipe says use: {own.name}:NAME"
        )
    return entries


def in_file(use: str) -> list[Entry]:
    """The component that `my.py:Thing` names, one entry for each of its roles; the path is from the working directory.

    Raises:
        PluginError: as `entries_of`, or the file has no such component.
    """
    own, name = own_files.read(use, (), None), use.rpartition(":")[2]
    entries = entries_of(own)
    named = [entry for entry in entries if entry.value == f"{own.name}:{name}"]
    if not named:
        names = dict.fromkeys(entry.value.rpartition(":")[2] for entry in entries)
        raise PluginError(f"{own.name} has no component {name}; {closest(name, names)}")
    return named


def _read(path: Path) -> own_files.OwnFile:
    if path.suffix != ".py" or not own_files.is_own(f"{path.name}:X"):
        raise PluginError(f"--plugin {path}: it must be a Python file whose name has letters, digits and _ - . @ only")
    return own_files.read(f"{path}:X", (), None)


def _require_distinct(own: own_files.OwnFile) -> None:
    """Refuses a file with two classes of a name, of which Python keeps the second without a word."""
    lines: dict[str, list[int]] = {}
    for node in ast.parse(own.text).body:
        if isinstance(node, ast.ClassDef):
            lines.setdefault(node.name, []).append(node.lineno)
    for name, places in lines.items():
        if len(places) > 1:
            where = " and ".join(map(str, places))
            raise PluginError(f"{own.name} has two classes named {name}, lines {where}; rename one")


def _nearly(made: Iterable[tuple[str, object]]) -> Iterator[str]:
    """What a file has instead of components, each with what it lacks."""
    for name, value in made:
        if not isinstance(value, type):
            continue
        wanted = [role for hook, role in ROLES.items() if inspect.isfunction(getattr(value, hook, None))]
        wanted = wanted or [
            role for role in ROLES.values()
            if (needed := getattr(role, "__abstractmethods__", None)) and all(hasattr(value, one) for one in needed)
        ]  # fmt: skip
        if issubclass(value, Component):
            yield f"{name} inherits from Component, which is not a role"
        elif wanted:
            role = f"fedplug.{wanted[0].__name__}"
            yield f"{name} has what {role} asks for; write class {name}({role})"
        else:
            yield f"{name} is a plain class"

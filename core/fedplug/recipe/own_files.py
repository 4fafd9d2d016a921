"""Components out of a file of one's own: `use: my_model.py:Net`, without a package around it.

The file is looked for beside the recipe that names it, then in the working directory. What counts is what it holds:
the resolved recipe has its SHA-256, a run folder has a copy, and a file that holds something else is refused. Its class
goes through the checks of any component. What is not a component yet, such as a torch module, becomes one through an
adapter of a plugin: an entry point of the group `fedplug.adapter`, named after a group of components, whose value is a
function that takes what the file has under that name, and the name, and gives the class, or None.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from fedplug.api.base import Component
from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import ADAPTER

_FORM = re.compile(r"(?P<file>(?:.*/)?(?P<stem>[\w@.-]+)\.py):(?P<name>[^\W\d]\w*)")


@dataclasses.dataclass(frozen=True)
class OwnFile:
    """The file behind one component: its name without a folder, what it holds as bytes with their SHA-256, and where it
    was read; None in a process that was sent it.
    """

    sha256: str
    name: str
    text: bytes = dataclasses.field(repr=False, compare=False)
    path: Path | None = dataclasses.field(default=None, repr=False, compare=False)


OWN = "fedplug_own_"
"""How the names of modules begin that are files of the user's own."""

_SEEN: dict[tuple[str, str], OwnFile] = {}
"""What this process has read or was sent, by name and SHA-256."""


def is_own(use: str) -> bool:
    """Whether a recipe names a file here, and what is in it, rather than an installed component."""
    return _FORM.fullmatch(use) is not None


def parts(use: str) -> tuple[str, str]:
    """How the resolved recipe names it, without folders, and the instance's automatic name."""
    match = _FORM.fullmatch(use)
    assert match is not None, use
    return f"{match['stem']}.py:{match['name']}", f"{match['stem']}.{match['name']}"


def read(use: str, folders: Iterable[Path], sha256: str | None) -> OwnFile:
    """The file that `use` names.

    Args:
        use: of the form `path.py:Name`.
        folders: where it is looked for, in this order, and then in the working directory.
        sha256: what the recipe says of it; None where it says nothing.

    Raises:
        PluginError: there is none, it cannot be read, or it is another one than the recipe was resolved with.
    """
    path, folders = Path(use.rpartition(":")[0]), tuple(folders)
    if seen := _SEEN.get((path.name, sha256 or "")):
        return seen
    places = list(dict.fromkeys((folder / path).absolute() for folder in (*folders, Path())))
    place = next((place for place in places if place.is_file()), None)
    if place is None:
        whose = "the recipe" if folders else "the working directory"
        looked = ", nor ".join(map(str, places))
        raise PluginError(f"there is no file {looked}; put it there, or write its path as seen from {whose}")
    try:
        text = place.read_bytes()
    except OSError as error:
        raise PluginError(f"{place} cannot be read ({error.strerror or error})") from error
    digest = hashlib.sha256(text).hexdigest()
    if sha256 not in (None, digest):
        raise PluginError(
            f"{place} has changed: its sha256 is {digest}, the recipe says {sha256}; put the file back as it was, or "
            "leave sha256 out and run the recipe from the start"
        )
    own = OwnFile(digest, path.name, text, place)
    remember([own])
    return own


def remember(files: Iterable[OwnFile]) -> None:
    """From here on, a recipe that names these files reads back in this process, wherever it stands."""
    _SEEN.update({(own.name, own.sha256): own for own in files})


@functools.cache
def component(own: OwnFile, use: str, group: str) -> type:
    """The class that a place of this group gets: the file's own, or what an adapter makes of what it has there.

    Raises:
        PluginError: the file cannot be run, has no such name, or holds there what nobody makes a component of.
    """
    name = use.rpartition(":")[2]
    module = module_of(own)
    if not hasattr(module, name):
        raise PluginError(f"{own.name} has no {name}; it has {', '.join(made_in(module)) or 'nothing'}")
    value: Any = getattr(module, name)
    if isinstance(value, type) and issubclass(value, Component):
        return value
    from importlib_metadata import entry_points

    for point in entry_points(group=f"fedplug.{ADAPTER}", name=group):
        try:
            made: type | None = point.load()(value, parts(use)[1])
        except Exception as error:
            raise PluginError(f"{use} cannot stand for a {group} component: {type(error).__name__}: {error}") from error
        if made is not None:
            return made
    if isinstance(value, type):
        return value  # whoever looks at classes says which role it lacks
    raise PluginError(f"{use} is a {type(value).__name__}, of which nobody makes a {group} component; write a class")


def keep(files: Iterable[OwnFile], folder: Path) -> None:
    """Writes copies into the folder of a resolved recipe, which then reads back there."""
    for own in files:
        (folder / own.name).write_bytes(own.text)


def module_of(own: OwnFile) -> ModuleType:
    """The file as a module; it is run once.

    Raises:
        PluginError: it cannot be run; the message has the line.
    """
    name = f"{OWN}{re.sub(r'[^0-9A-Za-z]', '_', own.name)}_{own.sha256[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    if own.path is not None:
        module.__file__ = str(own.path)  # where the source of its classes is looked up
    sys.modules[name] = module  # where annotations are looked up while its classes are made
    try:
        exec(compile(own.text, own.name, "exec"), vars(module))
    # The file may raise anything, and even exit; none of it may take the program down.
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        what = str(error).replace(f"{name}.", "")
        raise PluginError(f"{own.name}{_line(error, own)} cannot be run: {type(error).__name__}: {what}") from error
    return module


def _line(error: BaseException, own: OwnFile) -> str:
    """In which line of the file it was raised; empty where nobody can tell."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == own.name]
    if isinstance(error, SyntaxError) and error.filename == own.name:
        lines.append(error.lineno)
    return f", line {lines[-1]}" if lines else ""


def made_in(module: ModuleType) -> dict[str, Any]:
    """The classes and functions that a file defines, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and hasattr(value, "__qualname__")
    }

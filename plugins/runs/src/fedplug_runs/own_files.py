"""Components from a user's file, without a package around it: `use: my_model.py:Net`, or `--plugin my.py`.

fedplug looks for the file next to the recipe, then in the working directory. What counts is what it holds:
the resolved recipe has its SHA-256, a run folder has a copy, and a file that holds something else is refused. Its class
goes through the checks of any component. What is not a component yet, such as a torch module, becomes one through an
adapter of a plugin: an entry point of the group `fedplug.adapter`, named after a group of components, whose value is a
function that takes what the file has under that name, and the name, and gives the class, or None.

A file runs in `OwnFile.module` alone, and only where `trust` lets it. Of any other its text is read.

With `--plugin my.py` the class `Thing` is offered as `my.Thing`, in the group of each of its roles. A recipe that names
it is resolved to `my.py:Thing`, as if that stood there, and needs no further `--plugin`.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedplug.api import roles
from fedplug.api.component import hold
from fedplug.api.errors import PluginError
from fedplug.api.roles import ROLES, Component
from fedplug.recipe.catalog import ADAPTER, Catalog, Entry, Own
from fedplug.recipe.source import Source, closest, leaves

from fedplug_runs import shelf, trust
from fedplug_runs.files import read_bytes, write_bytes
from fedplug_runs.trust import NOBODY, Consent

_FORM = re.compile(r"(?P<file>(?:.*/)?(?P<stem>[\w@.-]+)\.py):(?P<name>[^\W\d]\w*)")
OWN = "fedplug_own_"
"""How the names of modules begin that are files of the user's own."""


@dataclasses.dataclass(frozen=True)
class OwnFile:
    """The file behind one component: its name without a folder, what it holds as bytes with their SHA-256, and where it
    was read; None in a process that was sent it.
    """

    sha256: str
    name: str
    text: bytes = dataclasses.field(repr=False, compare=False)
    path: Path | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def is_code(self) -> bool:
        """Whether it is Python, and not what an option names, such as weights."""
        return self.name.endswith(".py")

    def module(self) -> ModuleType:
        """The file as a module; it is run once.

        Raises:
            PluginError: it cannot be run; the message has the line. `NotTrusted`: nobody has said that it may.
        """
        name = f"{OWN}{re.sub(r'[^0-9A-Za-z]', '_', self.name)}_{self.sha256[:16]}"
        known = sys.modules.get(name)
        module = known or ModuleType(name)
        if self.path is not None:  # where the source of its classes is looked up; the file may have moved since
            module.__file__ = str(self.path)
        if known:
            return known
        code = self.code()
        if not trust.may_run(self):
            raise trust.refusal(self)
        sys.modules[name] = module  # where annotations are looked up while its classes are made
        try:
            exec(code, vars(module))
        # The file may raise anything, and even exit; none of it may take the program down.
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise self._unfit(error, f"{name}.") from error
        return module

    def code(self) -> CodeType:
        """What would run.

        Raises:
            PluginError: it is not Python; the message has the line.
        """
        try:
            return compile(self.text, self.name, "exec")
        except Exception as error:
            raise self._unfit(error) from error

    def _unfit(self, error: BaseException, module: str = "") -> PluginError:
        """Says why it cannot be run, with the line."""
        lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == self.name]
        if isinstance(error, SyntaxError) and error.filename == self.name:
            lines.append(error.lineno)
        where = f"{self.name}, line {lines[-1]}" if lines else self.name
        text = str(error).replace(module, "") if module else str(error)
        return PluginError(f"{where} cannot be run: {type(error).__name__}: {text}")

    def docstring(self, name: str) -> str:
        """That of a class at the top of the file, from its text."""
        node = _classes(self).get(name)
        return ast.get_docstring(node) or "" if node else ""

    def made(self) -> Mapping[str, Any]:
        """The classes and functions that it defines, by name. Raises as `module`."""
        module = self.module()
        return {
            name: value
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and hasattr(value, "__qualname__")
        }


_SEEN: dict[tuple[str, str], OwnFile] = {}
"""What this process has read or was sent, by name and SHA-256."""


def remember(files: Iterable[Any]) -> None:
    """From here on, a recipe that names these files reads back in this process, in any folder, and they may run: they
    were sent by a process that runs them, or made of objects of this one.
    """
    files = tuple(files)
    trust.allow(files)
    for own in files:
        see(own)


def see(own: OwnFile) -> None:
    """From here on, a recipe that names this file with its SHA-256 reads back in this process."""
    _SEEN[own.name, own.sha256] = own
    if not own.is_code:
        hold(own.sha256, own.text)


def keep(files: Iterable[Own], folder: Path) -> None:
    """Writes copies into the folder of a resolved recipe, which then reads back there."""
    for own in files:
        write_bytes(folder / own.name, own.text)


def is_own(use: str) -> bool:
    """Whether a recipe names a file here, and what is in it, rather than an installed component."""
    return _FORM.fullmatch(use) is not None


def parts(use: str) -> tuple[str, str]:
    """How the resolved recipe names it, without folders, and the instance's automatic name."""
    match = _FORM.fullmatch(use)
    assert match is not None, use
    return f"{match['stem']}.py:{match['name']}", f"{match['stem']}.{match['name']}"


def read(use: str, folders: Iterable[Path] = (), sha256: str | None = None) -> OwnFile:
    """The file that `use` names.

    Args:
        use: of the form `path.py:Name`.
        folders: where it is looked for, in this order, and then in the working directory.
        sha256: what the recipe says of it; None where it says nothing.

    Raises:
        PluginError: there is none, it cannot be read, or it is another one than the recipe was resolved with.
    """
    return read_file(Path(use.rpartition(":")[0]), folders, sha256)


def read_file(path: Path, folders: Iterable[Path] = (), sha256: str | None = None) -> OwnFile:
    """The file at a path, which is seen from one of the folders; else as `read`, which it raises as."""
    folders = tuple(folders)
    if seen := _SEEN.get((path.name, sha256 or "")):
        return seen
    places = list(dict.fromkeys((folder / path).absolute() for folder in (*folders, Path())))
    place = next((place for place in places if place.is_file()), None)
    if place is None:
        whose, looked = "the recipe" if folders else "the working directory", ", nor ".join(map(str, places))
        raise PluginError(f"there is no file {looked}; put it there, or write its path as seen from {whose}")
    try:
        text = read_bytes(place)
    except OSError as error:
        raise PluginError(f"{place} cannot be read ({error.strerror or error})") from error
    digest = hashlib.sha256(text).hexdigest()
    if sha256 not in (None, digest):
        raise PluginError(
            f"{place} has changed: its sha256 is {digest}, the recipe says {sha256}; put the file back as it was, or "
            "leave sha256 out and run the recipe from the start"
        )
    own = OwnFile(digest, path.name, text, place)
    see(own)
    return own


def named_in(source: Source) -> Iterator[OwnFile]:
    """Every file of code that some text of a recipe could name; of one that is missing the recipe's check speaks."""
    for path, text, around in leaves(source.data):
        if isinstance(text, str) and is_own(text):
            sha256 = around.get("sha256") if path[-1:] == ("use",) else None
            with contextlib.suppress(PluginError):
                yield read(text, source.folders(path), sha256 if isinstance(sha256, str) else None)


@functools.cache
def component(own: OwnFile, use: str, group: str) -> type:
    """The class that a place of this group gets: the file's own, or what an adapter makes of what it has there.

    Raises:
        PluginError: the file cannot be run, has no such name, or holds there what nobody makes a component of.
    """
    name, module = use.rpartition(":")[2], own.module()
    if not hasattr(module, name):
        raise PluginError(f"{own.name} has no {name}; it has {', '.join(own.made()) or 'nothing'}")
    value: Any = getattr(module, name)
    if isinstance(value, type) and issubclass(value, Component):
        return value
    from importlib_metadata import entry_points

    for point in entry_points(group=f"fedplug.{ADAPTER}", name=group):
        try:
            made: type | None = point.load()(value, parts(use)[1])
        except Exception as error:
            raise PluginError(f"{use} cannot be a {group} component: {type(error).__name__}: {error}") from error
        if made is not None:
            return made
    if isinstance(value, type):
        return value  # the check of classes says which role it lacks
    raise PluginError(f"{use} is a {type(value).__name__}, which makes no {group} component; write a class")


@dataclasses.dataclass(frozen=True)
class OwnFiles:
    """The resolver of a catalog; see `catalog.Resolver`."""

    consent: Consent | None
    is_own, parts, read = staticmethod(is_own), staticmethod(parts), staticmethod(read)
    see, remember, component = staticmethod(see), staticmethod(remember), staticmethod(component)

    def covers(self, source: Source) -> None:
        """Asks whether the code that a recipe names may run."""
        (self.consent or NOBODY).covers(named_in(source), source.origin)

    def read_file(self, path: Path, folders: Iterable[Path], sha256: str | None) -> OwnFile:
        """As `read_file`; a copy of a shipped recipe still finds what was shipped with it."""
        return read_file(path, (*folders, Path(), *shelf.folders()), sha256)


def with_files(catalog: Catalog | None, files: Iterable[Path | str] | None, consent: Consent | None = None) -> Catalog:
    """A catalog with the components of these files added; None: added to what is installed.

    Args:
        catalog: is not changed.
        files: to add.
        consent: to the code of these files, and of recipes that are read with the catalog; None: the catalog's.

    Raises:
        PluginError: a file is missing, cannot be run, or has no component or two of a name. Or two files have one name,
            or a name is that of an installed component.
    """
    catalog = (catalog or Catalog.discover()).under(consent)
    read_from: dict[str, Path | None] = {}
    for file in dict.fromkeys(map(Path, files or ())):
        if not is_own(f"{file.name}:X"):
            rule = "it must be a Python file whose name has letters, digits and _ - . @ only"
            raise PluginError(f"--plugin {file}: {rule}")
        own = read(f"{file}:X")
        if read_from.setdefault(own.name, own.path) != own.path:
            raise PluginError(f"--plugin: 2 files are named {own.name}, and so would be their components; rename one")
        if not (catalog.consent or NOBODY).covers([own], f"--plugin {file}"):
            catalog.not_run[own.name[:-3]] = own
        for entry in entries_of(own):
            other = catalog.groups[entry.group].setdefault(entry.name, entry)
            if other.own != own:
                raise PluginError(
                    f"--plugin {own.name}: {entry.title} is installed already, by {other.distribution} "
                    f"{other.version}; rename the file or the class"
                )
    return catalog


def in_file(use: str, consent: Consent | None) -> list[Entry]:
    """The component that `my.py:Thing` names, one entry for each of its roles; the path is from the working directory.

    Raises:
        PluginError: as `entries_of`, or the file has no such component, or its text does not show it.
    """
    own, name = read(use), use.rpartition(":")[2]
    (consent or NOBODY).covers([own], use)
    entries = [(entry.value.rpartition(":")[2], entry) for entry in entries_of(own)]
    named = [entry for held, entry in entries if held == name]
    if not named and not trust.may_run(own):
        raise trust.refusal(own)
    if not named:
        raise PluginError(f"{own.name} has no component {name}; {closest(name, dict(entries))}")
    return named


def entries_of(own: OwnFile) -> list[Entry]:
    """The components of a file, one entry for each role of a class; names that begin with `_` are left out.

    Of a file that may not run, those that its text shows, maybe none: classes that inherit there, by name, from a role.

    Raises:
        PluginError: the file cannot be run, defines a name twice, or has no component.
    """
    classes, runs = _classes(own), trust.may_run(own)
    made = {name: value for name, value in own.made().items() if isinstance(value, type)} if runs else {}
    roles_of = {name: [value] for name, value in made.items() if name == value.__name__}
    entries = [
        Entry(f"{own.name[:-3]}.{name}", group, f"{own.name}:{name}", own.name, own.sha256[:12], made.get(name), own)
        for name, kinds in (roles_of if runs else {name: _shown_roles(name, classes) for name in classes}).items()
        for group, role in ROLES.items()
        if not name.startswith("_") and any(issubclass(kind, role) for kind in kinds)
    ]
    if not entries and runs:
        near = "; ".join(_lacks(each) for name, each in made.items() if name[0] != "_") or "it defines no class"
        raise PluginError(
            f"{own.name} has no component: {near}. A component is a class of a role, such as class "
            f"Halve(fedplug.Protector); of a torch module or a function a recipe says use: {own.name}:NAME"
        )
    return entries


def _classes(own: OwnFile) -> dict[str, ast.ClassDef]:
    """The classes at the top of a file, as its text has them.

    Raises:
        PluginError: it is not Python, or two have one name, of which Python keeps the last without a word.
    """
    own.code()
    found: dict[str, ast.ClassDef] = {}
    for node in ast.parse(own.text).body:
        if isinstance(node, ast.ClassDef) and (other := found.setdefault(node.name, node)) is not node:
            where = f"lines {other.lineno} and {node.lineno}"
            raise PluginError(f"{own.name} has two classes named {node.name}, {where}; rename one")
    return found


def _shown_roles(name: str, classes: Mapping[str, ast.ClassDef]) -> list[type]:
    """The roles from which a class of a file inherits, there, by their names or through other classes of it."""
    found: list[type] = []
    left, seen = [name], set[str]()
    while left:
        if (each := left.pop()) in seen:
            continue
        seen.add(each)
        kind = getattr(roles, each, None)
        if each in classes:
            left += [getattr(base, "attr", getattr(base, "id", "")) for base in classes[each].bases]
        elif isinstance(kind, type) and issubclass(kind, Component):
            found.append(kind)
    return found


def _lacks(value: type) -> str:
    """Why a class is not a component."""
    if issubclass(value, Component):
        return f"{value.__name__} inherits from Component, which is not a role"
    hooks = [role for hook, role in ROLES.items() if inspect.isfunction(getattr(value, hook, None))]
    asked: Iterator[tuple[type, Any]] = ((role, getattr(role, "__abstractmethods__", ())) for role in ROLES.values())
    if wanted := hooks or [role for role, needed in asked if needed and all(hasattr(value, one) for one in needed)]:
        role = f"fedplug.{wanted[0].__name__}"
        return f"{value.__name__} has what {role} asks for; write class {value.__name__}({role})"
    return f"{value.__name__} is a plain class"

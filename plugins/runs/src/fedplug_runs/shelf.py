"""Recipes that distributions ship, and the one way from a word to a file: `located`.

An entry point of the group `fedplug.recipes` names a package; every `.yaml` file in its folder, at any depth, is
offered under its path there without the ending: `baselines/lwe`. The package needs no `__init__.py`, and nothing is
imported.
Commands, scripts and `extends` all ask `located`, so a name means the same everywhere.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import RECIPES, Entry, installed
from fedplug.recipe.source import Position, Problem, Source, closest

from fedplug_runs.docstrings import package_folders
from fedplug_runs.yaml_source import read_text

if TYPE_CHECKING:
    from pydantic import BaseModel

ENDING = ".yaml"
_GRID = ".grid"
_COMPARISON = re.compile(r"^(recipes|question):", re.MULTILINE)
_DESCRIPTION = re.compile(r"^description:[ \t]*(.+)$", re.MULTILINE)
_EXTENDS = re.compile(r"^(extends:[ \t]*)(\"[^\"]*\"|'[^']*'|[^\s#]+)", re.MULTILINE)
_RECIPES = re.compile(r"^(recipes:.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"[\w./-]+\.yaml")
_MAX_BYTES = 1_000_000


@dataclasses.dataclass(frozen=True)
class Shipped:
    """A file of a distribution that `located` finds by name.

    Attributes:
        name: its path in the package, with slashes and without `.yaml`.
        path: the file.
        distribution, version: of what ships it.
    """

    name: str
    path: Path
    distribution: str
    version: str

    @functools.cached_property
    def text(self) -> str:
        """Its text."""
        return self.path.read_text(encoding="utf-8")

    @property
    def kind(self) -> str:
        """`recipe`, `grid` (for a sweep), or `comparison`."""
        if self.name.endswith(_GRID):
            return "grid"
        return "comparison" if _COMPARISON.search(self.text) else "recipe"

    @property
    def summary(self) -> str:
        """Its description, or the first sentence of the comment at its top; empty where it has neither."""
        if said := _DESCRIPTION.search(self.text):
            return said[1].strip("\"' ")
        lines = self.text.splitlines()
        end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
        comment = " ".join(line.lstrip("# ") for line in lines[:end])
        ends = r"(?<! al)(?<!Fig)(?<!Eq)(?<!Sec)(?<!Alg)(?<!App)\. |: +fedplug "
        return re.split(ends, comment, maxsplit=1)[0].rstrip(".")

    def copied(self) -> str:
        """What it holds, for a file in any folder: a recipe that it extends or compares is named, and not given by a
        path.
        """
        known = {each.path: each.name for each in shipped()}

        def named(path: str) -> str:
            return known.get(Path(os.path.normpath(self.path.parent / path.strip("\"'"))), path)

        text = _EXTENDS.sub(lambda match: f"{match[1]}{named(match[2])}", self.text, count=1)
        return _RECIPES.sub(lambda match: _PATH.sub(lambda path: named(path[0]), match[1]), text)

    def __str__(self) -> str:
        return f"{self.name} ({self.distribution} {self.version})"


def shipped() -> list[Shipped]:
    """Everything that installed distributions ship, by name.

    Raises:
        PluginError: two distributions give one name to their folders.
    """
    return sorted(_found(), key=lambda each: (each.name.count("/"), each.name))


def folders() -> Iterator[Path]:
    """The folders of recipes that distributions ship; other files that recipes name are there too."""
    for entry in installed(RECIPES).values():
        yield from _folders_of(entry)


def _folders_of(entry: Entry) -> Iterator[Path]:
    return map(Path.resolve, package_folders(entry.value))


def _found() -> Iterator[Shipped]:
    for entry in installed(RECIPES).values():
        for folder in _folders_of(entry):
            for path in folder.rglob(f"*{ENDING}"):
                name = path.relative_to(folder).with_suffix("").as_posix()
                yield Shipped(name, path, entry.distribution, entry.version)


def named(name: str) -> Shipped | None:
    """The file that is shipped under a name.

    Raises:
        PluginError: two distributions ship something of that name.
    """
    found = [each for each in shipped() if each.name == name]
    if len(found) > 1:
        both = " and by ".join(f"{each.distribution} {each.version} ({each.path})" for each in found)
        raise PluginError(f"the recipe {name} is shipped by {both}; write the path of the one that you mean")
    return found[0] if found else None


_HANDED: dict[Path, Shipped] = {}
"""What this process has found by name: a recipe says so in the record of its runs."""


def located(word: Path | str, seen_from: Path = Path(), folders: bool = False) -> Path:
    """The file that a word names: one that is there, or else what is shipped under that name.

    Args:
        word: a path, or a name such as `baselines/lwe`.
        seen_from: the folder that a path is relative to.
        folders: whether a folder that is there will do as well, such as that of a run.

    Returns:
        A word that names nothing is returned as a path, and reading it says what is wrong.

    Raises:
        PluginError: two distributions ship something of that name.
    """
    path = seen_from / word
    # Not `Path.is_file`, which raises for a word too long to be the name of a file.
    if os.path.isfile(path) or (folders and os.path.exists(path)):
        return path
    found = named(Path(word).as_posix())
    if found is None:
        return path
    _HANDED[found.path] = found
    return found.path


def origin_of(path: Path) -> str:
    """Where a recipe is from, for records: its name with the distribution, if it was found by name, or its path."""
    return str(_HANDED.get(path, path))


def name_of(path: Path) -> str | None:
    """The name of a shipped file; None of any other, and where this process has found none by name: what is given paths
    gives paths.
    """
    known = {each.path: each.name for each in shipped()} if _HANDED else {}
    return known.get(path.resolve())


def meant(path: Path) -> str:
    """What may have been meant by the path of a missing file, `did you mean x or y?`: a shipped name like it as a
    whole, or in its last part; empty where there is none.
    """
    names = [each.name for each in shipped()]
    wanted = path.as_posix().removesuffix(ENDING)
    close = get_close_matches(wanted, names, n=2, cutoff=0.8)
    if not close:
        lasts = {name.rpartition("/")[2]: name for name in reversed(names)}
        close = [lasts[last] for last in get_close_matches(wanted.rpartition("/")[2], lasts, n=2, cutoff=0.8)]
    return f"did you mean {' or '.join(close)}?" if close else ""


def read(path: Path) -> Source:
    """Reads a file; problems, also that it cannot be read, are in the result."""
    try:
        text = _recipe_bytes(path).decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError):
            reason = f"there is no such file{_near(path)}"
        return Source(str(path), None, problems=[Problem(Position(str(path)), f"cannot read the recipe: {reason}")])
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is not UTF-8 text ({error.reason}); save the file as UTF-8"
        return Source(str(path), None, problems=[Problem(Position(str(path)), message)])
    return read_text(text, str(path))


def read_as(model: type[BaseModel], path: Path, what: str) -> tuple[Any, Source]:
    """A file that is no recipe, as its model, and its source, which has the complaints; None where it has some.

    Args:
        model: its keys; `fedplug.Options`, so that complaints say what they mean.
        path: the file.
        what: it is called: a grid, a comparison.
    """
    from fedplug.recipe.reader import validated

    source = read(path)
    source.problems = [p._replace(message=p.message.replace("the recipe", f"the {what}")) for p in source.problems]
    if isinstance(source.data, Mapping):
        keys = model.model_fields
        for key in source.data:
            if key not in keys:  # all else is looked at nevertheless
                source.complain((key,), f"unknown key {key!r}; {closest(str(key), keys)}", key=True)
        known = {key: value for key, value in source.data.items() if key in keys}
        return validated(source, model, known, (), f"the {what}"), source
    if not source.problems:
        found = "empty" if source.data is None else f"a {type(source.data).__name__}"
        source.complain((), f"a {what} is a mapping with {' or '.join(model.model_fields)}; this one is {found}")
    return None, source


def _near(path: Path) -> str:
    """What may have been meant: a change of a value, a file of a close name in that folder or its `recipes`, or what
    is shipped under such a name.
    """
    if "=" in path.name and path.suffix != ".yaml":
        return f"; to change a value of a recipe, write --set {path.name}"
    folder = path.parent
    here = [*folder.glob("*.yaml"), *(folder / "recipes").glob("*.yaml")]
    names = {file.name: file for file in here}
    close = get_close_matches(path.with_suffix(".yaml").name, names, n=1, cutoff=0.8)
    if close:
        return f"; did you mean {names[close[0]]}?"
    if hint := meant(path):
        return f", and no recipe of that name; {hint}"
    # Without an ending, it may well have been meant as a name.
    return "" if path.suffix else ", and no recipe of that name; fedplug recipes lists those that are installed"


def _recipe_bytes(path: Path) -> bytes:
    if path.exists() and not path.is_dir() and not path.is_file():
        raise OSError("it is not a regular file")  # a device or a pipe may never end
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise OSError(f"it has more than {_MAX_BYTES:,} bytes, and no recipe is that long")
    return data

"""Which files of somebody's own may run out of a run folder: those that this user ran here before, or says yes to.

A user who names a recipe to `fedplug run` means to run what is in it. A run folder is attacked and resumed as well, and
may come from somebody else; the copies of own files in it are code with all rights of this user. What was run here is
noted by its SHA-256 in `fedplug/own-files` under `$XDG_STATE_HOME` (or `~/.local/state`), a line a file, so that nobody
is asked about own runs, wherever their folders are moved. Any change of a file makes it an unknown one.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedplug.api.errors import PluginError, SetupError
from fedplug.api.files import append_line, private_folder
from fedplug.recipe.own_files import OwnFile, is_own, read
from fedplug.recipe.yaml_source import Source


def record() -> Path:
    """The file in which this user's own files are noted."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "fedplug" / "own-files"


def known() -> set[str]:
    """SHA-256 (hex) of every file that ran here for this user; none where the record cannot be read."""
    try:
        lines = record().read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return set()
    return {line.partition(" ")[0] for line in lines}


def note(files: Iterable[OwnFile]) -> None:
    """Notes that this user runs these files. Where that cannot be written, a later command asks."""
    if not (new := {own.sha256: own.name for own in files if own.is_code}):
        return
    with contextlib.suppress(OSError, SetupError):
        private_folder(record().parent)
        lines = [f"{sha256} {name}\n" for sha256, name in new.items() if sha256 not in known()]
        if lines:
            append_line(record(), "".join(lines).encode())


def only_trusted(folder: Path, trusted: bool, ask: bool) -> Callable[[Source], None]:
    """What looks at the recipe of a run folder before any of its code runs.

    Args:
        folder: of the run.
        trusted: whether the user has said that its code may run.
        ask: whether to ask, where a person sits at a terminal.

    The function raises a SetupError where files of the recipe never ran here, and nobody says that they may; and where
    the recipe is not resolved, since what it extends could name files that nobody has looked at.
    """

    def look(source: Source) -> None:
        if isinstance(source.data, Mapping) and "extends" in source.data:
            raise SetupError(f"{source.origin} extends another recipe, which no run writes; put it back as it was")
        seen = known()
        files = {own.sha256: own for own in _files_of(source) if own.sha256 not in seen}
        if not files:
            return
        named = ", ".join(f"{own.name} (sha256 {own.sha256[:12]})" for own in files.values())
        brings = f"{folder} brings code that has not run here before: {named}. It would run with all your rights"
        if not trusted and not (ask and _says_yes(brings)):
            where = " and ".join(str(own.path or own.name) for own in files.values())
            raise SetupError(f"{brings}; read {where}, and if you trust its author, add --trust (trust=True)")
        note(files.values())

    return look


def _files_of(source: Source) -> Iterator[OwnFile]:
    """Every file that some text of a recipe could name; of one that is missing the recipe's check speaks."""
    folder = Path(source.origin).parent
    for text, sha256 in _named(source.data):
        with contextlib.suppress(PluginError):
            yield read(text, [folder], sha256)


def _named(data: Any) -> Iterator[tuple[str, str | None]]:
    """Texts anywhere in plain data that have the form of an own file, and of a `use` the SHA-256 that it must have."""
    left: list[tuple[Any, str | None]] = [(data, None)]
    while left:
        value, sha256 = left.pop()
        if isinstance(value, str) and is_own(value):
            yield value, sha256
        elif isinstance(value, Mapping):
            given = value.get("sha256")
            left += [(held, given if key == "use" and isinstance(given, str) else None) for key, held in value.items()]
        elif isinstance(value, list | tuple):
            left += [(held, None) for held in value]


def _says_yes(question: str) -> bool:
    """Asks a person; False where nobody is there."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    return input(f"{question}. Run it? [y/N] ").strip().lower() in ("y", "yes")

"""Which files of somebody's own may run: those that this user ran here before, or says yes to.

A recipe and a run folder may come from somebody else, and the Python files that they name would run with all rights of
this user. `OwnFile.module` is the one place where such a file runs, and it asks `may_run`. A command that runs a recipe
that its user names (`run`, `sweep`, `compare`, `search`, `audit`, `federation-try`) is a yes to what is in it. Every
other command needs `--trust`, or asks at a terminal.

What was run here is noted by its SHA-256 in `fedplug/own-files` under `$XDG_STATE_HOME` (or `~/.local/state`), a line a
file, so that nobody is asked about own runs, wherever their folders are moved. Any change of a file makes it an unknown
one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from fedplug.api.errors import SetupError
from fedplug.recipe.catalog import NotTrusted, Own

from fedplug_runs.files import append_line, private_folder

_allowed: set[str] = set()
"""SHA-256 (hex) of the files that this process may run, whatever the record says."""
_refused: set[str] = set()
"""Those that it may not: nobody is asked twice."""


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


def note(files: Iterable[Own]) -> None:
    """Notes that this user runs these files. Where that cannot be written, a later command asks."""
    if not (new := {own.sha256: own.name for own in files if own.is_code}):
        return
    with contextlib.suppress(OSError, SetupError):
        private_folder(record().parent)
        lines = [f"{sha256} {name}\n" for sha256, name in new.items() if sha256 not in known()]
        if lines:
            append_line(record(), "".join(lines).encode())


def allow(files: Iterable[Own]) -> None:
    """Lets this process run these files: somebody said yes, or the process that was told so sent them."""
    _allowed.update(own.sha256 for own in files)


def may_run(own: Own) -> bool:
    """Whether this process may run a file."""
    return own.sha256 in _allowed or own.sha256 in known()


@dataclasses.dataclass(frozen=True)
class Consent:
    """Who says yes to code that has not run here before; by default nobody.

    Attributes:
        given: the user has: by a command that runs what it is given, or by `--trust`.
        ask: a person at the terminal is asked.
    """

    given: bool = False
    ask: bool = False

    def covers(self, files: Iterable[Own], whose: str) -> bool:
        """Whether these files, which `whose` names, may run. A yes is noted."""
        new = {own.sha256: own for own in files if own.is_code and not may_run(own)}
        if not new:
            return True
        named = ", ".join(map(described, new.values()))
        brings = f"{whose} brings code that has not run here before: {named}. It would run with all your rights"
        if not self.given and not (self.ask and _refused.isdisjoint(new) and _says_yes(brings)):
            _refused.update(new if self.ask else ())
            return False
        allow(new.values())
        note(new.values())
        return True


NOBODY, RUNS = Consent(), Consent(given=True)
"""Nobody's, and that of a command that runs what its user names."""


def described(own: Own) -> str:
    """A file by its name and the first digits of its SHA-256, for messages."""
    return f"{own.name} (sha256 {own.sha256[:12]})"


def refusal(own: Own) -> NotTrusted:
    """Says of a file that it may not run, and what to do."""
    return NotTrusted(
        f"This brings code that has not run here before: {described(own)}. It would run with all your rights; read "
        f"{own.path or own.name}, and if you trust its author, add --trust (trust=True)"
    )


def _says_yes(question: str) -> bool:
    """Asks a person; False where nobody is there."""
    if sys.stdin is None or not sys.stdin.isatty():
        return False
    return input(f"{question}. Run it? [y/N] ").strip().lower() in ("y", "yes")

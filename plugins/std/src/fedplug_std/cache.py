"""What is slow to make of a user's data, kept for this user's next runs: parsed tables, features of images.

A file in the cache holds what the data holds, so folder and files are private, another user's are not touched, and one
that nobody has used for a month is deleted. Its name is a digest of the data and of how it is read: what has changed is
made anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from fedplug.api.errors import SetupError
from fedplug_runs.files import open_plain, open_private, private_folder

Made = TypeVar("Made")

ENVIRONMENT = "FEDPLUG_CACHE"
"""Names another folder, or is `off`."""
_UNUSED = 30 * 24 * 3600.0
"""Seconds after which a file that nobody used is deleted."""
_DAMAGED = (
    OSError, ValueError, KeyError, TypeError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error,
    SetupError,
)  # fmt: skip
"""What zipfile and numpy raise of a file that was torn or changed; a wrong size in it asks for all memory."""


def folder(kind: str) -> Path | None:
    """The folder of one kind of files; None where the user wants none."""
    named = os.environ.get(ENVIRONMENT, "")
    if named.strip().lower() in ("off", "0", "no", "false"):
        return None
    if named:
        return Path(named).expanduser() / kind
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "fedplug" / kind
    except RuntimeError:  # a user without a home
        return None


def kept(
    kind: str, told: Sequence[Any], make: Callable[[], Made], save: Callable[[IO[Any], Made], object],
    load: Callable[[BinaryIO], Made],
) -> Made:  # fmt: skip
    """What `make` gives: from the cache, or made and put there.

    Args:
        kind: names its folder.
        told: all that it depends on, as JSON takes it.
        make: makes it.
        save, load: write it to an open file as `.npz`, and read it; `load` may raise whatever numpy raises.
    """
    where = folder(kind)
    if where is None or (where.exists() and not _is_own(where.stat())):
        return make()
    file = where / f"{hashlib.sha256(json.dumps([*told]).encode()).hexdigest()}.npz"
    with contextlib.suppress(*_DAMAGED):
        return _loaded(file, load)
    made = make()
    with contextlib.suppress(OSError, SetupError):  # a full disk, or a folder of somebody else: made again next time
        _save(file, lambda opened: save(opened, made))
        _forget(where)
    return made


def _is_own(found: os.stat_result) -> bool:
    """Whether a folder or file is this user's: what is in another's, others may have put there."""
    return not hasattr(os, "getuid") or found.st_uid == os.getuid()


def _loaded(file: Path, load: Callable[[BinaryIO], Made]) -> Made:
    """What a file holds. Raises one of `_DAMAGED`."""
    with open_plain(file) as opened:
        if not _is_own(os.fstat(opened.fileno())):
            raise ValueError("it is another user's")
        found = load(opened)
    os.utime(file)
    return found


def _save(file: Path, write: Callable[[IO[Any]], object]) -> None:
    """Writes a file under a name that no other process uses, and gives it the right one when it is whole."""
    draft = private_folder(file.parent) / f"{file.stem}.{secrets.token_hex(8)}.tmp"
    try:
        with open_private(draft, "xb") as opened:
            write(opened)
        os.replace(draft, file)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _forget(where: Path) -> None:
    """Deletes what nobody has used for a month, drafts of killed processes too."""
    for each in where.iterdir():
        if time.time() - each.stat().st_mtime > _UNUSED:
            each.unlink(missing_ok=True)

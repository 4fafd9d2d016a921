"""Parsed tables that this user's next runs take instead of parsing the same file again.

A file in the cache holds what the table holds, so folder and files are private, another user's are not touched, and one
that nobody has used for a month is deleted. Its name is a digest of the table's content and of how it is read: a
changed file is parsed anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.api.errors import SetupError
from fedplug_runs.files import open_plain, open_private, private_folder

from fedplug_std._columns import Column, Form, Rows

ENVIRONMENT = "FEDPLUG_CACHE"
"""Names another folder, or is `off`."""
LEAST = 1_000_000
"""Bytes of a file that is worth keeping."""
_FORMAT = 2
"""Changes when the same file would be read otherwise."""
_UNUSED = 30 * 24 * 3600.0
"""Seconds after which a file that nobody used is deleted."""
_DAMAGED = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, SetupError)


def folder() -> Path | None:
    """The folder of parsed tables; None where the user wants none."""
    named = os.environ.get(ENVIRONMENT, "")
    if named.strip().lower() in ("off", "0", "no", "false"):
        return None
    if named:
        return Path(named).expanduser() / "tables"
    home = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(home) if Path(home).is_absolute() else Path.home() / ".cache") / "fedplug" / "tables"
    except RuntimeError:  # a user without a home
        return None


def kept(path: Path, reading: Sequence[Any], parse: Callable[[bytes], Rows]) -> Rows:
    """The rows of a file: from the cache, or parsed, and put there if the file is large.

    Args:
        path: of the file.
        reading: how it is read, as JSON takes it.
        parse: gives the rows of its content.

    Raises:
        OSError: the file cannot be read.
        DataError, SetupError: as `parse`.
    """
    content = path.read_bytes()
    where = folder() if len(content) >= LEAST else None
    if where is None or (where.exists() and not _is_own(where.stat())):
        return parse(content)
    told = json.dumps([_FORMAT, path.suffixes[-2:], reading, hashlib.sha256(content).hexdigest()])
    file = where / f"{hashlib.sha256(told.encode()).hexdigest()}.npz"
    with contextlib.suppress(*_DAMAGED):
        return dataclasses.replace(_load(file), place=str(path))
    rows = parse(content)
    with contextlib.suppress(OSError, SetupError):  # a full disk, or a folder of somebody else: parse again next time
        _save(file, rows)
        _forget(where)
    return rows


def _is_own(found: os.stat_result) -> bool:
    """Whether a folder or file is this user's: what is in another's, others may have put there."""
    return not hasattr(os, "getuid") or found.st_uid == os.getuid()


def _load(file: Path) -> Rows:
    """The rows in a file. Raises one of `_DAMAGED`."""
    with open_plain(file) as opened:
        if not _is_own(os.fstat(opened.fileno())):
            raise ValueError("it is another user's")
        found = np.load(opened, allow_pickle=False)
        about = json.loads(found["about"].tobytes())
        count = len(found["numbers"])
        columns = {}
        for k, (name, words, absent) in enumerate(about["columns"]):
            gaps = found[f"gaps{k}"] if f"gaps{k}" in found else np.zeros(count, bool)
            readings = found[f"readings{k}"] if words is not None else None
            if not len(found[f"values{k}"]) == len(gaps) == count:
                raise ValueError("its columns differ in length")
            words = words if words is None else tuple(words)
            columns[name] = Column(found[f"values{k}"], gaps, words, readings, tuple(absent))
        rows = Rows(columns, "", found["numbers"], about["unit"], Form(*about["form"]), tuple(about["nameless"]))
    os.utime(file)
    return rows


def _save(file: Path, rows: Rows) -> None:
    """Writes a file under a name that no other process uses, and gives it the right one when it is whole."""
    about = {
        "columns": [[name, column.words, column.absent] for name, column in rows.columns.items()], "unit": rows.unit,
        "form": dataclasses.astuple(rows.form), "nameless": rows.nameless,
    }  # fmt: skip
    arrays: dict[str, Any] = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8), "numbers": rows.numbers}
    for k, column in enumerate(rows.columns.values()):
        arrays[f"values{k}"] = column.values
        if column.gaps.any():
            arrays[f"gaps{k}"] = column.gaps
        if column.readings is not None:
            arrays[f"readings{k}"] = column.readings
    draft = private_folder(file.parent) / f"{file.stem}.{secrets.token_hex(8)}.tmp"
    try:
        with open_private(draft, "xb") as opened:
            np.savez(opened, **arrays)
        os.replace(draft, file)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def _forget(where: Path) -> None:
    """Deletes what nobody has used for a month, drafts of killed processes too."""
    for each in where.iterdir():
        if each.suffix in (".npz", ".tmp") and time.time() - each.stat().st_mtime > _UNUSED:
            each.unlink(missing_ok=True)

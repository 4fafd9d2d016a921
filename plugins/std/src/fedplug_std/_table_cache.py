"""Parsed tables as the cache keeps them; see `fedplug_std.cache`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np

from fedplug_std import cache
from fedplug_std._columns import Column, Form, Rows

LEAST = 1_000_000
"""Bytes of a file that is worth keeping."""
_FORMAT = 2
"""Changes when the same file would be read otherwise."""


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
    if len(content) < LEAST:
        return parse(content)
    told = [_FORMAT, path.suffixes[-2:], reading, hashlib.sha256(content).hexdigest()]
    rows = cache.kept("tables", told, lambda: parse(content), _save, _load)
    return dataclasses.replace(rows, place=str(path))


def _load(opened: BinaryIO) -> Rows:
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
    return Rows(columns, "", found["numbers"], about["unit"], Form(*about["form"]), tuple(about["nameless"]))


def _save(opened: IO[Any], rows: Rows) -> None:
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
    np.savez(opened, **arrays)

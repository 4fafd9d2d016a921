"""Files that everybody has, such as published weights: where they are looked for, and that they are the right ones.

They are read as data sets are, and not as code: an absolute path, or one inside the data folder. Features follow from
all that they hold, so its SHA-256 is in the name under which features are kept.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fedplug import Field, Options
from fedplug.api.errors import DataError
from fedplug_std import data_folder

PATH = "absolute or inside the data folder; without a data folder, in the working directory"


class Checked(Options):
    """What a file must hold."""

    sha256: str | None = Field(
        None, pattern="^[0-9a-f]{64}$",
        description="of that file, so that no party uses another; null: whatever it holds",
    )  # fmt: skip


def located(root: str | None, path: str, remedy: str) -> Path:
    """The place of a file or a folder. Raises a DataError with the remedy where there is none."""
    place = data_folder.located(root, path)
    if not place.exists():
        raise DataError(f"there is no {place}, and fedplug downloads nothing; {remedy}")
    return place


def content_of(place: Path, sha256: str | None) -> tuple[bytes, str]:
    """What a file holds, and its SHA-256.

    Raises:
        DataError: it cannot be read, or has another SHA-256.
    """
    try:
        content = place.read_bytes()
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror or error}") from error
    found = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, found):
        raise DataError(f"{place} has the sha256 {found}, and the recipe says {sha256}; put the right file there")
    return content, found

"""Where files of data are: in the user's folder of data sets."""

from __future__ import annotations

import os
from pathlib import Path

from fedplug.api.errors import DataError

ENVIRONMENT = "FEDPLUG_DATA"


def data_folder(root: str | None, inside: str = "", instead: str = "std.digits") -> Path:
    """The folder of data sets, or a path inside it.

    Args:
        root: the user's folder; None: the folder in the environment variable FEDPLUG_DATA.
        inside: relative to that folder; an absolute path needs none.
        instead: a data set that needs no folder, for the error.

    Raises:
        DataError: nobody named a folder and `inside` is not absolute.
    """
    if Path(inside).is_absolute():
        return Path(inside)
    named = root or os.environ.get(ENVIRONMENT)
    if not named:
        raise DataError(
            f"no data folder is known; name one with the environment variable {ENVIRONMENT}, for instance "
            f"{ENVIRONMENT}=data, or use {instead}, which needs none"
        )
    return Path(named).expanduser() / inside


def located(root: str | None, inside: str) -> Path:
    """A path in the folder of data sets; without such a folder, in the working directory.

    A user with one file of data should not need a folder of data sets.
    """
    path = Path(inside).expanduser()
    return data_folder(root, str(path)) if root or os.environ.get(ENVIRONMENT) else Path.cwd() / path

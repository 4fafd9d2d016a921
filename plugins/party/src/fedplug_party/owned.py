"""Files and folders of this user alone: what another user of the machine has put there is refused.

Whoever knows the key of a party can ask it for uploads, so one that somebody else has chosen must not be used; and a
link that somebody else has laid would have the program write where it was not sent.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from fedplug.api.errors import SetupError

_REMEDY = "look who put it there, and name a folder of your own with --state"


def require_own_folder(folder: Path) -> None:
    """Checks that a folder is this user's.

    Raises:
        SetupError: it belongs to another user.
    """
    if folder.stat().st_uid != os.geteuid():
        raise SetupError(f"{folder} belongs to another user of this machine; {_REMEDY}")


def open_own(file: Path, flags: int, secret: bool = False, remedy: str = _REMEDY) -> int:
    """Opens a file of this user's, made with mode 0600 where the flags say so, and gives its handle.

    Args:
        file: its path; not a link.
        flags: of `os.open`.
        secret: whether nobody else may have been able to read or write it.
        remedy: what to do, for errors.

    Raises:
        SetupError: it belongs to another user, is a link or no file, or is secret and others could use it.
        OSError: it cannot be opened.
    """
    try:
        handle = os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)  # a pipe would keep the program waiting
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SetupError(f"{file} is a link, and must be a file; {remedy}") from error
        raise
    found, wrong = os.fstat(handle), ""
    if not stat.S_ISREG(found.st_mode):
        wrong = "is not a file"
    elif found.st_uid != os.geteuid():
        wrong = "belongs to another user of this machine"
    elif secret and found.st_mode & 0o077:
        wrong = f"has mode {stat.S_IMODE(found.st_mode):04o}, with which others may know it, and must have 0600"
    if wrong:
        os.close(handle)
        raise SetupError(f"{file} {wrong}; {remedy}")
    return handle

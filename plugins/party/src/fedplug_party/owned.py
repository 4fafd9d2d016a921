"""Files and folders that must belong to this user: those of another user of the machine are refused.

Anyone who knows the key of a party can ask it for uploads, so the program must not use a key that somebody else chose.
A link that somebody else created could make the program write to the wrong place.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from fedplug.api.errors import SetupError

_REMEDY = "find out who put it there, and name a folder that belongs to you with --state"


def require_own_folder(folder: Path) -> None:
    """Checks that a folder belongs to this user.

    Raises:
        SetupError: it belongs to another user.
    """
    if folder.stat().st_uid != os.geteuid():
        raise SetupError(f"{folder} belongs to another user of this machine; {_REMEDY}")


def open_own(file: Path, flags: int, secret: bool = False, remedy: str = _REMEDY) -> int:
    """Opens a file of this user and returns its handle. If the flags ask for creation, the file gets mode 0600.

    Args:
        file: its path. It must not be a link.
        flags: of `os.open`.
        secret: refuse a file that other users can read or write.
        remedy: what to do, for error messages.

    Raises:
        SetupError: the path belongs to another user, is a link or not a regular file, or is secret and readable or
            writable by others.
        OSError: the file cannot be opened.
    """
    try:
        handle = os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)  # without O_NONBLOCK, a pipe would block
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SetupError(f"{file} is a link, but must be a file; {remedy}") from error
        raise
    found, wrong = os.fstat(handle), ""
    if not stat.S_ISREG(found.st_mode):
        wrong = "is not a file"
    elif found.st_uid != os.geteuid():
        wrong = "belongs to another user of this machine"
    elif secret and found.st_mode & 0o077:
        wrong = f"has mode {stat.S_IMODE(found.st_mode):04o}, so other users may know it; it must have mode 0600"
    if wrong:
        os.close(handle)
        raise SetupError(f"{file} {wrong}; {remedy}")
    return handle

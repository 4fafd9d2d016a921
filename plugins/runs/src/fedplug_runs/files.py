"""The one door to a run folder: its folders have mode 0700 and its files 0600, whatever the umask says.

A run folder names secret cohorts and may hold updates before their noise, and so does all that is made from it. All
code writes there through this module. It follows no link in the last part of a path: a run folder may come from
somebody else, and a link in it must not have us write or shorten a file elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeVar

from fedplug.api.errors import CheckpointError, SetupError

T = TypeVar("T")
_FLAGS = {
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Opening a pipe would wait for somebody at its other end."""
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | _NO_WAIT


def private_folder(folder: Path, exist_ok: bool = True) -> Path:
    """Makes a folder of mode 0700, or takes the rights of others from the one that is there; gives its path.

    Folders above it that are missing are made so too.

    Raises:
        SetupError: there is a link in its place.
        FileExistsError: it is there, and may not be; or a file is.
        OSError: it cannot be made.
    """
    if folder.is_symlink():
        raise SetupError(f"{folder} is a link, and must be a folder; ask who put it there, and delete it")
    missing = [folder, *(above for above in folder.parents if not above.exists())]
    for each in reversed(missing[1:]):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=0o700)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not exist_ok or not folder.is_dir():
            raise
        _take_rights(folder, folder.stat().st_mode, folder.chmod)
    return folder


def open_private(file: Path, mode: str, buffering: int = -1, newline: str | None = None) -> IO[Any]:
    """Opens a file to write in it, made with mode 0600; takes the rights of others from one that is there.

    Args:
        file: its path.
        mode: `w`, `x`, `a`, `a+` or `r+`, with `b` for bytes; text is UTF-8. What cannot be encoded becomes `?`: half
            a character of a command line must not cost a whole file.
        buffering, newline: as of `open`.

    Raises:
        SetupError: it is a link, or no file.
        OSError: it cannot be opened.
    """
    kind, binary = mode.replace("b", ""), "b" in mode
    try:
        handle = os.open(file, _FLAGS[kind] | _NO_LINK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise SetupError(f"{file} is a link, and must be a file; ask who put it there, and delete it") from error
        if error.errno == errno.ENXIO:
            raise SetupError(f"{file} is not a file; ask who put it there, and delete it") from error
        raise
    try:
        found = os.fstat(handle).st_mode
        if not stat.S_ISREG(found):
            raise SetupError(f"{file} is not a file; ask who put it there, and delete it")
        _take_rights(file, found, lambda rights: os.fchmod(handle, rights))
        if binary:
            return open(handle, kind + "b", buffering)
        return open(handle, kind, buffering, encoding="utf-8", errors="replace", newline=newline)
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(handle)
        raise


def open_plain(file: Path) -> BinaryIO:
    """Opens a file of a run folder to read it: a pipe, which would keep the program waiting, or a device is none.

    Raises:
        OSError: it is no file, or cannot be opened.
    """
    handle = os.open(file, os.O_RDONLY | _NO_WAIT)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a file", str(file))
    return open(handle, "rb")


def read_bytes(file: Path) -> bytes:
    """The content of a file of a run folder. Raises as `open_plain`."""
    with open_plain(file) as opened:
        return opened.read()


def read_text(file: Path) -> str:
    """As `read_bytes`, of text in UTF-8.

    Raises:
        OSError: as `open_plain`.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_bytes(file).decode("utf-8")


def _take_rights(path: Path, mode: int, change: Any) -> None:
    if mode & 0o077:
        with contextlib.suppress(OSError, AttributeError):  # another user's, who decides; a system without it
            change(stat.S_IMODE(mode) & 0o700)


def write_text(file: Path, text: str) -> None:
    """As `write_bytes`, of text in UTF-8."""
    write_bytes(file, text.encode("utf-8", "replace"))


def write_bytes(file: Path, data: bytes) -> None:
    """Writes a private file so that a kill leaves the old or the new one, never half; an OSError names the file."""
    draft = file.with_name(file.name + ".tmp")
    try:
        draft.unlink(missing_ok=True)  # of a process that was killed, or a link
        with open_private(draft, "xb") as opened:
            opened.write(data)
        os.replace(draft, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise OSError(error.errno, error.strerror, str(file)) from error


def append_line(file: Path, data: bytes, synced: bool = False) -> None:
    """Adds bytes to a private file: all of them or, where that fails, none.

    Args:
        file: made where it is missing.
        data: a line, or several.
        synced: whether they are on the disk before this returns, so that no power failure takes them back.

    Raises:
        OSError: they cannot be written.
    """
    is_new = synced and not file.exists()
    with open_private(file, "ab", buffering=0) as opened:
        before = os.fstat(opened.fileno()).st_size
        try:
            if opened.write(data) != len(data):
                raise OSError(errno.ENOSPC, "it could not be written to its end", str(file))
            if synced:
                os.fsync(opened.fileno())
        except OSError:
            opened.truncate(before)
            raise
    if is_new:
        with contextlib.suppress(OSError):  # some file systems cannot
            to_disk(file.parent)


def to_disk(path: Path) -> None:
    """Returns once a file, or the names in a folder, are on the disk: no power failure takes them back."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_lines(file: Path, read: Callable[[str], T], remedy: str, cut: bool = True) -> list[T]:
    """The records in a file that grew by `append_line`, each `synced` before anybody else learned of it.

    A last line that was cut off while it was written is no record: nobody knows of it.

    Args:
        file: that may be missing.
        read: a record of a line, or a ValueError.
        remedy: for a damaged line, why it is needed and what to do.
        cut: whether to cut it away; False: it is left, since another process may be writing it.

    Raises:
        CheckpointError: a line is damaged.
    """
    data = read_bytes(file) if file.is_file() else b""
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data) and cut:
        shorten(file, len(whole))
    found = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            found.append(read(line.decode()))
        except ValueError as error:
            raise CheckpointError(f"{file}, line {number}, is damaged: {line[:60]!r} ({error}); {remedy}") from error
    return found


def shorten(file: Path, size: int) -> None:
    """Cuts a private file off after this many bytes."""
    with open_private(file, "r+b") as opened:
        opened.truncate(size)


_UMASK = threading.Lock()
_inside, _before = 0, 0


@contextlib.contextmanager
def private_process() -> Iterator[None]:
    """Inside, what libraries and started programs write is this user's alone as well: the umask is 0077."""
    global _inside, _before
    with _UMASK:
        _inside += 1
        if _inside == 1:
            _before = os.umask(0o077)
    try:
        yield
    finally:
        with _UMASK:
            _inside -= 1
            if not _inside:
                os.umask(_before)


@dataclasses.dataclass(frozen=True)
class Files:
    """Where an extension may write: in the run folder, and elsewhere only where this machine's user allows it.

    What the command line or the config file names (`--with`) is the user's word, and may lead anywhere. Somebody
    else may have written a recipe: its paths lead out of the run folder with `--allow-outside` alone.

    Attributes:
        folder: of the run.
        outside: whether paths may lead out of it.
    """

    folder: Path
    outside: bool = False

    def path(self, name: str) -> Path:
        """A path for an option's value: in the run folder; where `outside` holds, as the user's shell has it.

        Raises:
            SetupError: it leads out of the run folder.
        """
        if self.outside:
            return Path(name).expanduser()
        if Path(name).is_absolute() or not (self.folder / name).resolve().is_relative_to(self.folder.resolve()):
            raise SetupError(self._refusal(f"{name} lies outside the run folder"))
        return self.folder / name

    def open(self, name: str, mode: str, newline: str | None = None) -> IO[Any]:
        """Opens a file to write text in it at `path`; folders on its way in the run folder are made.

        There it is as of `open_private`; elsewhere the user's place decides who reads it.

        Raises:
            SetupError: it leads out of the run folder, or is a link there.
            OSError: it cannot be opened.
        """
        file = self.path(name)
        if self.outside:
            return file.open(mode, encoding="utf-8", errors="replace", newline=newline)
        private_folder(file.parent)
        return open_private(file, mode, newline=newline)

    def require_allowed(self, where: str) -> None:
        """Refuses a place that is no file of the run folder, such as a server's address, unless `outside` holds.

        Raises:
            SetupError: says how to allow it.
        """
        if not self.outside:
            raise SetupError(self._refusal(f"{where} lies outside the run folder"))

    @staticmethod
    def _refusal(what: str) -> str:
        return (
            f"{what}, and a recipe alone may not have anything written there; name it with --with instead, or allow it "
            "with --allow-outside"
        )

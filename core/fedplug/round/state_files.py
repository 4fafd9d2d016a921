"""Files that hold a party's state: framed with length and checksum, readable by their owner alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fedplug.api import codec
from fedplug.api.errors import CheckpointError, MessageError


def file_name(address: str) -> str:
    """`client:3` -> `client-3.state`."""
    return address.replace(":", "-") + ".state"


def write_file(path: Path, body: bytes) -> None:
    """Writes a framed file that only its owner may read.

    Not forced to disk: a killed process loses nothing that it has written, and after a power failure the checksum tells
    a half-written file, with the checkpoint before it to go back to.
    """
    left = memoryview(codec.frame(body))
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # of many clients there are many small ones
    try:
        while left:
            left = left[os.write(file, left) :]
    finally:
        os.close(file)


def read_file(path: Path) -> bytes:
    """Reads what `write_file` wrote.

    Raises:
        CheckpointError: the file is missing, cannot be read, was cut off or has changed since it was written.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing from the checkpoint") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error})") from error
    try:
        return codec.unframe(data)
    except MessageError as error:
        raise CheckpointError(
            f"{path} is damaged: its {len(data)} bytes are not those that were written (length or checksum differ)"
        ) from error


@contextlib.contextmanager
def holding(path: Path, what: str) -> Iterator[None]:
    """Inside, what a state file holds is taken apart; whatever is wrong with it names the file.

    Args:
        path: of the file.
        what: it should hold, such as `client's state`.

    Raises:
        CheckpointError: it holds something else.
    """
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path} holds no {what} ({type(error).__name__}: {error})") from error

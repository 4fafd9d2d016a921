"""Files that hold the state of parties: framed with length and checksum, readable by their owner alone.

A file holds one party's state, or an array that several hold, in one frame. The clients of a process share a file,
since making one takes longer than writing a small state: `clients-0.state` begins with the list of its clients, and has
a frame for each, in that order.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from fedplug.api import codec
from fedplug.api.errors import CheckpointError, MessageError

_CLIENTS = "clients-"


def file_name(address: str) -> str:
    """`client:3` -> `client-3.state`."""
    return address.replace(":", "-") + ".state"


def write_file(path: Path, body: bytes) -> None:
    """Writes a file of one frame."""
    _write(path, [body])


def write_states(folder: Path, states: Mapping[str, Callable[[], bytes]]) -> None:
    """Writes a file with the states of some clients, one at least.

    Args:
        folder: where; other clients may have a file there too.
        states: by address, what makes the state; it is called in turn, so that one at a time is in memory.
    """
    addresses = list(states)
    path = folder / f"{_CLIENTS}{addresses[0].rpartition(':')[2]}.state"
    _write(path, itertools.chain([codec.encode(addresses)], (make() for make in states.values())))


def _write(path: Path, bodies: Iterable[bytes]) -> None:
    """Not forced to disk: a killed process loses nothing that it has written, and after a power failure the checksum
    tells a half-written file, with the checkpoint before it to go back to.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.writelines(map(codec.frame, bodies))


def read_file(path: Path) -> bytes:
    """Reads what `write_file` wrote.

    Raises:
        CheckpointError: the file is missing, cannot be read, was cut off or has changed since it was written.
    """
    bodies = list(_frames(path))
    if len(bodies) != 1:
        raise _damaged(path)
    return bodies[0]


def read_states(folder: Path, addresses: Iterable[str]) -> Iterator[tuple[str, Path, bytes]]:
    """The states of some parties, whichever files they lie in: address, file, state.

    Raises:
        CheckpointError: as `read_file`; or no file has one of them.
    """
    parties = set(addresses)
    clients = {address for address in parties if address.startswith("client:")}
    for address in parties - clients:
        yield address, folder / file_name(address), read_file(folder / file_name(address))
    for path in sorted(folder.glob(f"{_CLIENTS}*.state")):
        for address, state in states_in(path):
            if address in clients:
                clients.discard(address)
                yield address, path, state
    if clients:
        raise CheckpointError(f"the state of {min(clients)} is missing from the checkpoint {folder}")


def states_in(path: Path) -> Iterator[tuple[str, bytes]]:
    """Every client in a file of `write_states`, with its state.

    Raises:
        CheckpointError: as `read_file`.
    """
    frames = _frames(path)
    addresses = next(frames, None)
    if addresses is None:
        raise _damaged(path)
    with holding(path, "states of clients"):
        named = [str(address) for address in codec.decode(addresses)]
    for address in named:
        state = next(frames, None)
        if state is None:  # cut off between two
            raise _damaged(path)
        yield address, state
    if next(frames, None) is not None:
        raise _damaged(path)


def is_whole(path: Path) -> bool:
    """Whether a file of either kind can be read to its end."""
    try:
        if path.name.startswith(_CLIENTS):
            for _ in states_in(path):
                pass
        else:
            read_file(path)
    except CheckpointError:
        return False
    return True


def _frames(path: Path) -> Iterator[bytes]:
    """What is in the frames of a file, one after the other."""
    try:
        with path.open("rb") as file:
            left = os.fstat(file.fileno()).st_size
            while left:
                frame = file.read(codec.FRAME_SIZE)
                frame += file.read(max(0, min(codec.framed_size(frame), left) - len(frame)))
                left -= len(frame)
                yield codec.unframe(frame)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing from the checkpoint") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error})") from error
    except MessageError as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> CheckpointError:
    size = path.stat().st_size
    return CheckpointError(
        f"{path} is damaged: its {size} bytes are not those that were written (length or checksum differ)"
    )


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

"""The line to a party's program: a Unix socket in the party's folder, with one request and one reply per connection.

Both ends prove that they know the key in `party.key`, which only its owner can read. The caller first sends the size of
its request. The party refuses a request that is too large, or that arrives while another one waits, with a reason and
without reading it. So it holds at most two requests, whatever a server sends: the one it answers and the one waiting.

A caller of whom the party waits for a proof, a size or a small request keeps nobody else from being heard: if there are
too many of these, the party cuts off the one that came first, of the process that has most of them.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

from fedplug.api.errors import PartyLost, SetupError
from fedplug_runs.files import open_private

from fedplug_party.owned import open_own

SOCKET, KEY = "party.sock", "party.key"
MOST_BYTES = 1 << 30
"""The largest request that a party reads and the largest reply that a caller accepts, 1 GiB. The reader needs a few
times as much memory."""
_AT_ONCE = 2
"""Requests that a party holds in memory: the one that it answers and one that waits."""
_SMALL = 256
"""Bytes of a small request, such as one for the status. There is always room for it."""
_CALLERS = 16
"""Small requests that a party answers at a time."""
_SILENT = 64
"""Callers that a party waits for at a time. For one more it cuts off another."""
_GREETING = 10.0
"""Seconds that a caller may be silent before it has proven its key and said the size of its request."""
_PATIENCE = 60.0
"""Seconds that it may be silent afterwards, in the middle of a request."""
_LAST_SECONDS = 1.0
_BUSY = (
    b"the party answers one request, and another one waits already; it accepts no third: ask again when it has answered"
)
_SIZE = 8
"""Bytes of the field with the size of a request; the engine that carries it follows."""
_LONGEST_NAME = 64
_LONGEST_PATH = 107
"""The largest number of bytes in the path of a Unix socket on Linux."""


def ask(
    state: Path, request: bytes, seconds: float, engine: str, wanted: Callable[[], bool] = lambda: True
) -> bytes:  # fmt: skip
    """Sends a request to the party with this folder and returns the reply.

    Args:
        state: the `--state` folder of the party.
        request: for the party. The carrier does not read it.
        seconds: how long the party may be silent; `inf`: without limit.
        engine: that carries it.
        wanted: called when the reply begins to arrive: whether the caller still needs it. If not, it is not read.

    Raises:
        PartyLost: the party does not run, is silent for longer, ends in the meantime, refuses the request, or answers
            when the reply is no longer needed.
    """
    file = state / SOCKET
    try:
        key = (state / KEY).read_bytes()
        with contextlib.closing(_connected(file, seconds)) as line:
            answer_challenge(line, key)
            deliver_challenge(line, key)
            line.send_bytes(len(request).to_bytes(_SIZE, "big") + engine.encode())
            if refused := line.recv_bytes():
                raise PartyLost(refused.decode(errors="replace"))
            line.send_bytes(request)
            if not line.poll(None if seconds == math.inf else seconds):
                raise TimeoutError
            if not wanted():
                raise PartyLost(f"the party at {file} answered when nobody was waiting for it any more")
            return line.recv_bytes(MOST_BYTES)
    except AuthenticationError as error:
        raise PartyLost(f"the party at {file} has a different key from {state / KEY}; start it again") from error
    except (BlockingIOError, TimeoutError) as error:
        raise PartyLost(
            f"the party at {file} was silent for longer than {seconds:g} seconds; if a round takes it longer, start "
            "the run with a longer --timeout"
        ) from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise PartyLost(f"no party listens at {file}; start it: fedplug party ... --state {state}") from error
    except (EOFError, OSError) as error:
        cause = getattr(error, "strerror", None) or str(error) or "its program ended"
        if cause == "bad message length":  # of `recv_bytes`
            cause = f"its reply is longer than the limit of {MOST_BYTES:,} bytes"
        raise PartyLost(f"the party at {file} gave no answer ({cause})") from error


def _connected(file: Path, seconds: float) -> Connection:
    until = time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX) as opened:
        opened.settimeout(0)
        while True:
            try:
                opened.connect(str(file))
                break
            except BlockingIOError:  # as many callers wait to be accepted as the system holds
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        _limit(opened, seconds)
        return Connection(opened.detach())


def _limit(opened: socket.socket, seconds: float) -> None:
    """From here on, reading and writing fail if no data moves for this time."""
    opened.settimeout(None)
    if seconds != math.inf:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) or (seconds < 1))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            opened.setsockopt(socket.SOL_SOCKET, option, limit)


class Listening:
    """A party's end of the line. It listens in the party's folder and answers callers that know the key, on threads.

    Args:
        state: the party's folder. Nobody else writes to it.
        answer: returns the reply to a request that an engine carries; called on several threads.

    Raises:
        SetupError: the path of the folder is too long for a socket, or other users may know the key in it.
    """

    def __init__(self, state: Path, answer: Callable[[bytes, str], bytes]) -> None:
        self.file, self._answer = state / SOCKET, answer
        self._key = _key(state / KEY)
        if len(os.fsencode(self.file)) > _LONGEST_PATH:
            raise SetupError(
                f"{self.file} is longer than the {_LONGEST_PATH} bytes that a socket's path may have; choose a shorter "
                "--state, or start the party from a folder close to it with a relative --state"
            )
        self.file.unlink(missing_ok=True)  # left by a program that was killed
        self._socket = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            self._socket.bind(str(self.file))
        finally:
            os.umask(before)
        self._socket.listen(socket.SOMAXCONN)
        self._serving: set[threading.Thread] = set()
        self._silent: dict[socket.socket, int] = {}  # callers that are waited for, the first one first, by process
        self._changing = threading.Lock()
        self._room, self._small_room = threading.Semaphore(_AT_ONCE), threading.Semaphore(_CALLERS)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """Accepts no more calls. Replies on their way still leave, if that does not take long."""
        self.file.unlink(missing_ok=True)
        self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for the next caller
        self._accepting.join(_LAST_SECONDS)  # it may be about to serve one, who is then waited for below
        self._socket.close()
        self._cut_off(0)
        for thread in [*self._serving]:
            thread.join(_LAST_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._socket.accept()
            except OSError:  # closed
                return
            self._serving = {other for other in self._serving if other.is_alive()}
            with self._changing:
                self._silent[opened] = _process_of(opened)
            self._cut_off(_SILENT)
            thread = threading.Thread(target=self._serve, args=(opened,), daemon=True)
            self._serving.add(thread)
            thread.start()

    def _cut_off(self, most: int) -> None:
        """Ends calls that are waited for, until no more than this number are left."""
        with self._changing:
            while len(self._silent) > most:
                ((most_of, _),) = collections.Counter(self._silent.values()).most_common(1)
                first = next(caller for caller, process in self._silent.items() if process == most_of)
                del self._silent[first]
                with contextlib.suppress(OSError):  # it has hung up
                    first.shutdown(socket.SHUT_RDWR)

    def _serve(self, opened: socket.socket) -> None:
        try:
            with opened, contextlib.suppress(AuthenticationError, EOFError, OSError):
                _limit(opened, _GREETING)
                with contextlib.closing(Connection(opened.dup().detach())) as line:
                    self._answer_on(line, opened)
        finally:
            self._heard(opened)

    def _answer_on(self, line: Connection, opened: socket.socket) -> None:
        deliver_challenge(line, self._key)
        answer_challenge(line, self._key)
        head = line.recv_bytes(_SIZE + _LONGEST_NAME)
        size, engine = int.from_bytes(head[:_SIZE], "big"), head[_SIZE:].decode(errors="replace")
        if size > MOST_BYTES:
            line.send_bytes(
                f"the party refused a request of {size:,} bytes; it reads at most {MOST_BYTES:,}: send less in one "
                "round, with a smaller model or fewer ciphertexts".encode()
            )
            return
        _limit(opened, _PATIENCE)
        if size <= _SMALL:
            line.send_bytes(b"")
            request = line.recv_bytes(size)
            with _place_in(self._small_room) as there_is:
                self._heard(opened)
                if there_is:
                    line.send_bytes(self._answer(request, engine))
            return
        with _place_in(self._room) as there_is:
            self._heard(opened)
            line.send_bytes(b"" if there_is else _BUSY)
            if there_is:
                line.send_bytes(self._answer(line.recv_bytes(size), engine))

    def _heard(self, opened: socket.socket) -> None:
        """A caller is waited for no longer: it has sent a request, or has a place for one, or is gone."""
        with self._changing:
            self._silent.pop(opened, None)


@contextlib.contextmanager
def _place_in(room: threading.Semaphore) -> Iterator[bool]:
    """Reserves a place; yields False if there is none."""
    there_is = room.acquire(blocking=False)
    try:
        yield there_is
    finally:
        if there_is:
            room.release()


def _process_of(opened: socket.socket) -> int:
    """The process at the other end of a socket; 0 where the system does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0
    process: int = struct.unpack("3i", opened.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return process


def _key(file: Path) -> bytes:
    """The key of the folder. It is drawn when a party first starts there."""
    if not file.exists():
        draft = file.with_suffix(".tmp")
        draft.unlink(missing_ok=True)
        with open_private(draft, "xb") as opened:
            opened.write(secrets.token_hex(32).encode())
        draft.replace(file)
    with open(open_own(file, os.O_RDONLY, secret=True), "rb") as opened:
        return opened.read()

"""The line to a party's program: a Unix socket in the party's own folder, one request and one reply a connection.

Both ends prove that they know the key in `party.key`, which its owner alone can read. The size of a request is told
first, so that one that is too large, or that comes while another waits, is refused with a reason, and none of it is
read: whatever a server sends, a party holds two requests at most, the one that it answers and the one that waits.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

from fedplug.api.errors import PartyLost, SetupError
from fedplug.api.files import open_private

from fedplug_party.owned import open_own

SOCKET, KEY = "party.sock", "party.key"
MOST_BYTES = 1 << 30
"""The largest request that a party reads, and the largest reply that is taken from it, 1 GiB: whoever reads it needs a
few times as much memory."""
_AT_ONCE = 2
"""Requests that a party has in memory: one that it answers, and one that waits."""
_SMALL = 256
"""Bytes of a request that is no work, such as that for its status, for which there is always room."""
_CALLERS = 16
"""Connections at a time; further ones are closed at once."""
_PATIENCE = 60.0
"""Seconds that a party waits for whoever has called it and then says nothing."""
_LAST_SECONDS = 1.0
_BUSY = (
    b"it answers a request, and another one waits already; a party takes no third: ask again when it has answered"
)
_SIZE = 8
"""Bytes in which the size of a request is told."""
_LONGEST_PATH = 107
"""Bytes that the path of a Unix socket may have on Linux."""


def ask(state: Path, request: bytes, seconds: float, wanted: Callable[[], bool] = lambda: True) -> bytes:
    """Hands a request to the party whose folder this is, and gives its reply.

    Args:
        state: the folder that the party was started with.
        request: for the party; whoever carries it does not read it.
        seconds: that the party may be silent for; `inf`: as long as it likes.
        wanted: whether the reply is still of use, asked when it begins to arrive; one that is not is never read.

    Raises:
        PartyLost: the party is not there, is silent for longer, ends meanwhile, does not take the request, or answers
            when nobody waits any more.
    """
    file = state / SOCKET
    try:
        key = (state / KEY).read_bytes()
        with contextlib.closing(_connected(file, seconds)) as line:
            answer_challenge(line, key)
            deliver_challenge(line, key)
            line.send_bytes(len(request).to_bytes(_SIZE, "big"))
            if refused := line.recv_bytes():
                raise PartyLost(refused.decode(errors="replace"))
            line.send_bytes(request)
            if not line.poll(None if seconds == math.inf else seconds):
                raise TimeoutError
            if not wanted():
                raise PartyLost(f"the party at {file} answered when nobody waited any more")
            return line.recv_bytes(MOST_BYTES)
    except AuthenticationError as error:
        raise PartyLost(f"the party at {file} has another key than {state / KEY}; start it again") from error
    except (BlockingIOError, TimeoutError) as error:
        raise PartyLost(
            f"the party at {file} was silent for longer than {seconds:g} seconds; if it needs more for a round, start "
            "the run with a longer --timeout"
        ) from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise PartyLost(f"nobody listens at {file}; start the party: fedplug party ... --state {state}") from error
    except (EOFError, OSError) as error:
        cause = getattr(error, "strerror", None) or str(error) or "it ended"
        if cause == "bad message length":  # of `recv_bytes`
            cause = f"it sends more than the {MOST_BYTES:,} bytes that are taken at once"
        raise PartyLost(f"the party at {file} gave no answer ({cause})") from error


def _connected(file: Path, seconds: float) -> Connection:
    with socket.socket(socket.AF_UNIX) as opened:
        if seconds != math.inf:
            opened.settimeout(seconds)
        opened.connect(str(file))
        return _limited(opened, seconds)


def _limited(opened: socket.socket, seconds: float) -> Connection:
    """A connection over a socket, on which reading and writing fail if nothing moves for so long."""
    opened.settimeout(None)
    if seconds != math.inf:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6) or (seconds < 1))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            opened.setsockopt(socket.SOL_SOCKET, option, limit)
    return Connection(opened.detach())


class Listening:
    """A party's end: listens in its folder from here on, and answers whoever knows the key, each on a thread.

    Args:
        state: the party's folder, which nobody else writes to.
        answer: gives the reply to a request; called on several threads.

    Raises:
        SetupError: the path of the folder is too long for a socket, or the key in it may be known to others.
    """

    def __init__(self, state: Path, answer: Callable[[bytes], bytes]) -> None:
        self.file, self._answer = state / SOCKET, answer
        self._key = _key(state / KEY)
        if len(os.fsencode(self.file)) > _LONGEST_PATH:
            raise SetupError(
                f"{self.file} is longer than the {_LONGEST_PATH} bytes that a socket's path may have; choose a shorter "
                "--state, or start the party from nearby with a relative one"
            )
        self.file.unlink(missing_ok=True)  # of a program that was killed
        self._socket = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            self._socket.bind(str(self.file))
        finally:
            os.umask(before)
        self._socket.listen(16)
        self._serving: set[threading.Thread] = set()
        self._room = threading.Semaphore(_AT_ONCE)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Nobody can call from here on; replies that are on their way still leave, if that does not take long."""
        self.file.unlink(missing_ok=True)
        self._socket.shutdown(socket.SHUT_RDWR)  # whoever waits for the next caller wakes up
        self._socket.close()
        for thread in [*self._serving]:
            thread.join(_LAST_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                opened, _ = self._socket.accept()
            except OSError:  # closed
                return
            self._serving = {other for other in self._serving if other.is_alive()}
            if len(self._serving) >= _CALLERS:
                opened.close()
                continue
            thread = threading.Thread(target=self._serve, args=(opened,), daemon=True)
            self._serving.add(thread)
            thread.start()

    def _serve(self, opened: socket.socket) -> None:
        with (
            contextlib.suppress(AuthenticationError, EOFError, OSError),
            contextlib.closing(_limited(opened, _PATIENCE)) as line,
        ):
            deliver_challenge(line, self._key)
            answer_challenge(line, self._key)
            size = int.from_bytes(line.recv_bytes(_SIZE), "big")
            if size > MOST_BYTES:
                line.send_bytes(
                    f"a request of {size:,} bytes was refused; a party reads {MOST_BYTES:,} at most: send less in one "
                    "round, with a smaller model or fewer ciphertexts".encode()
                )
                return
            with self._place_for(size) as there_is:
                line.send_bytes(b"" if there_is else _BUSY)
                if there_is:
                    line.send_bytes(self._answer(line.recv_bytes(size)))

    @contextlib.contextmanager
    def _place_for(self, size: int) -> Iterator[bool]:
        """Inside, there is room for a request of that size; False: there is none."""
        if size <= _SMALL:
            yield True
        elif self._room.acquire(blocking=False):
            try:
                yield True
            finally:
                self._room.release()
        else:
            yield False


def _key(file: Path) -> bytes:
    """The key of the folder; drawn when the party is first started there."""
    if not file.exists():
        draft = file.with_suffix(".tmp")
        draft.unlink(missing_ok=True)
        with open_private(draft, "xb") as opened:
            opened.write(secrets.token_hex(32).encode())
        draft.replace(file)
    with open(open_own(file, os.O_RDONLY, secret=True), "rb") as opened:
        return opened.read()

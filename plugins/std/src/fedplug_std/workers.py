"""Both ends of a worker process: its start, commands, waiting and end, and its own loop.

Workers are never forked from the process that runs the protocol: torch and SEAL do not survive that, and it knows
secrets that they must not have. They are forked from a process that has only imported libraries, which saves seconds a
worker, or spawned if the system has no such server.

Waiting for a worker is limited. It has `Job.timeout` seconds for the reply of one party. Time in which the server is
busy elsewhere does not count, since a reply in the pipe is read first. A worker that is silent for longer is ended, and
then counts as dead.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from fedplug.api import codec
from fedplug.api.errors import FedplugError, PartyLost, SetupError, describe
from fedplug.engines.base import Job, host_of

from fedplug_std.pool import Member, draw_apart

CLOSE_SECONDS = 2.0
_FAILED = b"failed "
"""First byte of an answer that is not a party's reply; framed replies begin differently."""
_LIBRARIES = ("fedplug.round.parties", "torch", "tenseal", "sklearn.datasets")
"""Modules that take workers seconds to import; they will need those that this process needed."""


class Worker(Member):
    """One worker process and the server's end of its pipe."""

    def __init__(self, job: Job, number: int, client_ids: list[int] | None) -> None:
        context = _context()
        self.pipe, theirs = context.Pipe()
        super().__init__(number, job.timeout)
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs, job, client_ids, dict(os.environ)), name=self.name, daemon=True
        )
        self._why = ""
        if job.timeout:
            _limit(self.pipe, job.timeout)
        self.process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process.is_alive()

    def ask(self, command: str, argument: str, message: bytes = b"") -> None:
        """See `Member.ask`."""
        with self._passing():
            self.pipe.send_bytes(codec.encode([command, argument]))
            self.pipe.send_bytes(message)
        self._begins(command)

    def take(self) -> Any:
        """See `Member.take`."""
        with self._passing(f" during {self.command}" if self.command != "deliver" else ""):
            answer = self.pipe.recv_bytes()
        if self.command != "deliver":
            return codec.decode(answer)
        if answer.startswith(_FAILED):
            raise SetupError(f"{self.name}: {codec.decode(answer[len(_FAILED) :])}")
        return answer

    def end(self) -> None:
        """Ends the process, which was silent for too long; its readers notice the end."""
        self._why = self._was_silent()
        self.process.kill()

    @contextlib.contextmanager
    def _passing(self, when: str = "") -> Iterator[None]:
        """Inside, a message passes through the pipe; a worker that stops in the middle of it is ended.

        Raises:
            PartyLost: the worker has ended, with its code or the reason.
        """
        try:
            yield
        except (EOFError, OSError, ValueError) as error:
            if isinstance(error, BlockingIOError):
                self.end()
            self.process.join(CLOSE_SECONDS)
            why = self._why or f"ended{when} with code {self.process.exitcode}"
            raise PartyLost(f"worker process {self.name} {why}") from error


def _limit(pipe: Connection, seconds: int) -> None:
    """From here on, reading and writing at this end raise BlockingIOError if nothing moves for this time.

    The kernel keeps the time, since a thread would be slower than many messages.
    """
    with socket.socket(fileno=os.dup(pipe.fileno())) as end:  # the same socket, and its options are its own
        end.setblocking(True)  # independent of `socket.setdefaulttimeout`
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))


def answering(workers: Sequence[Worker]) -> list[Worker]:
    """Waits until some of these workers answer or have ended, and ends those whose time is over; returns them all."""
    left = min(worker.until for worker in workers) - time.monotonic()
    ready = wait([worker.pipe for worker in workers], None if left == math.inf else max(0.0, left))
    if ready:
        return [worker for worker in workers if worker.pipe in ready]
    now = time.monotonic()
    over = [worker for worker in workers if worker.until <= now]
    for worker in over:
        worker.end()
    return over


def _context() -> ForkServerContext | SpawnContext:
    """The way to start workers. The first call in a process starts the server that they are forked from."""
    if sys.platform != "linux":  # on other systems, system libraries do not survive a fork
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver, resource_tracker

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in _LIBRARIES if name in sys.modules])
    given = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = given or "1"  # a thread of a library would be lost in the fork
    resource_tracker.ensure_running()  # would unblock Ctrl-C when it starts
    # Ctrl-C is for this process. The server and its workers keep it blocked, also while they import.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if given is None:
            del os.environ["OMP_NUM_THREADS"]
    return context


def serve(pipe: Connection, job: Job, client_ids: list[int] | None, environ: dict[str, str]) -> None:
    """The life of a worker: build the parties, then answer until the pipe closes.

    Ctrl-C is for the parent to handle; it closes the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environ)  # the server that workers are forked from has the environment of its start
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    draw_apart()
    with contextlib.suppress(EOFError, OSError):  # the parent has closed the pipe, perhaps while this was built
        try:
            host = host_of(job, client_ids)
        except Exception as error:
            pipe.send_bytes(codec.encode(describe(error)))
            return
        pipe.send_bytes(codec.encode(""))
        while True:
            command, argument = codec.decode(pipe.recv_bytes())
            data = pipe.recv_bytes()
            reply: bytes | codec.Packed
            try:
                if command == "deliver":
                    reply = host.deliver(argument, data)
                else:
                    getattr(host, command)(Path(argument))
                    reply = codec.encode("")
            except (FedplugError, OSError) as error:
                reply = (_FAILED if command == "deliver" else b"") + codec.encode(describe(error))
            pipe.send_bytes(reply if isinstance(reply, bytes) else reply.to_bytes())

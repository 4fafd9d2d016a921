"""Clients in persistent worker processes, the key server in one of its own.

Workers are never forked from the process that runs the protocol: torch and SEAL do not survive that, and it knows
things that they must not. They are forked from one that has imported libraries and done nothing else, which saves
seconds a worker, or spawned where the system has no such server. They hold their clients' data, state and keys for the
whole run, and speak through multiprocessing pipes. Each worker gets its next message when it has answered the one
before, so a pipe never fills from both ends. A worker that dies costs its clients the round; it is started again
from the last checkpoint.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from fedplug.api import codec
from fedplug.api.errors import FedplugError, PartyLost, SetupError, describe
from fedplug.engines.base import Job
from fedplug.round.parties import ClientHost, KeyServerHost
from fedplug.wire.record import KEY_SERVER, client_address

KEY_SERVER_WORKER = -1
_CLOSE_SECONDS = 2.0
_REVIVALS = 3
"""How often in a row a worker may die while it is being restored."""
_MEMORY = "is there enough memory? try --workers 1 or --engine local"
_LIBRARIES = ("fedplug.round.parties", "fedplug.api.torch_model", "torch", "tenseal", "sklearn.datasets")
"""What workers take seconds to import; those that this process needed, they will."""


class ProcessEngine:
    """Clients spread over worker processes; the key server in a process of its own."""

    def __init__(self, job: Job) -> None:
        self._job = dataclasses.replace(job, world=None)
        num_clients = int(job.recipe["data"]["clients"])
        workers = max(1, min(job.workers, num_clients))
        self._members = {number: list(range(number, num_clients, workers)) for number in range(workers)}
        self._home = {client_address(c): number for number, ids in self._members.items() for c in ids}
        if job.key_server:
            self._members[KEY_SERVER_WORKER] = []
            self._home[KEY_SERVER] = KEY_SERVER_WORKER
        self._workers: dict[int, Worker] = {}
        self._saved: Path | None = None
        try:
            self._start(list(self._members))
        except BaseException:
            self.close()
            raise

    def exchange(self, messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        """Keeps every worker busy with one message at a time and yields replies as they come."""
        self._revive()
        waiting: dict[int, list[str]] = {}
        for address in messages:
            waiting.setdefault(self._home[address], []).append(address)
        running: dict[Connection, tuple[int, str]] = {}

        def send_next(number: int) -> Iterator[tuple[str, PartyLost]]:
            while waiting[number]:
                address = waiting[number].pop(0)
                worker = self._workers[number]
                try:
                    worker.send("deliver", address, messages[address])
                    running[worker.pipe] = (number, address)
                    return
                except (OSError, ValueError):
                    yield address, self._lost(number)

        for number in list(waiting):
            yield from send_next(number)
        while running:
            for pipe in wait(list(running)):
                assert isinstance(pipe, Connection)  # nothing else is waited for
                number, address = running.pop(pipe)
                try:
                    yield address, pipe.recv_bytes()
                except (EOFError, OSError):
                    yield address, self._lost(number)
                yield from send_next(number)

    def save(self, folder: Path) -> None:
        """Every worker writes its parties' state; the server process never sees it.

        A worker that has ended is restored from the checkpoint before, and then writes that.
        """
        self._everywhere("save", str(folder))

    def saved(self, folder: Path) -> None:
        """Tells where a complete checkpoint lies, from which a worker that dies is restored."""
        self._saved = folder

    def load(self, folder: Path) -> None:
        """Every worker reads its parties' state."""
        self._saved = folder
        self._everywhere("load", str(folder))

    def close(self) -> None:
        """Asks every worker to end, and ends those that do not within two seconds."""
        for worker in self._workers.values():
            worker.pipe.close()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for worker in self._workers.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()

    def _start(self, numbers: list[int]) -> None:
        for number in numbers:
            self._workers[number] = Worker(self._job, number, self._members[number])
        for number in numbers:
            self._finished(self._workers[number], "start")

    def _finished(self, worker: Worker, command: str) -> None:
        try:
            worker.expect_done(command)
        except PartyLost as error:
            raise SetupError(f"{error}; {_MEMORY}") from error

    def _everywhere(self, command: str, argument: str) -> None:
        """Has every worker run a command; if one ends meanwhile, starts it again and has all of them repeat it."""
        lost: PartyLost | None = None
        for _ in range(2):
            self._revive()
            lost, failure, asked = None, None, []
            for number, worker in self._workers.items():
                try:
                    worker.send(command, argument, b"")
                    asked.append(worker)
                except OSError:
                    lost = self._lost(number)
            for worker in asked:  # every answer is read, so that none is taken for that to a later question
                try:
                    worker.expect_done(command)
                except PartyLost as error:
                    lost = error
                except SetupError as error:
                    failure = error
            if failure:
                raise failure
            if lost is None:
                return
        raise SetupError(f"{lost}; {_MEMORY}")

    def _revive(self) -> None:
        """Starts dead workers again from the last checkpoint; those that die of that, a few times.

        Raises:
            SetupError: one dies every time, or cannot load its state.
        """
        lost: PartyLost | None = None
        for _ in range(_REVIVALS):
            dead = [number for number, worker in self._workers.items() if not worker.process.is_alive()]
            if not dead:
                return
            for number in dead:
                self._workers[number].pipe.close()
                self._workers[number] = Worker(self._job, number, self._members[number])
            for number in dead:
                try:
                    self._workers[number].expect_done("start")
                    if self._saved is not None:
                        self._workers[number].send("load", str(self._saved), b"")
                        self._workers[number].expect_done("load")
                except (PartyLost, OSError):
                    lost = self._lost(number)
        if lost is not None and any(not worker.process.is_alive() for worker in self._workers.values()):
            raise SetupError(f"{lost}, {_REVIVALS} times while it was being restored; {_MEMORY}")

    def _lost(self, number: int) -> PartyLost:
        process = self._workers[number].process
        process.join(_CLOSE_SECONDS)
        return PartyLost(f"worker process {process.name} ended with code {process.exitcode}")


def _context() -> ForkServerContext | SpawnContext:
    """How workers are started. The first call in a process starts the server that they are forked from."""
    if sys.platform != "linux":  # elsewhere libraries of the system do not survive a fork
        return multiprocessing.get_context("spawn")
    from multiprocessing.forkserver import ensure_running

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([name for name in _LIBRARIES if name in sys.modules])
    given = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = given or "1"  # a thread of a library would be lost in the fork
    try:
        ensure_running()
    finally:
        if given is None:
            del os.environ["OMP_NUM_THREADS"]
    return context


class Worker:
    """One worker process and the server's end of its pipe."""

    def __init__(self, job: Job, number: int, client_ids: list[int]) -> None:
        context = _context()
        self.pipe, theirs = context.Pipe()
        name = "key-server" if number == KEY_SERVER_WORKER else f"worker-{number}"
        self.process: BaseProcess = context.Process(
            target=serve, args=(theirs, job, number, client_ids, dict(os.environ)), name=name, daemon=True
        )
        self.process.start()
        theirs.close()

    def send(self, command: str, argument: str, data: bytes) -> None:
        self.pipe.send_bytes(codec.encode([command, argument]))
        self.pipe.send_bytes(data)

    def expect_done(self, command: str) -> None:
        """Waits for the end of a command.

        Raises:
            SetupError: the worker failed.
            PartyLost: the worker ended.
        """
        try:
            failure = codec.decode(self.pipe.recv_bytes())
        except (EOFError, OSError) as error:
            self.process.join(_CLOSE_SECONDS)
            raise PartyLost(f"{self.process.name} ended during {command} with code {self.process.exitcode}") from error
        if failure:
            raise SetupError(f"{self.process.name} could not {command}: {failure}")


def _draw_apart() -> None:
    """Seeds the global generators from the system: a fork copies their state, and torch begins with the same anywhere.

    Noise that a plugin draws from them would otherwise be the same in every worker, and cancel between two uploads.
    """
    import torch

    np.random.seed()
    torch.seed()


def serve(pipe: Connection, job: Job, number: int, client_ids: list[int], environ: dict[str, str]) -> None:
    """The life of a worker: build the parties, then answer until the pipe closes.

    Ctrl-C is for the parent to handle; it closes the pipe.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(environ)  # the server that workers are forked from has that of its own start
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _draw_apart()
    host: ClientHost | KeyServerHost
    try:
        recipe, composition = job.build()
        if number == KEY_SERVER_WORKER:
            host = KeyServerHost(recipe, composition, job.layout, job.run_dir)
        else:
            share = job.resident and max(1, job.resident * len(client_ids) // recipe.data.clients)
            host = ClientHost(
                recipe, composition, client_ids, job.data_root, job.device, job.run_dir, resident=share
            )
        pipe.send_bytes(codec.encode(""))
    except Exception as error:
        pipe.send_bytes(codec.encode(describe(error)))
        return
    while True:
        try:
            command, argument = codec.decode(pipe.recv_bytes())
            data = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        reply: bytes | codec.Packed
        try:
            if command == "deliver":
                reply = host.deliver(argument, data)
            else:
                getattr(host, command)(Path(argument))
                reply = codec.encode("")
        except (FedplugError, OSError) as error:
            reply = codec.encode(describe(error))
        try:
            pipe.send_bytes(reply if isinstance(reply, bytes) else reply.to_bytes())
        except OSError:
            return

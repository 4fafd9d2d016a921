"""Clients in persistent worker processes, and the key server in a separate one.

They hold their clients' data, state and keys for the whole run, and communicate through multiprocessing pipes. Each
worker gets its next message after its reply to the previous one, so a pipe never fills from both ends. If a worker
dies, or is silent for longer than `Job.timeout`, its clients lose the round. It is started again from the last
checkpoint.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from fedplug.api.errors import PartyLost, SetupError
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug.engines.base import Job, shares

from fedplug_std.workers import CLOSE_SECONDS, KEY_SERVER_WORKER, Worker, answering

_REVIVALS = 3
"""How often in a row a worker may end while it is being restored."""
_MEMORY = "is there enough memory? try --workers 1 or --engine local"


class ProcessEngine:
    """Clients spread over worker processes; the key server in a separate process."""

    in_process = False

    def __init__(self, job: Job) -> None:
        self._job = dataclasses.replace(job, world=None)
        num_clients = int(job.recipe["data"]["clients"])
        self._members = dict(enumerate(shares(num_clients, job.workers or os.cpu_count() or 1)))
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
        running: dict[Connection, Worker] = {}
        asked: dict[Connection, tuple[int, str]] = {}

        def send_next(number: int) -> Iterator[tuple[str, PartyLost]]:
            while waiting[number]:
                address = waiting[number].pop(0)
                worker = self._workers[number]
                try:
                    worker.send("deliver", address, messages[address])
                    running[worker.pipe], asked[worker.pipe] = worker, (number, address)
                    return
                except (OSError, ValueError):
                    yield address, worker.lost()

        for number in list(waiting):
            yield from send_next(number)
        while running:
            for pipe in answering(running):
                worker, (number, address) = running.pop(pipe), asked.pop(pipe)
                try:
                    yield address, worker.receive()
                except (EOFError, OSError):
                    yield address, worker.lost()
                yield from send_next(number)

    def save(self, folder: Path) -> None:
        """Every worker writes its parties' state; the server process never sees it.

        A worker that has ended is restored from the checkpoint before, and then writes that.
        """
        self._everywhere("save", str(folder))

    def saved(self, folder: Path) -> None:
        """Sets the complete checkpoint from which dead workers are restored."""
        self._saved = folder

    def load(self, folder: Path) -> None:
        """Every worker reads its parties' state."""
        self._saved = folder
        self._everywhere("load", str(folder))

    def overhead(self) -> dict[str, int]:
        """None."""
        return {}

    def close(self) -> None:
        """Asks every worker to end, and ends those that do not within two seconds."""
        for worker in self._workers.values():
            worker.pipe.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self._workers.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()

    def _start(self, numbers: list[int]) -> None:
        for number in numbers:
            self._workers[number] = Worker(self._job, number, self._members[number])
        if lost := self._losses(numbers, "start"):
            raise SetupError(f"{lost[0]}; {_MEMORY}")

    def _losses(self, numbers: Iterable[int], command: str) -> list[PartyLost]:
        """Waits until all of these workers have finished their command or ended; returns those that ended.

        Every answer is read, so that none counts as the answer to a later command.

        Raises:
            SetupError: a worker failed.
        """
        running = {self._workers[number].pipe: self._workers[number] for number in numbers}
        lost: list[PartyLost] = []
        failure: SetupError | None = None
        while running:
            for pipe in answering(running):
                try:
                    running.pop(pipe).expect_done(command)
                except PartyLost as error:
                    lost.append(error)
                except SetupError as error:
                    failure = error
        if failure:
            raise failure
        return lost

    def _everywhere(self, command: str, argument: str) -> None:
        """Runs a command at every worker; if one ends meanwhile, restarts it and repeats the command at all."""
        lost: list[PartyLost] = []
        for _ in range(2):
            self._revive()
            lost = self._told(list(self._workers), command, argument)
            if not lost:
                return
        raise SetupError(f"{lost[-1]}; {_MEMORY}")

    def _told(self, numbers: list[int], command: str, argument: str) -> list[PartyLost]:
        """Runs a command at some workers; returns those that ended."""
        lost, asked = [], []
        for number in numbers:
            try:
                self._workers[number].send(command, argument, b"")
                asked.append(number)
            except OSError:
                lost.append(self._workers[number].lost())
        return lost + self._losses(asked, command)

    def _revive(self) -> None:
        """Restarts dead workers from the last checkpoint, a few times if they die again.

        Raises:
            SetupError: one dies every time, or cannot load its state.
        """
        lost: list[PartyLost] = []
        for _ in range(_REVIVALS):
            dead = [number for number, worker in self._workers.items() if not worker.process.is_alive()]
            if not dead:
                return
            for number in dead:
                self._workers[number].pipe.close()
                self._workers[number] = Worker(self._job, number, self._members[number])
            lost += self._losses(dead, "start")
            if self._saved is not None:
                begun = [number for number in dead if self._workers[number].process.is_alive()]
                lost += self._told(begun, "load", str(self._saved))
        if lost and any(not worker.process.is_alive() for worker in self._workers.values()):
            raise SetupError(f"{lost[-1]}, {_REVIVALS} times while it was being restored; {_MEMORY}")

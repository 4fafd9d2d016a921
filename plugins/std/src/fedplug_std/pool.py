"""Parties in several processes: each process gets one message at a time, and one that ends is replaced.

The engines `processes` and `ray` are pools, and differ in how they start a process, ask it and wait for it. A process
holds its clients' data, state and keys for the whole run. If it ends, or is silent for longer than `Job.timeout`, its
clients lose the round. Another process takes its place from the last checkpoint.
"""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from fedplug.api.errors import PartyLost, SetupError
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug.engines.base import Job

KEY_SERVER_MEMBER = -1
_REVIVALS = 3
"""How often in a row a process may end while it is being restored."""
_LEAST = 600.0
"""Least number of seconds for a process' actions for all of its parties together: start, save, load."""


def shares(num_clients: int, workers: int) -> list[list[int]]:
    """The clients of each worker, of which there are no more than clients."""
    workers = max(1, min(workers, num_clients))
    return [list(range(number, num_clients, workers)) for number in range(workers)]


def draw_apart() -> None:
    """Seeds the global generators from the system: a fork copies their state, and torch begins with the same anywhere.

    Noise that a plugin draws from them would otherwise be the same in every worker, and cancel between two uploads.
    """
    import numpy as np
    import torch

    np.random.seed()
    torch.seed()


class Member(abc.ABC):
    """A process with some clients, or with the key server, as the process that runs the protocol sees it.

    Args:
        number: of the worker; `KEY_SERVER_MEMBER`.
        timeout: seconds for the answer of one party; 0: no limit.

    Attributes:
        command: the last one that it was asked to run.
        until: when the time for its answer is over, by `time.monotonic`.
    """

    def __init__(self, number: int, timeout: int) -> None:
        self.name = "key-server" if number == KEY_SERVER_MEMBER else f"worker-{number}"
        self.number, self._timeout = number, timeout
        self._begins("start")

    @property
    @abc.abstractmethod
    def alive(self) -> bool:
        """Whether it can be asked, as far as this process knows."""

    @abc.abstractmethod
    def ask(self, command: str, argument: str, message: Any = b"") -> None:
        """Sends a command: `deliver` a message to an address, `save` into a folder, or `load` from it.

        Raises:
            PartyLost: it has ended.
        """

    @abc.abstractmethod
    def take(self) -> Any:
        """The answer, once it has begun to arrive or its time is over: a party's reply; of another command the error
        message, or an empty text.

        Raises:
            PartyLost: it has ended, or had to be ended.
            SetupError: it cannot continue, for a reason other than its parties.
        """

    def _begins(self, command: str) -> None:
        """The time for an answer begins."""
        self.command, self.until = command, time.monotonic() + self._seconds(command)

    def _seconds(self, command: str) -> float:
        if not self._timeout:
            return math.inf
        return self._timeout if command == "deliver" else max(self._timeout, _LEAST)

    def _was_silent(self) -> str:
        return (
            f"was silent for longer than --timeout {self._timeout} allows, so the run ended it; if a client needs more "
            "time, use a larger --timeout (seconds; 0: no limit)"
        )


M = TypeVar("M", bound=Member)


class Pool(abc.ABC, Generic[M]):
    """An engine whose clients are spread over processes; the key server has a separate one.

    Args:
        job: of the run.
        workers: at most so many processes hold the clients.
    """

    in_process = False
    remedy: ClassVar[str]
    """What to do if processes end again and again."""

    def __init__(self, job: Job, workers: int) -> None:
        self._job = job
        held = shares(int(job.recipe["data"]["clients"]), workers)
        self._clients: dict[int, list[int] | None] = dict(enumerate(held))
        self._home = {client_address(c): number for number, ids in self._clients.items() for c in ids or ()}
        if job.key_server:
            self._clients[KEY_SERVER_MEMBER] = None
            self._home[KEY_SERVER] = KEY_SERVER_MEMBER
        self._members: dict[int, M] = {}
        self._saved: Path | None = None
        try:
            if lost := self._begun([*self._clients]):
                raise SetupError(f"{lost[0]}; {self.remedy}")
        except BaseException:
            self.close()
            raise

    @abc.abstractmethod
    def _start(self, number: int) -> M:
        """Starts a process, which begins to build its parties."""

    @abc.abstractmethod
    def _answering(self, asked: Sequence[M]) -> list[M]:
        """Waits until some of these have answered, have ended, or have run out of time."""

    def exchange(self, messages: Mapping[str, Any]) -> Iterator[tuple[str, bytes | Exception]]:
        """Keeps every process busy with one message at a time, and yields replies as they arrive."""
        self._revive()
        waiting: dict[M, list[str]] = {}
        for address in messages:
            waiting.setdefault(self._members[self._home[address]], []).append(address)
        running: dict[M, str] = {}

        def send_next(member: M) -> Iterator[tuple[str, PartyLost]]:
            while waiting[member]:
                address = waiting[member].pop(0)
                try:
                    member.ask("deliver", address, messages[address])
                    running[member] = address
                    return
                except PartyLost as lost:
                    yield address, lost

        for member in waiting:
            yield from send_next(member)
        while running:
            for member in self._answering([*running]):
                address = running.pop(member)
                try:
                    yield address, member.take()
                except PartyLost as lost:
                    yield address, lost
                yield from send_next(member)

    def save(self, folder: Path) -> None:
        """Every process writes its parties' state. This process never sees it.

        One that has ended is restored from the checkpoint before, and then writes that.
        """
        self._everywhere("save", folder)

    def saved(self, folder: Path) -> None:
        """Sets the complete checkpoint from which processes are restored."""
        self._saved = folder.absolute()

    def load(self, folder: Path) -> None:
        """Every process reads its parties' state."""
        self.saved(folder)
        self._everywhere("load", folder)

    def overhead(self) -> dict[str, int]:
        """None that is known."""
        return {}

    @abc.abstractmethod
    def close(self) -> None:
        """Ends every process."""

    def _begun(self, numbers: Iterable[int]) -> list[PartyLost]:
        """Starts these processes; returns those that ended."""
        started = [self._start(number) for number in numbers]
        self._members |= {member.number: member for member in started}
        return self._losses(started)

    def _losses(self, members: Iterable[M]) -> list[PartyLost]:
        """Waits until all of these have run their command or have ended; returns those that ended.

        Every answer is read, so that none counts as the answer to a later command.

        Raises:
            SetupError: one failed.
        """
        running, lost, failures = [*members], list[PartyLost](), list[str]()
        while running:
            for member in self._answering(running):
                running.remove(member)
                try:
                    if failure := member.take():
                        failures.append(f"{member.name} could not {member.command}: {failure}")
                except PartyLost as error:
                    lost.append(error)
                except SetupError as error:
                    failures.append(str(error))
        if failures:
            raise SetupError(failures[0])
        return lost

    def _everywhere(self, command: str, folder: Path) -> None:
        """Runs a command at every process. If one ends meanwhile, another replaces it, and all repeat the command."""
        lost: list[PartyLost] = []
        for _ in range(2):
            self._revive()
            if not (lost := self._told(self._members.values(), command, folder)):
                return
        raise SetupError(f"{lost[-1]}, twice during the command {command}; {self.remedy}")

    def _told(self, members: Iterable[M], command: str, folder: Path) -> list[PartyLost]:
        """Runs a command at some processes; returns those that ended."""
        lost, asked = list[PartyLost](), list[M]()
        for member in members:
            try:
                member.ask(command, str(folder.absolute()))
                asked.append(member)
            except PartyLost as error:
                lost.append(error)
        return lost + self._losses(asked)

    def _revive(self) -> None:
        """Replaces processes that have ended, from the last checkpoint, a few times if they end again.

        Raises:
            SetupError: one ends every time, or cannot load its state.
        """
        lost: list[PartyLost] = []
        for _ in range(_REVIVALS):
            dead = [number for number, member in self._members.items() if not member.alive]
            if not dead:
                return
            lost += self._begun(dead)
            if self._saved is not None:
                begun = [member for number in dead if (member := self._members[number]).alive]
                lost += self._told(begun, "load", self._saved)
        if lost and not all(member.alive for member in self._members.values()):
            raise SetupError(f"{lost[-1]}, {_REVIVALS} times while it was being restored; {self.remedy}")

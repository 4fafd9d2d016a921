"""The engine `ray`: Ray places actors on the machines of a cluster. They hold the clients, and one the key server.

Actors hold their clients' data, state and keys for the whole run. Each gets its next message after it has answered the
previous one. Ray's object store holds messages to several actors, once per machine. If an actor dies, perhaps with its
machine, or is silent for longer than `Job.timeout`, its clients lose the round. Another actor replaces it from the last
checkpoint, wherever there is room.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedplug
from fedplug import Field
from fedplug.api.errors import PartyLost, SetupError
from fedplug.api.parties import KEY_SERVER, client_address
from fedplug.engines.base import Job, shares
from fedplug_runs.files import write_text

from fedplug_ray.actor import Start

if TYPE_CHECKING:
    from fedplug_ray.members import Member

_REVIVALS = 3
"""How often in a row an actor may die while the engine restores it."""
_STORED = 100_000
"""Size in bytes from which Ray puts a message into the object store and not into the question."""


class RayEngine:
    """Clients spread over Ray actors, on this machine or on a cluster. The key server has a separate actor."""

    class Options(fedplug.Options):
        """The Ray to use, and its reservations for each worker."""

        address: str | None = Field(
            None, min_length=1,
            description="of a running Ray: HOST:PORT or auto; default: RAY_ADDRESS, otherwise the run starts its own",
        )  # fmt: skip
        cpus: float = Field(1, ge=0, description="CPUs of each worker")
        gpus: float | None = Field(
            None, ge=0,
            description="GPUs of each worker, such as 0.25; default: an even share of all GPUs with a CUDA --device",
        )  # fmt: skip

    in_process = False

    def __init__(self, job: Job) -> None:
        options = job.options if isinstance(job.options, self.Options) else self.Options()
        from fedplug_ray.cluster import Cluster

        self._members: dict[int, Member] = {}
        self._saved: Path | None = None
        self._cluster = Cluster(options.address, (job.workers or 1) * options.cpus)
        try:
            self._place(job, options)
            self._start(list(self._members))
        except BaseException:
            self.close()
            raise

    def exchange(self, messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        """Keeps every worker busy with one message at a time, and yields replies as they arrive."""
        from fedplug_ray.members import answering

        self._revive()
        stored = _stored(messages)
        waiting: dict[int, list[str]] = {}
        for address in messages:
            waiting.setdefault(self._home[address], []).append(address)
        running: dict[Any, Member] = {}
        asked: dict[int, str] = {}

        def send_next(member: Member) -> None:
            if waiting[member.number]:
                address = asked[member.number] = waiting[member.number].pop(0)
                running[member.ask("deliver", address, stored.get(messages[address], messages[address]))] = member

        for number in waiting:
            send_next(self._members[number])
        while running:
            for answer in answering(running):
                member = running.pop(answer)
                address = asked[member.number]
                try:
                    yield address, member.take()
                except PartyLost as error:
                    yield address, error
                    lost, waiting[member.number] = waiting[member.number], []
                    yield from ((waited, error) for waited in lost)
                send_next(member)

    def save(self, folder: Path) -> None:
        """Every actor writes its parties' state. This process never sees it.

        An actor that has ended is first restored from the previous checkpoint, and then writes that state.
        """
        self._everywhere("save", folder)

    def saved(self, folder: Path) -> None:
        """Remembers the folder of a complete checkpoint, from which dead actors are restored."""
        self._saved = folder.absolute()

    def load(self, folder: Path) -> None:
        """Every actor reads its parties' state."""
        self._saved = folder.absolute()
        self._everywhere("load", folder)

    def overhead(self) -> dict[str, int]:
        """Nothing: Ray does not report it."""
        return {}

    def close(self) -> None:
        """Ends every actor, and Ray if this run started it."""
        for member in self._members.values():
            member.end()
        self._members.clear()
        self._cluster.close()

    def _place(self, job: Job, options: Options) -> None:
        """Decides the number of workers and assigns each its clients and resources."""
        from fedplug_ray.cluster import room
        from fedplug_ray.members import KEY_SERVER_MEMBER, Member

        workers, gpus = room(job, options.cpus, options.gpus)
        # Relative folders mean something else in other processes. A worker with a share of a GPU computes on it.
        self._job = dataclasses.replace(
            job,
            world=None,
            store=job.store and job.store.absolute(),
            data_root=job.data_root and os.path.abspath(job.data_root),
            device="cuda" if gpus else job.device,
        )
        resources = {"num_cpus": options.cpus, "num_gpus": gpus}
        homes: dict[int, list[int] | None] = dict(enumerate(shares(int(job.recipe["data"]["clients"]), workers)))
        self._home = {client_address(c): number for number, ids in homes.items() for c in ids or ()}
        if job.key_server:
            homes[KEY_SERVER_MEMBER] = None
            self._home[KEY_SERVER] = KEY_SERVER_MEMBER
        for number, ids in homes.items():
            # The key server works while the clients wait.
            given = {"num_cpus": 0.0} if ids is None else resources
            self._members[number] = Member(number, ids, given, job.timeout)

    def _start(self, numbers: list[int]) -> None:
        if lost := self._begun(numbers):
            raise SetupError(f"{lost[0]}; is fedplug-ray installed on every machine, and is there enough memory?")

    def _begun(self, numbers: list[int]) -> list[PartyLost]:
        """Starts these actors, which build their parties; returns those that have ended."""
        with _marked(self._job.run_dir) as (mark, text):
            path = [os.path.abspath(folder) for folder in sys.path]
            for number in numbers:
                member = self._members[number]
                member.begin(Start(pickle.dumps(self._job), member.client_ids, path, mark, text))
            return self._losses(numbers)

    def _losses(self, numbers: list[int]) -> list[PartyLost]:
        """Waits until all of these actors have run their command or have ended; returns those that have ended.

        Raises:
            SetupError: an actor failed, or there is no room for it.
        """
        from fedplug_ray.members import answering

        running = {self._members[number].answer: self._members[number] for number in numbers}
        lost: list[PartyLost] = []
        failures: list[str] = []
        while running:
            for answer in answering(running):
                member = running.pop(answer)
                try:
                    if failure := member.take():
                        failures.append(f"{member.name} could not {member.method}: {failure}")
                except PartyLost as error:
                    lost.append(error)
                except SetupError as error:
                    failures.append(str(error))
        if failures:
            raise SetupError(failures[0])
        return lost

    def _everywhere(self, command: str, folder: Path) -> None:
        """Makes every actor run a command. If one ends in the meantime, another replaces it, and all repeat it."""
        lost: list[PartyLost] = []
        for _ in range(2):
            self._revive()
            if not (lost := self._told(list(self._members), command, folder)):
                return
        raise SetupError(f"{lost[-1]}, twice during the command {command}")

    def _told(self, numbers: list[int], command: str, folder: Path) -> list[PartyLost]:
        for number in numbers:
            self._members[number].ask(command, str(folder.absolute()))
        return self._losses(numbers)

    def _revive(self) -> None:
        """Replaces actors that have ended, from the last checkpoint. It tries this a few times.

        Raises:
            SetupError: an actor dies every time, or cannot load its state.
        """
        from fedplug_ray.members import find_dead

        find_dead([member for member in self._members.values() if member.alive])
        lost: list[PartyLost] = []
        for _ in range(_REVIVALS):
            dead = [number for number, member in self._members.items() if not member.alive]
            if not dead:
                return
            lost += self._begun(dead)
            if self._saved is not None:
                lost += self._told([n for n in dead if self._members[n].alive], "load", self._saved)
        if any(not member.alive for member in self._members.values()):
            raise SetupError(f"{lost[-1]}, {_REVIVALS} times while it was being restored; is there enough memory?")


def _stored(messages: Mapping[str, bytes]) -> dict[bytes, Any]:
    """The messages to put into Ray's object store, once for all recipients."""
    import ray

    shared = (data for data, count in Counter(messages.values()).items() if count > 1 and len(data) >= _STORED)
    return {data: ray.put(data) for data in shared}


@contextlib.contextmanager
def _marked(run_dir: Path | None) -> Iterator[tuple[Path | None, str]]:
    """Writes a file into the run folder while the context is open. By it, a machine checks that it sees this folder."""
    text = secrets.token_hex(16)
    if run_dir is None:
        yield None, text
        return
    mark = run_dir / f".seen-{text}"
    write_text(mark, text)
    try:
        yield mark, text
    finally:
        mark.unlink(missing_ok=True)

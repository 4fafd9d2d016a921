"""The engine `ray`: Ray places actors on the machines of a cluster. They hold the clients, and one the key server.

Ray's object store holds messages to several actors, once per machine. An actor that ends, perhaps with its machine, is
replaced wherever there is room.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import secrets
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedplug
from fedplug import Field
from fedplug.api.errors import PartyLost
from fedplug.engines.base import Job
from fedplug_runs.files import write_text
from fedplug_std.pool import Pool

from fedplug_ray.actor import Start

if TYPE_CHECKING:
    from fedplug_ray.members import Member

_STORED = 100_000
"""Size in bytes from which Ray puts a message into the object store and not into the question."""


class RayEngine(Pool["Member"]):
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

    remedy = "is fedplug-ray installed on every machine, and is there enough memory?"

    def __init__(self, job: Job) -> None:
        options = job.options if isinstance(job.options, self.Options) else self.Options()
        from fedplug_ray.cluster import Cluster, room

        self._cluster = Cluster(options.address, (job.workers or 1) * options.cpus)
        try:
            workers, gpus = room(job, options.cpus, options.gpus)
            self._resources = {"num_cpus": options.cpus, "num_gpus": gpus}
            # Relative folders mean something else in other processes. A worker with a share of a GPU computes on it.
            here = dataclasses.replace(
                job,
                world=None,
                store=job.store and job.store.absolute(),
                data_root=job.data_root and os.path.abspath(job.data_root),
                device="cuda" if gpus else job.device,
            )
            super().__init__(here, workers)
        except BaseException:
            self._cluster.close()
            raise

    def exchange(self, messages: Mapping[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        """As `Pool.exchange`; a message to several parties is stored once for all of them."""
        stored = _stored(messages)
        yield from super().exchange({address: stored.get(data, data) for address, data in messages.items()})

    def close(self) -> None:
        """Ends every actor, and Ray if this run started it."""
        for member in self._members.values():
            member.end()
        self._members.clear()
        self._cluster.close()

    def _begun(self, numbers: Iterable[int]) -> list[PartyLost]:
        with _marked(self._job.run_dir) as self._mark:
            return super()._begun(numbers)

    def _start(self, number: int) -> Member:
        from fedplug_ray.members import Member

        clients = self._clients[number]
        given = {"num_cpus": 0.0} if clients is None else self._resources  # the key server works while the clients wait
        path = [os.path.abspath(folder) for folder in sys.path]
        member = self._members.get(number) or Member(number, given, self._job.timeout)
        member.begin(Start(pickle.dumps(self._job), clients, path, *self._mark))
        return member

    def _answering(self, asked: Sequence[Member]) -> list[Member]:
        from fedplug_ray.members import answering

        return answering(asked)

    def _revive(self) -> None:
        from fedplug_ray.members import find_dead

        find_dead([member for member in self._members.values() if member.alive])
        super()._revive()


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

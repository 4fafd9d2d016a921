"""The Ray that a run uses: one that somebody else has started, or one of its own, which ends with the run."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError
from fedplug.engines.base import Job

STORE = 256 * 2**20
"""Bytes of the object store of a Ray that is started for a run. It holds messages under way; what does not fit goes
through files."""

_ANSWER = 10.0
"""Seconds in which the Ray at an address answers."""


class Cluster:
    """This process' connection to Ray.

    Where the process is connected already, as in a notebook, that connection is used and left as it is.

    Args:
        address: of a running Ray; None: what the variable RAY_ADDRESS says, else one is started.
        cpus: how many CPUs one that is started offers at least.

    Raises:
        SetupError: no Ray answers there, or none can be started.
    """

    def __init__(self, address: str | None, cpus: float) -> None:
        self._folder: str | None = None
        self._quiet = contextlib.ExitStack()
        self.connected = False
        address = address or os.environ.get("RAY_ADDRESS") or None
        if address and address.startswith("ray://"):
            raise SetupError(
                f"address={address!r} is that of a Ray client, from whose side no folder is shared; run fedplug on a "
                "machine of the cluster, with --address auto"
            )
        _prepare(alone=address is None)
        import ray

        if ray.is_initialized():
            return
        try:
            with _signals_kept(wait=not address):
                self._connect(address, cpus)
        except BaseException:
            self.close()
            raise
        self._quiet.enter_context(_nothing_printed())

    def close(self) -> None:
        """Ends what was begun here: the connection, and a Ray that was started for it."""
        import ray

        try:
            if self.connected or self._folder:
                self.connected = False
                with _signals_kept(wait=True):
                    ray.shutdown()
        finally:
            self._quiet.close()
            if self._folder:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _connect(self, address: str | None, cpus: float) -> None:
        try:
            if address:
                _init(address=_reachable(address))
            else:
                # A folder of its own: logs, and messages that did not fit, are nobody else's and do not stay. Ray puts
                # sockets there, whose paths may have about a hundred characters.
                short = "/tmp" if Path("/tmp").is_dir() else None
                self._folder = tempfile.mkdtemp(prefix="fedplug-ray-", dir=short)
                _init(
                    address="local", num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)), include_dashboard=False,
                    object_store_memory=STORE, _temp_dir=self._folder, _system_config={"worker_niceness": 0},
                )  # fmt: skip
        except Exception as error:  # of many kinds: no answer, another version, no token, no room
            cause = " ".join(str(error).split())
            raise SetupError(
                f"no Ray can be used at {address}: {cause}; on the first machine of a cluster ray start --head "
                "starts one, and without --address the run has one of its own"
                if address
                else f"Ray cannot be started: {cause}"
            ) from error
        self.connected = True


def room(job: Job, cpus: float, gpus: float | None) -> tuple[int, float]:
    """How many workers there are, and how much of a GPU each has.

    Args:
        job: says how many workers are wanted, if it does, and on which device they are to compute.
        cpus: of each worker.
        gpus: of each worker; None: as many as there are, shared evenly, where the device is one.

    Raises:
        SetupError: the cluster has less than that. What others only use now is waited for.
    """
    import ray

    total = ray.cluster_resources()
    clients, device = int(job.recipe["data"]["clients"]), job.device.startswith("cuda")
    if device and gpus is None and not total.get("GPU"):
        raise SetupError(f"--device {job.device}: this Ray has no GPU; take --device cpu, or a cluster that has some")
    limits = [total.get("CPU", 0) / cpus] if cpus else [os.cpu_count() or 1]
    limits += [total.get("GPU", 0) / gpus] if gpus else []
    workers = min(clients, job.workers or max(1, math.floor(min(limits) + 1e-9)))
    if gpus is None:
        gpus = min(1.0, math.floor(1e4 * total.get("GPU", 0) / workers) / 1e4) if device else 0.0
    for name, each in (("CPU", cpus), ("GPU", gpus)):
        if workers * each > total.get(name, 0) + 1e-6:
            raise SetupError(
                f"{workers} workers with {each:g} {name}s each need {workers * each:g}, and this Ray has "
                f"{total.get(name, 0):g}; take fewer --workers, or a smaller --{name.lower()}s"
            )
    return workers, gpus


def _prepare(alone: bool) -> None:
    """Tells Ray what it reads from the environment, as far as the user has not.

    Args:
        alone: whether a Ray is about to be started, for this run alone.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if alone and "ray" not in sys.modules and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        # Whoever has the token of a Ray can run code in it, and the one that Ray makes lies in a file that all users of
        # the machine can read. Once Ray is imported it would miss another one.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _reachable(address: str) -> str:
    """The host and port behind an address, at which somebody answers; Ray itself would try for ever.

    Raises:
        OSError: nobody does.
    """
    from ray._private.services import canonicalize_bootstrap_address_or_die

    found: str = canonicalize_bootstrap_address_or_die(address)
    host, _, port = found.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER).close()
    return found


def _init(**keywords: Any) -> None:
    import ray

    ray.init(**keywords, log_to_driver=False, logging_level=logging.ERROR)


@contextlib.contextmanager
def _nothing_printed() -> Iterator[None]:
    """Inside, Ray does not print its log of a process or a machine that died into what a run shows.

    The engine says in a line what became of it, and Ray has no option against the rest.
    """
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        worker.print_to_stdstream = before


@contextlib.contextmanager
def _signals_kept(wait: bool) -> Iterator[None]:
    """Inside, Ray may take SIGTERM for itself; afterwards it means again what it meant before.

    Args:
        wait: have Ctrl-C and SIGTERM wait until then: half of a Ray would leave processes behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in before if wait else ():
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])

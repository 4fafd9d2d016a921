"""The Ray that a run uses: one that is already running, or a new one that ends with the run."""

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
"""Bytes of the object store of a Ray that a run starts. It holds messages under way. Those that do not fit go through
files."""

_ANSWER = 10.0
"""Seconds in which the Ray at an address must answer."""


class Cluster:
    """This process' connection to Ray.

    If the process is already connected, for example in a notebook, it uses this connection and leaves it open.

    Args:
        address: of a running Ray; None: the variable RAY_ADDRESS. Without either, the run starts its own Ray.
        cpus: the minimum number of CPUs of a Ray that the run starts.

    Raises:
        SetupError: no Ray answers at the address, or none can be started.
    """

    def __init__(self, address: str | None, cpus: float) -> None:
        self._folder: str | None = None
        self._quiet = contextlib.ExitStack()
        self.connected = False
        address = address or os.environ.get("RAY_ADDRESS") or None
        if address and address.startswith("ray://"):
            raise SetupError(
                f"address={address!r} is for a Ray client, which shares no folder with the cluster; run fedplug on a "
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
        """Ends the connection, and the Ray if this object started it."""
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
                # A separate folder, so that logs and messages that did not fit are private and are deleted. Ray puts
                # sockets into it, and their paths may have about a hundred characters.
                short = "/tmp" if Path("/tmp").is_dir() else None
                self._folder = tempfile.mkdtemp(prefix="fedplug-ray-", dir=short)
                _init(
                    address="local", num_cpus=max(os.cpu_count() or 1, math.ceil(cpus)), include_dashboard=False,
                    object_store_memory=STORE, _temp_dir=self._folder, _system_config={"worker_niceness": 0},
                )  # fmt: skip
        except Exception as error:  # many kinds: no answer, another version, no token, no room
            cause = " ".join(str(error).split())
            raise SetupError(
                f"cannot use a Ray at {address}: {cause}; to start one, run ray start --head on the first machine of a "
                "cluster, or leave out --address: the run then starts its own"
                if address
                else f"cannot start Ray: {cause}"
            ) from error
        self.connected = True


def room(job: Job, cpus: float, gpus: float | None) -> tuple[int, float]:
    """The number of workers, and the GPUs or share of a GPU of each.

    Args:
        job: gives the device, and the number of workers if the user set it.
        cpus: of each worker.
        gpus: of each worker; None: on a CUDA device, an even share of all GPUs.

    Raises:
        SetupError: the cluster has less than that in total. Resources that are only busy now are waited for.
    """
    import ray

    total = ray.cluster_resources()
    clients, device = int(job.recipe["data"]["clients"]), job.device.startswith("cuda")
    if device and gpus is None and not total.get("GPU"):
        raise SetupError(f"--device {job.device}: this Ray has no GPU; use --device cpu, or a cluster with GPUs")
    limits = [total.get("CPU", 0) / cpus] if cpus else [os.cpu_count() or 1]
    limits += [total.get("GPU", 0) / gpus] if gpus else []
    workers = min(clients, job.workers or max(1, math.floor(min(limits) + 1e-9)))
    if gpus is None:
        gpus = min(1.0, math.floor(1e4 * total.get("GPU", 0) / workers) / 1e4) if device else 0.0
    for name, each in (("CPU", cpus), ("GPU", gpus)):
        if workers * each > total.get(name, 0) + 1e-6:
            raise SetupError(
                f"{workers} workers with {each:g} {name}s each need {workers * each:g}, but this Ray has "
                f"{total.get(name, 0):g}; use fewer --workers, or a smaller --{name.lower()}s"
            )
    return workers, gpus


def _prepare(alone: bool) -> None:
    """Sets Ray's variables in the environment, unless the user has set them.

    Args:
        alone: whether the run is about to start its own Ray.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if alone and "ray" not in sys.modules and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        # Anyone with the token of a Ray can run code in it. Ray's own token is in a file that all users of the machine
        # can read. So we set another one, before Ray is imported: later it would not notice.
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _reachable(address: str) -> str:
    """The host and port of an address, after checking that they answer. Ray itself would try for ever.

    Raises:
        OSError: they do not answer.
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
    """Keeps Ray from printing logs of dead processes and machines into the output of a run.

    The engine reports such an event in one line. Ray has no option to switch its own output off.
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
    """Restores the handlers of Ctrl-C and SIGTERM at the end, because Ray replaces them.

    Args:
        wait: delay Ctrl-C and SIGTERM until then. A half started Ray would leave processes behind.
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

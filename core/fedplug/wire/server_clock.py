"""Seconds of the server's own work, by phase."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from fedplug.wire.key_server_line import KeyServerLine
from fedplug.wire.post_office import PostOffice


class ServerClock:
    """Seconds of the server's own work; waiting for clients and the key server does not count, their work does."""

    def __init__(self, office: PostOffice, key_server: KeyServerLine) -> None:
        self._office, self._key_server = office, key_server
        self._started, self._opened = time.perf_counter(), key_server.seconds
        self._process = time.process_time()
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Adds the time inside to a phase."""
        started, waited = time.perf_counter(), self._office.waited
        yield
        own = time.perf_counter() - started - (self._office.waited - waited)
        self._seconds[phase] = self._seconds.get(phase, 0.0) + own

    def own(self) -> float:
        """Seconds of the server's own work so far."""
        return sum(self._seconds.values())

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far; from the beginning on, `wall` by the clock, `cpu` of this process."""
        opened = self._key_server.seconds - self._opened
        since = {"wall": time.perf_counter() - self._started, "cpu": time.process_time() - self._process}
        return {**self._seconds, **({"open": opened} if opened else {}), **since}

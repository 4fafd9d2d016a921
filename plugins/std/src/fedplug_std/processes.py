"""Clients in persistent worker processes, and the key server in a separate one.

They communicate through multiprocessing pipes. Each worker gets its next message after its reply to the previous one,
so a pipe never fills from both ends.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence

from fedplug.engines.base import Job

from fedplug_std.pool import Pool
from fedplug_std.workers import CLOSE_SECONDS, Worker, answering


class ProcessEngine(Pool[Worker]):
    """Clients spread over worker processes; the key server in a separate process."""

    remedy = "is there enough memory? try --workers 1 or --engine local"

    def __init__(self, job: Job) -> None:
        super().__init__(dataclasses.replace(job, world=None), job.workers or os.cpu_count() or 1)

    def _start(self, number: int) -> Worker:
        if number in self._members:
            self._members[number].pipe.close()
        return Worker(self._job, number, self._clients[number])

    def _answering(self, asked: Sequence[Worker]) -> list[Worker]:
        return answering(asked)

    def close(self) -> None:
        """Asks every worker to end, and ends those that do not within two seconds."""
        for worker in self._members.values():
            worker.pipe.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self._members.values():
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._members.clear()

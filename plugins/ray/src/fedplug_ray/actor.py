"""The code that runs in a Ray process: a host with some clients or with the key server.

Ray starts the process on any machine that has room. Everything that the host needs arrives in one message. Nothing here
imports Ray.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import platform
import sys
from pathlib import Path

from fedplug.api.errors import FedplugError, SetupError, describe
from fedplug.engines.base import Job, host_of
from fedplug_std.pool import draw_apart


@dataclasses.dataclass(frozen=True)
class Start:
    """The first message to an actor.

    Attributes:
        job: a pickled `Job`, because its classes may be in modules that are only on `path`.
        client_ids: the clients that the actor holds; None: the key server.
        path: the module search path of the process that runs the protocol.
        mark: a file that was just written next to the checkpoints.
        text: the contents of that file.
    """

    job: bytes
    client_ids: list[int] | None
    path: list[str]
    mark: Path | None
    text: str


class Actor:
    """Some clients, or the key server, in a separate process."""

    def start(self, told: Start) -> str:
        """Builds the parties; returns the error message, or an empty text."""
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        sys.path.extend(folder for folder in told.path if folder not in sys.path)
        draw_apart()
        try:
            if told.mark is not None:
                require_shared(told.mark, told.text)
            job: Job = pickle.loads(told.job)
            self._host = host_of(job, told.client_ids)
        except Exception as error:
            return describe(error)
        return ""

    def deliver(self, address: str, data: bytes) -> bytes:
        """Runs a message at one of the parties; returns the reply."""
        reply = self._host.deliver(address, data)
        return reply if isinstance(reply, bytes) else reply.to_bytes()

    def save(self, folder: str) -> str:
        """Writes the state of its parties into a folder; returns the error message, or an empty text."""
        return self._done("save", folder)

    def load(self, folder: str) -> str:
        """Reads the state of its parties from a folder; returns the error message, or an empty text."""
        return self._done("load", folder)

    def process(self) -> int:
        """Its process id. The engine uses this call to check that the process is alive."""
        return os.getpid()

    def _done(self, command: str, folder: str) -> str:
        try:
            getattr(self._host, command)(Path(folder))
        except (FedplugError, OSError) as error:
            return describe(error)
        return ""


def require_shared(mark: Path, text: str) -> None:
    """Refuses a machine that does not see the run folder, because its parties write checkpoints there.

    Raises:
        SetupError: the mark is missing or another one, or the folder cannot be written.
    """
    try:
        found = mark.read_text(encoding="utf-8") == text and os.access(mark.parent, os.W_OK)
    except OSError:
        found = False
    if not found:
        raise SetupError(
            f"the machine {platform.node()} does not see the run folder {mark.parent}, or cannot write to it; "
            "checkpoints need a folder that all machines of the cluster share: name one with --output"
        )

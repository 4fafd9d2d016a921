"""What runs in a process of Ray's: a host with some clients, or with the key server.

Ray starts the process, on whichever machine has room; everything that the host needs to build itself arrives in one
message. Nothing here imports Ray.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import platform
import sys
from pathlib import Path

from fedplug.api.errors import FedplugError, SetupError, describe
from fedplug.engines.base import Job, draw_apart, host_of


@dataclasses.dataclass(frozen=True)
class Start:
    """What an actor is told first.

    Attributes:
        job: a `Job`, pickled: what it holds may lie in modules that are found only along `path`.
        client_ids: those that it is to hold; None: the key server.
        path: where the process that runs the protocol looks for modules.
        mark: a file that was just written beside the checkpoints.
        text: in that file.
    """

    job: bytes
    client_ids: list[int] | None
    path: list[str]
    mark: Path | None
    text: str


class Actor:
    """Some clients, or the key server, in a process of their own."""

    def start(self, told: Start) -> str:
        """Builds the parties; gives what failed, or nothing."""
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
        """Runs a message at one of the parties; gives the reply."""
        reply = self._host.deliver(address, data)
        return reply if isinstance(reply, bytes) else reply.to_bytes()

    def save(self, folder: str) -> str:
        """Writes the state of its parties into a folder; gives what failed, or nothing."""
        return self._done("save", folder)

    def load(self, folder: str) -> str:
        """Reads the state of its parties from a folder; gives what failed, or nothing."""
        return self._done("load", folder)

    def process(self) -> int:
        """Its process id. Whoever asks wants to know whether it is there."""
        return os.getpid()

    def _done(self, command: str, folder: str) -> str:
        try:
            getattr(self._host, command)(Path(folder))
        except (FedplugError, OSError) as error:
            return describe(error)
        return ""


def require_shared(mark: Path, text: str) -> None:
    """Refuses a machine that does not see the run folder, where its parties keep what they must not lose.

    Raises:
        SetupError: the mark is not there, or not this one; or nothing can be written beside it.
    """
    try:
        found = mark.read_text(encoding="utf-8") == text and os.access(mark.parent, os.W_OK)
    except OSError:
        found = False
    if not found:
        raise SetupError(
            f"the machine {platform.node()} does not see the run folder {mark.parent}, or cannot write there; "
            "checkpoints need a folder that is the same on every machine of the cluster: name one with --output"
        )

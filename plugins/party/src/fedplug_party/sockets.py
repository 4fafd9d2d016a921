"""The engine `parties`: one program per party on this machine, reached by the socket in the party's folder."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import fedplug
from fedplug import Field
from fedplug.api.errors import PartyLost, SetupError
from fedplug.engines.base import Job

from fedplug_party.engine import PartyEngine
from fedplug_party.line import ask


def folder_name(address: str) -> str:
    """An address as the name of a file or a folder: `client-3`, `key-server`."""
    return address.replace(":", "-").replace("_", "-")


class SocketTransport:
    """Reaches parties on this machine, each by the socket in its folder.

    Args:
        folder: contains one folder for each party: `client-3`, `key-server`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        """Asks all parties at once, each on a separate thread. Replies that arrive after the end are not read."""
        answers: queue.SimpleQueue[tuple[str, bytes | PartyLost]] = queue.SimpleQueue()
        over = threading.Event()

        def carry(address: str, request: bytes) -> None:
            try:
                state = self._folder / folder_name(address)
                answers.put((address, ask(state, request, seconds, "parties", lambda: not over.is_set())))
            except PartyLost as lost:
                answers.put((address, lost))

        for address, request in requests.items():
            threading.Thread(target=carry, args=(address, request), daemon=True).start()
        try:
            for _ in requests:
                yield answers.get()
        finally:
            over.set()

    def close(self) -> None:
        """There is nothing to close."""


class SocketEngine(PartyEngine):
    """Parties that run as separate programs on this machine, started with `fedplug party`."""

    class Options(fedplug.Options):
        """Where the parties are."""

        parties: Path | None = Field(
            None, description="contains the state folder of every party: client-0, client-1, ..., key-server"
        )

    def __init__(self, job: Job) -> None:
        options = job.options
        if not isinstance(options, SocketEngine.Options) or options.parties is None:
            raise SetupError(
                "the engine parties needs to know where the parties are: --parties DIR, where DIR contains the --state "
                "folder of each: DIR/client-0, DIR/client-1, ..., DIR/key-server"
            )
        super().__init__(job, SocketTransport(options.parties))

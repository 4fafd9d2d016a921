"""The interface of a carrier of requests to parties, and the carrier for parties on this machine."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from fedplug.api.errors import PartyLost

from fedplug_party.line import ask


class Transport(Protocol):
    """Carries requests to parties and returns their replies. It reads neither.

    Addresses are those of `fedplug.wire`: `client:3`, `key_server`.
    """

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        """Delivers each request and yields replies as they arrive, in any order.

        A party that is not there, or that has not answered after `seconds` (`inf`: no limit), yields `PartyLost` with
        the reason. A reply may arrive twice or answer an earlier request: the engine drops such replies. Once every
        party has answered, the engine reads no further.
        """

    def close(self) -> None:
        """Ends the transport. Requests under way may be dropped."""


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
                answers.put((address, ask(state, request, seconds, lambda: not over.is_set())))
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

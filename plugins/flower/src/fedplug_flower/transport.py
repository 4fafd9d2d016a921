"""Carries requests to parties through Flower's grid and returns their replies.

It polls the grid, because `send_and_receive` would sleep three seconds between two polls. Every message has a time to
live. So a SuperNode that comes back after the deadline does not send its party a request that nobody waits for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping

import httpx
from fedplug.api.errors import MessageError, PartyLost, SetupError
from flwr.app import Message
from flwr.serverapp import Grid

from fedplug_flower import letters
from fedplug_flower.nodes import Nodes

LONGEST = 30 * 24 * 3600.0
"""Seconds that a message lives if there is no deadline. Flower's default is 12 hours."""
_LOOK, _MOST = 0.1, 1.0
"""Seconds between two polls of the grid: at first, and when a reply takes long."""
_GRACE = 30.0
"""Seconds that a message lives longer than its party's deadline, for the way there and back."""


class FlowerTransport:
    """Reaches parties through the nodes of a federation.

    Args:
        grid: of the ServerApp.
        nodes: finds the node of a party.

    Attributes:
        framing: bytes of Flower's messages so far, without the requests and replies in them.
    """

    def __init__(self, grid: Grid, nodes: Nodes) -> None:
        self._grid, self._nodes, self.framing = grid, nodes, 0

    def exchange(self, requests: Mapping[str, bytes], seconds: float) -> Iterator[tuple[str, bytes | PartyLost]]:
        """Sends all requests at once and yields each reply once, as it arrives. It never asks for late replies."""
        waiting: dict[str, str] = {}
        messages = {}
        with _superlink():
            there = self._nodes.of(requests)
        for address, data in requests.items():
            node = there[address]
            if isinstance(node, PartyLost):
                yield address, node
            else:
                messages[address] = self._message(data, node, seconds)
        with _superlink():
            pushed = list(self._grid.push_messages(list(messages.values()))) if messages else []
        for address, sent in zip(messages, pushed, strict=True):
            if sent:
                waiting[sent] = address
            else:
                yield address, PartyLost(f"{address}: the SuperLink did not take the message; see its log")
        messages.clear()
        until, pause = time.monotonic() + min(seconds, LONGEST) + _GRACE, _LOOK
        while waiting:
            with _superlink():
                arrived = list(self._grid.pull_messages(list(waiting)))
            for message in arrived:
                address = waiting.pop(message.metadata.reply_to_message_id, "")
                if address:  # otherwise the reply came twice
                    yield address, self._read(address, message)
            if not waiting:
                return
            if time.monotonic() >= until:
                given = f"{seconds:g} seconds"
                yield from ((a, PartyLost(f"{a}: its node did not answer within {given}")) for a in waiting.values())
                return
            pause = _LOOK if arrived else min(_MOST, pause * 1.3)
            time.sleep(pause)

    def close(self) -> None:
        """Flower closes the grid when the ServerApp ends."""

    def _message(self, data: bytes, node: int, seconds: float) -> Message:
        message = Message(letters.request(data, seconds), node, letters.KIND, ttl=min(seconds, LONGEST) + _GRACE)
        self.framing += letters.size(message) - len(data)
        return message

    def _read(self, address: str, message: Message) -> bytes | PartyLost:
        try:
            data = letters.data_of(message)
        except MessageError as error:
            return PartyLost(f"{address}: {error}")
        self.framing += letters.size(message) - len(data)
        return data


@contextlib.contextmanager
def _superlink() -> Iterator[None]:
    """Turns errors of the SuperLink into ours. Flower itself has already retried where that could help.

    Raises:
        SetupError: the SuperLink refuses, or is gone.
    """
    try:
        yield
    except httpx.HTTPError as error:
        raise SetupError(f"the SuperLink failed ({error}); see its log") from error

"""Messages as they crossed the wire: counted always, kept where a run is recorded, and in a file between the two."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedplug.api import codec
from fedplug.api.blocks import Block
from fedplug.api.errors import MessageError
from fedplug.api.events import Watcher
from fedplug.api.parties import KEY_SERVER, SERVER
from fedplug.api.records import shown

from fedplug_runs.files import read_bytes
from fedplug_runs.rows import Sent, Traffic


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """A call in a message to a client or to the key server, as any reader of the bytes can read it.

    Attributes:
        body: its bytes: the same for every receiver.
        sequence: its number among the calls that stay in force; 0 for one of a single round.
        round: 0-based; -1 for the set-up.
        component, method: by the component's name in the recipe; `fedplug` for the protocol's own.
        payload: its arguments.
    """

    body: bytes
    sequence: int
    round: int
    component: str
    method: str
    payload: list[Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Answered:
    """What the last call of a message gave.

    Attributes:
        value: as the component gave it; None where it gave nothing.
    """

    value: Any

    @property
    def blocks(self) -> Mapping[str, Block] | None:
        """Of an upload, its blocks by zone; None of another answer."""
        blocks = self.value.get("blocks") if isinstance(self.value, dict) else None
        return blocks if isinstance(blocks, dict) else None

    @property
    def num_examples(self) -> int | None:
        """How many examples a client has, where it answers that."""
        size = self.value.get("num_examples") if isinstance(self.value, dict) else None
        return size if isinstance(size, int) else None


@dataclasses.dataclass(frozen=True, eq=False)
class Message:
    """One message: who, to whom, when, and exactly which bytes.

    Attributes:
        sender, receiver: addresses: `server`, `key_server`, `client:3`.
        round: 0-based; -1 for the set-up, T for the end of the run.
        phase: `setup`, `negotiate`, `upload`, `open` or `finish`.
        data: the bytes on the wire; empty if the run does not record them.
        size: their number.
        zones: how many of them belong to each zone's blocks.
    """

    sender: str
    receiver: str
    round: int
    phase: str
    data: bytes
    size: int
    zones: Mapping[str, int]

    def decode(self) -> Any:
        """The content as it travels, nested calls decoded too; `asked` and `answered` read it as records.

        Raises:
            MessageError: the run was not recorded, or the bytes are damaged.
        """
        body = codec.decode(codec.unframe(self.data))
        if isinstance(body, dict) and "calls" in body:
            body["calls"] = [codec.decode(call) for call in body["calls"]]
        return body

    def asked(self) -> list[Asked]:
        """The calls that it asks for; none of a reply. Raises as `decode`."""
        calls = codec.decode(codec.unframe(self.data)).get("calls", ())
        return [Asked(call, *codec.decode(call)) for call in calls]

    def answered(self) -> Answered | None:
        """What it answers; None of a question, and of a reply that says what failed. Raises as `decode`."""
        body = codec.decode(codec.unframe(self.data))
        return Answered(body["value"]) if "value" in body else None


@dataclasses.dataclass(eq=False)
class Wire(Watcher):
    """The record of what crossed the wire. Counts always; keeps the bytes only if asked to.

    Attributes:
        keep: whether the bytes are kept, for attacks and for tests.
        sink: is handed each message that is kept; None: they are collected in `messages`.
        messages: those collected, in order.
        counts: round -> (direction, phase, zone) -> bytes. Direction is `up`, `down` or
            `key_server`; the zone `other` holds what belongs to no block, so that the zones of a phase add up to its
            bytes.
        requests: round -> messages from the server to clients.
        listeners: each is called with sender, receiver, round and bytes of every message.
    """

    keep: bool = False
    sink: Callable[[Message], None] | None = None
    messages: list[Message] = dataclasses.field(default_factory=list)
    counts: dict[int, Counter[tuple[str, str, str]]] = dataclasses.field(default_factory=dict)
    requests: Counter[int] = dataclasses.field(default_factory=Counter)
    listeners: list[Callable[[str, str, int, int], None]] = dataclasses.field(default_factory=list)

    def record(
        self, sender: str, receiver: str, round: int, phase: str, data: codec.Message, zones: Mapping[str, int]
    ) -> None:
        """Counts one message, and keeps it if the run is recorded."""
        if KEY_SERVER in (sender, receiver):
            direction = "key_server"
        else:
            direction = "down" if sender == SERVER else "up"
        if direction == "down":
            self.requests[round] += 1
        super().record(sender, receiver, round, phase, data, zones)
        counts = self.counts.setdefault(round, Counter())
        for zone, size in zones.items():
            counts[direction, phase, zone] += size
        counts[direction, phase, "other"] += len(data) - sum(zones.values())
        if self.keep:
            kept = data if isinstance(data, bytes) else data.to_bytes()
            message = Message(sender, receiver, round, phase, kept, len(kept), dict(zones))
            (self.messages.append if self.sink is None else self.sink)(message)

    def take(self) -> list[Message]:
        """The messages kept since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def of_round(self, round: int) -> Traffic:
        """Bytes of one round."""
        traffic = Traffic(Sent(), Sent(), Sent())
        for (direction, phase, zone), size in self.counts.get(round, {}).items():
            if size:
                getattr(traffic, direction).count(size, zone, phase)
        return traffic


def framed(message: Message) -> bytes:
    """A recorded message as it lies in a file, where each has a separate frame."""
    row = [message.sender, message.receiver, message.round, message.phase, message.data, dict(message.zones)]
    return codec.frame(codec.encode(row))


_FILE = re.compile(r"round-([0-9]{4}|[1-9][0-9]{4,8})\.wire")
_ADDRESS = re.compile(rf"{SERVER}|{KEY_SERVER}|client:[0-9]{{1,9}}")


def file_of(rounds: int) -> str:
    """The name of the file of messages after this many rounds: `round-0007.wire`."""
    return f"round-{rounds:04d}.wire"


def recordings(folder: Path) -> dict[int, Path]:
    """The files of messages in a folder, by the rounds after which they end, ascending; none where there is none."""
    found = {int(named[1]): path for path in folder.glob("*.wire") if (named := _FILE.fullmatch(path.name))}
    return dict(sorted(found.items()))


def read_wire(path: Path) -> list[Message]:
    """Reads the recorded messages of a file, one `framed` after the other.

    Raises:
        MessageError: the file is damaged.
    """
    messages, data = list[Message](), memoryview(read_bytes(path))
    while data:
        size = codec.framed_size(data)
        row = codec.decode(codec.unframe(bytes(data[:size])))
        if not isinstance(row, list) or [*map(type, row)] != [str, str, int, str, bytes, dict]:
            raise MessageError(f"message {len(messages) + 1} of {path} is no record of a message; it is damaged")
        sender, receiver, round, phase, body, zones = row
        if not (_ADDRESS.fullmatch(sender) and _ADDRESS.fullmatch(receiver) and -1 <= round < 2**31):
            wrong = f"from {shown(sender)} to {shown(receiver)} in round {shown(round)}"
            raise MessageError(f"message {len(messages) + 1} of {path} is {wrong}; it is damaged")
        messages.append(Message(sender, receiver, round, phase, body, len(body), zones))
        data = data[size:]
    return messages

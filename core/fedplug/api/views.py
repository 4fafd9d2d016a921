"""Messages as they crossed the wire, what one adversary knows of a target, and what an attack made of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedplug.api import codec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fedplug.api.observation import ObservedUpdate
    from fedplug.api.told import Told
    from fedplug.api.types import Examples

SERVER, KEY_SERVER = "server", "key_server"


def client_address(client_id: int) -> str:
    """The address of a client: `client:3`."""
    return f"client:{client_id}"


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
        """The content, as any party that receives the bytes can read it; nested calls are decoded too.

        Raises:
            MessageError: the run was not recorded, or the bytes are damaged.
        """
        body = codec.decode(codec.unframe(self.data))
        if isinstance(body, dict) and "calls" in body:
            body["calls"] = [codec.decode(call) for call in body["calls"]]
        return body


@dataclasses.dataclass(eq=False)
class Wire:
    """The record of what crossed the wire. Counts always; keeps the bytes only if asked to.

    Attributes:
        keep: whether `messages` keeps the bytes, for attacks and for tests.
        messages: those recorded, in order, if `keep`.
        counts: round -> (direction, phase, zone) -> bytes. Direction is `up`, `down` or
            `key_server`; the zone `other` holds what belongs to no block, so that the zones of a phase add up to its
            bytes.
        requests: round -> messages from the server to clients.
        traffic: round -> (party, `up` or `down`) -> bytes from or to that party, of the last two rounds, until somebody
            takes them.
    """

    keep: bool = False
    messages: list[Message] = dataclasses.field(default_factory=list)
    counts: dict[int, Counter[tuple[str, str, str]]] = dataclasses.field(default_factory=dict)
    requests: Counter[int] = dataclasses.field(default_factory=Counter)
    traffic: dict[int, Counter[tuple[str, str]]] = dataclasses.field(default_factory=dict)

    def record(
        self, sender: str, receiver: str, round: int, phase: str, data: bytes | codec.Packed, zones: Mapping[str, int]
    ) -> None:
        """Counts one message, and keeps it if the run is recorded."""
        if KEY_SERVER in (sender, receiver):
            direction = "key_server"
        else:
            direction = "down" if sender == SERVER else "up"
        if direction == "down":
            self.requests[round] += 1
        party = (receiver, "down") if sender == SERVER else (sender, "up")
        if round not in self.traffic:  # of older rounds nobody asks any more
            self.traffic = {when: counted for when, counted in self.traffic.items() if when >= round - 1}
        self.traffic.setdefault(round, Counter())[party] += len(data)
        counts = self.counts.setdefault(round, Counter())
        for zone, size in zones.items():
            counts[direction, phase, zone] += size
        counts[direction, phase, "other"] += len(data) - sum(zones.values())
        if self.keep:
            kept = data if isinstance(data, bytes) else data.to_bytes()
            self.messages.append(Message(sender, receiver, round, phase, kept, len(kept), dict(zones)))

    def take(self) -> list[Message]:
        """The messages kept since the last call."""
        messages, self.messages = self.messages, []
        return messages

    def take_traffic(self, round: int) -> Counter[tuple[str, str]]:
        """Bytes of one round from (`up`) and to (`down`) each party but the server; they are forgotten after this."""
        return self.traffic.pop(round, Counter())

    def of_round(self, round: int) -> dict[str, dict[str, Any]]:
        """Bytes of one round: direction -> {total, phases: {...}, zones: {...}}."""
        table: dict[str, dict[str, Any]] = {
            direction: {"total": 0, "phases": {}, "zones": {}} for direction in ("up", "down", "key_server")
        }
        for (direction, phase, zone), size in self.counts.get(round, {}).items():
            if size:
                row = table[direction]
                row["total"] += size
                row["phases"][phase] = row["phases"].get(phase, 0) + size
                row["zones"][zone] = row["zones"].get(zone, 0) + size
        return table


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Everything one adversary knows about one target: built from recorded messages and the keys it holds.

    Nothing in it leads to a party or to anybody's data, but for the candidates of a membership challenge, which are
    the question of that game, not its answer.

    Attributes:
        adversary: `server`, `eavesdropper`, `client`, `server+client`, `key_server`, `released`, ...
        messages: those it could read, in order.
        target: the client that is attacked; None where everybody is.
        round: 0-based, in which the update was made.
        update: what it saw of the target's update; None if nothing.
        vector: float32 (P,), the global model the update was made from, as far as it knows it; else None.
        personal: float32 (P,), the target's own model, where the adversary has it; else None.
        model: the model of the recipe (a `TorchModel` of the adversary's own), holding `vector`; None if unknown.
        num_classes: outputs of the model.
        shape: (C, H, W) of one example.
        mean, std: per channel; inputs in [0, 1] are standardised with them.
        segmentation: True where the model labels pixels.
        candidates: of a membership challenge: examples, of which some were the target's; None without one.
        heard: what clients told besides their updates, all of them, as far as it was read: see `told` and `told_by`.
        seed: for the attack's own randomness; another one for each target.
    """

    adversary: str
    messages: tuple[Message, ...] = ()
    target: int | None = None
    round: int = 0
    update: ObservedUpdate | None = None
    vector: NDArray[np.float32] | None = None
    personal: NDArray[np.float32] | None = None
    model: Any = None
    num_classes: int = 0
    shape: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    segmentation: bool = False
    candidates: Examples | None = None
    heard: tuple[Told, ...] = ()
    seed: int = 0

    @property
    def told(self) -> tuple[Told, ...]:
        """What the target told in negotiations, and what its uploads show besides values; oldest first."""
        return () if self.target is None else self.told_by(self.target)

    def told_by(self, client_id: int) -> tuple[Told, ...]:
        """The same of any client, the adversary's own among them."""
        return tuple(told for told in self.heard if told.client_id == client_id)

    def uploads(self, round: int | None = None) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """Yields (round, client_id, {zone: Block}) for each protected update this adversary saw."""
        for message in self.messages:
            if message.phase == "upload" and message.receiver == SERVER and round in (None, message.round):
                value = message.decode().get("value")
                if isinstance(value, dict) and "blocks" in value:
                    yield message.round, int(message.sender.partition(":")[2]), value["blocks"]


FINISHED, SUCCESS, FAILED, DIVERGED, NOT_APPLICABLE = "finished", "success", "failed", "diverged", "not_applicable"


@dataclasses.dataclass(frozen=True, eq=False)
class AttackReport:
    """What an attack found. Whether that is a success only the scorer can say, which knows the truth.

    Attributes:
        status: `finished`, `diverged` or `not_applicable` from an attack; the scorer makes `success` or `failed` of
            `finished`.
        metrics: numbers of the attack's own, such as its final loss.
        reason: one sentence, where the status is not `finished`.
        images: float32 (n, C, H, W) in [0, 1]: the examples it believes the update was made from, in any order.
        labels: int64 (n,), the label of each.
        counts: (K,), how many examples of each class there were, before any renormalisation.
        presence: float64 (K,), for each class a score that is higher the more it looks as if there were any; None:
            that of the counts.
        members: float64 (m,), for each candidate a score that is higher the more it looks like a member.
        seed: of its randomness.
        gradient_evaluations: how many gradients of the model it computed.
        losses: its objective over time, thinned out.
    """

    status: str
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reason: str = ""
    images: NDArray[np.float32] | None = None
    labels: NDArray[np.int64] | None = None
    counts: NDArray[Any] | None = None
    presence: NDArray[np.float64] | None = None
    members: NDArray[np.float64] | None = None
    seed: int | None = None
    gradient_evaluations: int = 0
    losses: tuple[float, ...] = ()


def write_wire(path: Path, messages: list[Message]) -> None:
    """Writes recorded messages to a file."""
    path.parent.mkdir(exist_ok=True)
    rows = [[m.sender, m.receiver, m.round, m.phase, m.data, dict(m.zones)] for m in messages]
    path.write_bytes(codec.frame(codec.encode(rows)))


def read_wire(path: Path) -> list[Message]:
    """Reads what `write_wire` wrote.

    Raises:
        MessageError: the file is damaged.
    """
    rows = codec.decode(codec.unframe(path.read_bytes()))
    return [
        Message(sender, receiver, round, phase, data, len(data), zones)
        for sender, receiver, round, phase, data, zones in rows
    ]

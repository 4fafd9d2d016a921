"""Messages of clients other than updates: ballots, sensitivity vectors, masks, sizes of zones, group members.

A negotiation asks every client for something that follows from its data. The values are not an update, and often only a
bitmap, but they still reveal facts about the data. This module takes them from recorded messages and reads them without
knowing the negotiation: a packed bitmap as one bit a scalar, a list of positions as a mask, a vector as one number a
scalar.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.blocks import Block, Layout
from fedplug.api.parties import SERVER, client_address
from fedplug_runs.wire_record import Answered, Message

if TYPE_CHECKING:
    from numpy.typing import NDArray

UPLOAD, MEMBERS = "upload", "members"
"""`Told.method` of facts from an upload, and of the members of a client's group."""


@dataclasses.dataclass(frozen=True, eq=False)
class Told:
    """One fact that a client sent, or that became known about it, other than the values of its update.

    Attributes:
        component: the component that asked, by its name in the recipe; `fedplug` for an upload.
        method: the component's method that replied; `upload`; or `members`.
        round: 0-based; -1 for the set-up.
        client_id: the client.
        value: a reply, as sent or as opened with a secret of the adversary; for an upload the positions of a zone, or
            the number of its values if it has none; for `members` the ids of the client's group.
        zone: the zone of an upload; else empty.
        asked: further content of the question.
        placed: False if positions in it are under a key that the adversary does not hold. Reading it as if they were
            not gives noise.
    """

    component: str
    method: str
    round: int
    client_id: int
    value: Any
    zone: str = ""
    asked: tuple[Any, ...] = ()
    placed: bool = True

    def scalars(self, layout: Layout) -> NDArray[np.float64] | None:
        """Its value for each scalar of the model, float64 (P,); None if it cannot be read as such.

        A packed bitmap and a list of positions give 1 where a scalar is named and 0 elsewhere; one number a scalar
        is taken as it is; one a layer goes to all scalars of the layer. What is not finite is 0.

        Args:
            layout: of the model.
        """
        if isinstance(self.value, bool | int | float | str | bytes | Mapping | Block) or self.method == MEMBERS:
            return None
        try:
            found = np.asarray(self.value)
        except ValueError:
            return None
        if found.ndim != 1 or found.dtype.kind not in "buif":
            return None
        size, layers = layout.size, len(layout.layers)
        if found.dtype == np.uint8 and len(found) == (size + 7) // 8 and not self.zone:
            return np.unpackbits(found, count=size).astype(np.float64)
        whole = found.dtype.kind in "ui"
        if len(found) == size and not (whole and self.zone):
            return _finite(found)
        if whole and len(found) <= size and (not len(found) or (found.min() >= 0 and found.max() < size)):
            named = np.zeros(size)
            named[found] = 1.0
            return named
        if len(found) == layers and not whole:
            return _finite(layout.per_scalar(found))
        return None


def _finite(values: NDArray[Any]) -> NDArray[np.float64]:
    finite: NDArray[np.float64] = np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    return finite


def tellings(messages: Iterable[Message], known: MutableMapping[Message, list[Told]]) -> Iterator[Told]:
    """The clients' replies, oldest first. A reply answers the last call of the message before it.

    Errors, and replies of clients that say that they are behind, tell nothing.

    Args:
        messages: the messages that were read.
        known: a cache of the content of each reply, because the same messages are read for many targets.
    """
    asked: dict[str, Message] = {}
    for message in messages:
        if message.sender == SERVER:
            asked[message.receiver] = message
        elif message.receiver == SERVER and message.sender in asked:
            if message not in known:
                known[message] = _told_by(asked[message.sender], message)
            yield from known[message]


def _told_by(question: Message, reply: Message) -> list[Told]:
    answered = reply.answered()
    kind, _, number = reply.sender.partition(":")
    if kind != "client" or answered is None:
        return []
    asked, client_id = question.asked()[-1], int(number)
    told = functools.partial(Told, asked.component, round=asked.round, client_id=client_id)
    if answered.blocks is None:
        return [told(asked.method, value=answered.value, asked=tuple(asked.payload))]
    # Sizes of zones show through encryption, too.
    return [
        told(UPLOAD, value=block.size if block.positions is None else block.positions, zone=zone)
        for zone, block in answered.blocks.items()
    ]


def uploads_in(
    messages: Iterable[Message], round: int | None = None
) -> Iterator[tuple[int, int, Mapping[str, Block]]]:
    """The round, the client and the blocks by zone of each upload, of one round or of all."""
    for message in messages:
        if message.phase == UPLOAD and message.receiver == SERVER and round in (None, message.round):
            answered = message.answered()
            if answered is not None and answered.blocks is not None:
                yield message.round, _client(message), answered.blocks


def sizes_in(messages: Iterable[Message]) -> dict[int, int]:
    """How many examples each client has, of those that said so before round 1."""
    sizes = {}
    for message in messages:
        if message.round == -1 and message.receiver == SERVER:
            answered = message.answered()
            if answered is not None and answered.num_examples is not None:
                sizes[_client(message)] = answered.num_examples
    return sizes


def _client(message: Message) -> int:
    """The id of the client that sent a message."""
    return int(message.sender.partition(":")[2])


def groups_seen(messages: Iterable[Message], clients: Iterable[int]) -> list[list[int]]:
    """The groups of clients that messages show: calls that stay in force are the same for all clients of a group.

    Args:
        messages: the messages that were read.
        clients: the clients to group; one that received nothing of that kind is in no group.
    """
    groups: list[tuple[set[int], set[int]]] = []  # sequence numbers, clients
    heard: dict[str, set[int]] = {}
    for message in messages:
        if message.sender == SERVER and message.round >= 0:
            lasting = {call.sequence for call in message.asked() if call.sequence and call.round >= 0}
            heard.setdefault(message.receiver, set()).update(lasting)
    for client_id in clients:
        numbers, members = set(heard.get(client_address(client_id), ())), {client_id}
        if numbers:
            for group in [group for group in groups if group[0] & numbers]:
                groups.remove(group)
                numbers, members = numbers | group[0], members | group[1]
            groups.append((numbers, members))
    return sorted(sorted(members) for _, members in groups)


def memberships(component: str, round: int, groups: Iterable[Sequence[int]]) -> list[Told]:
    """For each client of each group, who is in it; nothing where there is only one group."""
    known = [tuple(sorted(int(client_id) for client_id in ids)) for ids in groups]
    if len(known) < 2:
        return []
    return [Told(component, MEMBERS, round, client_id, ids) for ids in known for client_id in ids]


def examples_of(told: Iterable[Told]) -> int | None:
    """How many examples the client has, if it said so before round 1."""
    for each in told:
        if each.round == -1 and (size := Answered(each.value).num_examples) is not None:
            return size
    return None

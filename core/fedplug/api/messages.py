"""What recorded messages hold, as whoever reads the bytes can read it: calls that were asked, and what was answered."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from fedplug.api import codec
from fedplug.api.types import Block

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """A call in a message to a client or to the key server; see `fedplug.wire.calls.Call`.

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
        return num_examples_in(self.value)


def num_examples_in(value: Any) -> int | None:
    """How many examples a client has, where an answer says that."""
    size = value.get("num_examples") if isinstance(value, dict) else None
    return size if isinstance(size, int) else None


def asked_in(data: bytes) -> list[Asked]:
    """The calls in a message to a party; none in a reply.

    Raises:
        MessageError: the bytes are damaged.
    """
    body = codec.decode(codec.unframe(data))
    return [Asked(call, *codec.decode(call)) for call in body.get("calls", ())]


def answered_in(data: bytes) -> Answered | None:
    """What a reply holds; None of one that says that something failed, or that its sender is behind.

    Raises:
        MessageError: the bytes are damaged.
    """
    body = codec.decode(codec.unframe(data))
    return Answered(body["value"]) if "value" in body else None

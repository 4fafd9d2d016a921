"""Requests of the engine to a party and the party's replies, as bytes that a transport carries without reading them.

A request names the server process that asks (`session`), its sequence number (`number`), and the party's program that
the server believes it is asking (`incarnation`). A reply repeats session and number. So both ends recognise duplicates,
late messages and messages out of order, and the server recognises a party that was restarted and has lost its state.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Self, get_args

from fedplug.api import codec
from fedplug.api.errors import MessageError
from fedplug.api.records import shown

Command = Literal["join", "begin", "load", "deliver", "save", "leave"]
Outcome = Literal["done", "refused", "restarted"]


@dataclasses.dataclass(frozen=True)
class _Frame:
    """Fields of plain types. Reading a frame checks them."""

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
            MessageError: these bytes are not such a frame. The error names the wrong field.
        """
        plain = codec.decode(codec.unframe(data))
        fields = {each.name: each for each in dataclasses.fields(cls)}
        if not isinstance(plain, dict) or plain.keys() != fields.keys():
            raise MessageError(f"{shown(plain)} does not have the fields of a {cls.__name__.lower()}")
        for name, value in plain.items():
            if not _fits(str(fields[name].type), value):
                raise MessageError(f"a {cls.__name__.lower()} whose {name} is {shown(value)}")
        return cls(**plain)

    def to_bytes(self) -> bytes:
        """The frame as it travels."""
        return codec.frame(codec.encode({each.name: getattr(self, each.name) for each in dataclasses.fields(self)}))


@dataclasses.dataclass(frozen=True)
class Request(_Frame):
    """A request of the engine to a party.

    Attributes:
        address: of the party.
        digest: of the server's recipe.
        run: the run whose state the party must hold, drawn when the run began.
        session: of the server's process, drawn when it started.
        number: grows with every request of the session.
        incarnation: of the party's program, as it replied to `join`; empty in `join`.
        command: `join` introduces the server process. `begin` starts the run from the beginning. `load` goes back to a
            checkpoint. `deliver` carries a message of the protocol. `save` makes a checkpoint. `leave` ends the
            session.
        checkpoint: its name, in `load` and `save`; otherwise empty.
        needed: the party's checkpoint to which a resumed server would send it back; empty if there is none.
        message: of the protocol, in `deliver`; otherwise empty.
    """

    address: str
    digest: str
    run: str
    session: str
    number: int
    incarnation: str
    command: Command
    checkpoint: str = ""
    needed: str = ""
    message: bytes = b""


@dataclasses.dataclass(frozen=True)
class Reply(_Frame):
    """The reply of a party.

    Attributes:
        session, number: of the request; "" and -1 if it could not be read.
        incarnation: of the party's program.
        outcome: `done`, `refused`, or `restarted`: the program does not know this session and did nothing. The server
            must send `join`, then `begin` or `load`.
        reason: for people.
        kept: the names of the checkpoints at the party, ascending.
        message: the answer to a message of the protocol; otherwise empty.
    """

    session: str
    number: int
    incarnation: str
    outcome: Outcome = "done"
    reason: str = ""
    kept: list[str] = dataclasses.field(default_factory=list)
    message: bytes = b""


def checkpoint_name(round: int, stamp: str) -> str:
    """The name of the state after this many rounds: `7-3f0c...`. The stamp differs when a round is run again."""
    return f"{round}-{stamp}"


def round_of(checkpoint: str) -> int:
    """The number of rounds after which a checkpoint of this name was made.

    Raises:
        MessageError: this is not the name of a checkpoint.
    """
    number, _, stamp = checkpoint.partition("-")
    if not (number.isascii() and number.isdigit() and stamp.isalnum()):
        raise MessageError(f"{shown(checkpoint)} is not the name of a checkpoint, such as 7-3f0c")
    return int(number)


def _fits(kind: str, value: Any) -> bool:
    if kind in ("Command", "Outcome"):
        return isinstance(value, str) and value in get_args(Command if kind == "Command" else Outcome)
    if kind == "list[str]":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is {"str": str, "int": int, "bytes": bytes}[kind]

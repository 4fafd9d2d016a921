"""Requests of the engine to a party, and the party's replies, as bytes that a transport carries unread.

A request says which server process asks (`session`), for the how-manieth time (`number`), and which program it believes
to be asking (`incarnation`). A reply repeats session and number. So a duplicate, a late one and one out of order are
recognised at both ends, and a party that was started again is known to have forgotten what it was told.
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
    """Fields of plain types, which are checked when a frame is read."""

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
            MessageError: these bytes are no such frame; says which field is wrong.
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
        """As it travels."""
        return codec.frame(codec.encode({each.name: getattr(self, each.name) for each in dataclasses.fields(self)}))


@dataclasses.dataclass(frozen=True)
class Request(_Frame):
    """What the engine wants of a party.

    Attributes:
        address: of the party that is meant.
        digest: of the server's recipe.
        run: whose state the party is to hold, drawn when the run began.
        session: of the server's process, drawn when it started.
        number: grows with every request of the session.
        incarnation: of the party's program, as it said when it was joined; empty when it is being joined.
        command: `join` says who asks; `begin` starts the run anew; `load` goes back to a checkpoint; `deliver` hands on
            a message of the protocol; `save` makes a checkpoint; `leave`: this session asks no more.
        checkpoint: of `load` and `save`, its name; else empty.
        needed: the party's own checkpoint to which a resumed server would send it back; empty where there is none.
        message: of `deliver`; else empty.
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
    """What a party answers.

    Attributes:
        session, number: of the request; of none where it could not be read.
        incarnation: of the party's program.
        outcome: `done`; `refused`, for the reason; `restarted`: the program knows nothing of this session, and has
            done nothing: it must be joined, and begin or load.
        reason: for people.
        kept: the names of the checkpoints at the party, ascending.
        message: the answer to a message of the protocol; else empty.
    """

    session: str
    number: int
    incarnation: str
    outcome: Outcome = "done"
    reason: str = ""
    kept: list[str] = dataclasses.field(default_factory=list)
    message: bytes = b""


def checkpoint_name(round: int, stamp: str) -> str:
    """Of the state after so many rounds: `7-3f0c...`. The stamp tells it from that of a round that was run again."""
    return f"{round}-{stamp}"


def round_of(checkpoint: str) -> int:
    """After how many rounds a checkpoint of this name was made.

    Raises:
        MessageError: it does not name one.
    """
    number, _, stamp = checkpoint.partition("-")
    if not (number.isascii() and number.isdigit() and stamp.isalnum()):
        raise MessageError(f"{shown(checkpoint)} does not name a checkpoint as 7-3f0c does")
    return int(number)


def _fits(kind: str, value: Any) -> bool:
    if kind in ("Command", "Outcome"):
        return isinstance(value, str) and value in get_args(Command if kind == "Command" else Outcome)
    if kind == "list[str]":
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    return type(value) is {"str": str, "int": int, "bytes": bytes}[kind]

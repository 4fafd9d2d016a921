"""Requests of the engine to a party and the party's replies, as bytes that a transport carries without reading them.

A request names the server process that asks (`session`), its sequence number (`number`), and the party's program that
the server believes it is asking (`incarnation`). A reply repeats session and number. So both ends recognise duplicates,
late messages and messages out of order, and the server recognises a party that was restarted and has lost its state.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal, Self

from fedplug.api import codec
from fedplug.api.errors import MessageError
from fedplug.api.records import Record, Text, shown
from pydantic import Strict

Whole = Annotated[int, Strict()]
Bytes = Annotated[bytes, Strict()]
Command = Literal["join", "begin", "load", "deliver", "save", "leave"]
Outcome = Literal["done", "refused", "restarted"]


class _Frame(Record, frozen=True):
    """A record as it travels. Reading it checks its fields."""

    whole = True

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Inverse of `to_bytes`.

        Raises:
            MessageError: these bytes are not such a frame. The error names the wrong field.
        """
        try:
            return cls.from_plain(codec.decode(codec.unframe(data)))
        except ValueError as error:
            raise MessageError(f"a malformed {cls.__name__.lower()}: {error}") from error

    def to_bytes(self) -> bytes:
        """The frame as it travels."""
        return codec.frame(codec.encode(self.to_plain()))


class Request(_Frame, frozen=True):
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

    address: Text
    digest: Text
    run: Text
    session: Text
    number: Whole
    incarnation: Text
    command: Command
    checkpoint: Text = ""
    needed: Text = ""
    message: Bytes = b""


class Reply(_Frame, frozen=True):
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

    session: Text
    number: Whole
    incarnation: Text
    outcome: Outcome = "done"
    reason: Text = ""
    kept: list[Text] = dataclasses.field(default_factory=list)
    message: Bytes = b""


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

"""What the protocol itself remembers of a party, in every checkpoint; components have corners of their own beside it.

Each record is checked when it is loaded: a state file that was written by something else, or is damaged in a way that
its checksum does not tell, is refused before a round is run with it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, PlainValidator

from fedplug.api.record import Count, Record, Text
from fedplug.api.typed import MOST, shown
from fedplug.api.types import RETAINED, Block


def _array(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        raise ValueError("it must be an array")
    return value


def _vector(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.ndim != 1:
        raise ValueError("it must be a vector of float32")
    return value


def _retained(value: Any) -> Any:
    block = isinstance(value, Block) and value.zone == RETAINED
    if value is not None and not (block and value.values is not None and value.positions is not None):
        raise ValueError("it must be None, or a block of the retained zone, with values and positions")
    return value


# The validators above say all there is to say of arrays and blocks; `Any` keeps pydantic from looking into their types.
_Round = Annotated[int, Field(strict=True, ge=-1, lt=MOST)]
_Weight = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
_Size = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
_Key = Annotated[bytes, Field(strict=True, min_length=32, max_length=32)]
_Releases = list[list[Annotated[float, Field(strict=True, ge=0)]]]


class PartyMemory(Record, eq=False):
    """Nothing: for parties of which the protocol remembers nothing."""

    def to_plain(self, for_json: bool = False) -> dict[str, Any]:
        """Plain data that `fedplug.api.codec` can save, every field of it."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Inverse of `to_plain`. Raises as `Record.from_plain`, also where a field is missing that has a default."""
        if not isinstance(plain, dict) or plain.keys() != {each.name for each in dataclasses.fields(cls)}:
            raise ValueError(f"{shown(plain)} does not have the fields of a {cls.__name__}")
        return super().from_plain(plain)


class CalledMemory(PartyMemory, eq=False):
    """What is remembered of a party that answers calls.

    Attributes:
        done: the last lasting call it has run; 0 before any.
        saved: the last one it had run when it was last saved: the server need not keep that and what was before.
        round: the latest round that any call belonged to, from 0; -1 is the set-up.
        opened: how many sums it had opened when it was last saved.
    """

    done: Count = 0
    saved: Count = 0
    round: _Round = -1
    opened: Count = 0


class ClientMemory(CalledMemory, eq=False):
    """What is remembered of a client.

    Attributes:
        trained, protected, evaluated: the last round in which it did so, from 0; -1: in none.
        weight: the aggregator's weight of this client, in (0, 1]; 1 before the server says otherwise.
        buffers: the batch-norm statistics of its model, by name.
        retained: the zone it kept to itself in the last round, where the recipe makes a model of its own of it.
        accounts: by level, what a component that keeps an account there stated before round 1 that each round releases;
            empty where none does.
        cohort_secret: 32 bytes that all clients share and no server knows; None where nobody needs them.
        answer_key: 32 bytes under which the key server answers to the clients alone; None where it does not.
    """

    trained: _Round = -1
    protected: _Round = -1
    evaluated: _Round = -1
    weight: _Weight = 1.0
    buffers: dict[Text, Annotated[Any, PlainValidator(_array)]] = field(default_factory=dict)
    retained: Annotated[Any, PlainValidator(_retained)] = None
    accounts: dict[Text, _Releases] = field(default_factory=dict)
    cohort_secret: _Key | None = None
    answer_key: _Key | None = None


class KeyServerMemory(CalledMemory, eq=False):
    """What is remembered of the key server.

    Attributes:
        answer_key: 32 bytes under which it answers to the clients alone; None where it answers to the server.
    """

    answer_key: _Key | None = None


class ServerMemory(PartyMemory, eq=False):
    """What is remembered of the aggregation server. No key that opens a ciphertext is among it.

    Attributes:
        weights: the aggregator's weight of each client; empty before the set-up.
        accounts: by client, what it stated as `ClientMemory.accounts`; empty where no component keeps an account.
        classes: by client, how many training examples of each class it has; of sites alone that let it be told.
        groups: group -> all its clients, ascending; empty where all clients are one group.
        zone_sizes: scalars of each zone in the last round that was charged, mean over the uploads; empty before.
        secret_cohort: whether nothing in that round showed who took part; None before.
        vectors: float32 (P,), the global model of each group as far as the server knows it; empty where it has none.
        repeated: rounds of which uploads were asked for more than once, since the run was cut off in between.
        short: how many rounds in a row, the last one among them, fell short of clients.
    """

    weights: dict[Count, _Weight] = field(default_factory=dict)
    accounts: dict[Count, dict[Text, _Releases]] = field(default_factory=dict)
    classes: dict[Count, list[Count]] = field(default_factory=dict)
    groups: dict[Text, list[Count]] = field(default_factory=dict)
    zone_sizes: dict[Text, _Size] = field(default_factory=dict)
    secret_cohort: Annotated[bool, Field(strict=True)] | None = None
    vectors: dict[Text, Annotated[Any, PlainValidator(_vector)]] = field(default_factory=dict)
    repeated: list[Count] = field(default_factory=list)
    short: Count = 0

"""What the protocol itself remembers of a party, in every checkpoint; components have corners of their own beside it.

Each record is checked when it is loaded: a state file that was written by something else, or is damaged in a way that
its checksum does not tell, is refused before a round is run with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedplug.api.typed import is_count, is_number, shown
from fedplug.api.types import RETAINED, Block


def _rule(rule: Callable[[Any], bool], what: str) -> dict[str, Any]:
    """What must hold of a field's value, and how to say so."""
    return {"rule": rule, "what": what}


def _by(key: type, rule: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether something is a dictionary with such keys and values."""
    return lambda value: isinstance(value, dict) and all(type(k) is key and rule(v) for k, v in value.items())


def _list_of(rule: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(rule, value))


def _maybe(rule: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or rule(value)


def _is_round(value: Any) -> bool:
    return value == -1 or is_count(value)


def _is_weight(value: Any) -> bool:
    return isinstance(value, float) and 0 < value <= 1


def _is_key(value: Any) -> bool:
    return isinstance(value, bytes) and len(value) == 32


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _is_vector(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float32 and value.ndim == 1


def _is_retained(value: Any) -> bool:
    if not isinstance(value, Block) or value.zone != RETAINED:
        return False
    return value.values is not None and value.positions is not None


_are_releases = _list_of(_list_of(lambda n: isinstance(n, float) and n >= 0))

_CALL = _rule(is_count, "the number of a call")
_SUMS = _rule(is_count, "a number of sums")
_ROUND = _rule(_is_round, "a round")
_WEIGHT = _rule(_is_weight, "a number in (0, 1]")
_BUFFERS = _rule(_by(str, _is_array), "arrays by name")
_BLOCK = _rule(_maybe(_is_retained), "a block of the retained zone")
_ACCOUNTS = _rule(_by(str, _are_releases), "numbers for each round, by level")
_KEY = _rule(_maybe(_is_key), "32 bytes")
_WEIGHTS = _rule(_by(int, _is_weight), "weights by client")
_ACCOUNTS_BY_CLIENT = _rule(_by(int, _by(str, _are_releases)), "numbers for each round, by client and level")
_GROUPS = _rule(_by(str, _list_of(is_count)), "clients by group")
_SIZES = _rule(_by(str, is_number), "sizes by zone")
_FLAG = _rule(_maybe(lambda value: isinstance(value, bool)), "true or false")
_VECTORS = _rule(_by(str, _is_vector), "vectors by group")


@dataclasses.dataclass(eq=False)
class PartyMemory:
    """Nothing: for parties of which the protocol remembers nothing."""

    def to_plain(self) -> dict[str, Any]:
        """Plain data that `fedplug.api.codec` can save."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Inverse of `to_plain`.

        Raises:
            ValueError: it is no record of this kind; names the field and its rule.
        """
        fields = dataclasses.fields(cls)
        if not isinstance(plain, dict) or plain.keys() != {each.name for each in fields}:
            raise ValueError(f"{shown(plain)} does not have the fields of a {cls.__name__}")
        for each in fields:
            value = plain[each.name]
            if not each.metadata["rule"](value):
                raise ValueError(f"{each.name} is {shown(value)}, not {each.metadata['what']}")
        return cls(**plain)


@dataclasses.dataclass(eq=False)
class CalledMemory(PartyMemory):
    """What is remembered of a party that answers calls.

    Attributes:
        done: the last lasting call it has run; 0 before any.
        saved: the last one it had run when it was last saved: the server need not keep that and what was before.
        round: the latest round that any call belonged to, from 0; -1 is the set-up.
        opened: how many sums it had opened when it was last saved.
    """

    done: int = field(default=0, metadata=_CALL)
    saved: int = field(default=0, metadata=_CALL)
    round: int = field(default=-1, metadata=_ROUND)
    opened: int = field(default=0, metadata=_SUMS)


@dataclasses.dataclass(eq=False)
class ClientMemory(CalledMemory):
    """What is remembered of a client.

    Attributes:
        trained, protected: the last round in which it did so, from 0; -1: in none.
        weight: the aggregator's weight of this client, in (0, 1]; 1 unless it was told otherwise.
        buffers: the batch-norm statistics of its model, by name.
        retained: the zone it kept to itself in the last round, where the recipe makes a model of its own of it.
        accounts: by level, what a component that keeps an account there said before round 1 that each round releases;
            empty where none does.
        cohort_secret: 32 bytes that all clients share and no server knows; None where nobody needs them.
        answer_key: 32 bytes under which the key server answers to the clients alone; None where it does not.
    """

    trained: int = field(default=-1, metadata=_ROUND)
    protected: int = field(default=-1, metadata=_ROUND)
    weight: float = field(default=1.0, metadata=_WEIGHT)
    buffers: dict[str, NDArray[Any]] = field(default_factory=dict, metadata=_BUFFERS)
    retained: Block | None = field(default=None, metadata=_BLOCK)
    accounts: dict[str, list[list[float]]] = field(default_factory=dict, metadata=_ACCOUNTS)
    cohort_secret: bytes | None = field(default=None, metadata=_KEY)
    answer_key: bytes | None = field(default=None, metadata=_KEY)


@dataclasses.dataclass(eq=False)
class KeyServerMemory(CalledMemory):
    """What is remembered of the key server.

    Attributes:
        answer_key: 32 bytes under which it answers to the clients alone; None where it answers to the server.
    """

    answer_key: bytes | None = field(default=None, metadata=_KEY)


@dataclasses.dataclass(eq=False)
class ServerMemory(PartyMemory):
    """What is remembered of the aggregation server. No key that opens a ciphertext is among it.

    Attributes:
        weights: the aggregator's weight of each client; empty before the set-up.
        accounts: by client, what it stated as `ClientMemory.accounts`; empty where no component keeps an account.
        groups: group -> all its clients, ascending; empty where all clients are one group.
        zone_sizes: scalars of each zone in the last round that was charged, mean over the uploads; empty before.
        secret_cohort: whether nothing in that round showed who took part; None before.
        vectors: float32 (P,), the global model of each group as far as the server knows it; empty where it has none.
    """

    weights: dict[int, float] = field(default_factory=dict, metadata=_WEIGHTS)
    accounts: dict[int, dict[str, list[list[float]]]] = field(default_factory=dict, metadata=_ACCOUNTS_BY_CLIENT)
    groups: dict[str, list[int]] = field(default_factory=dict, metadata=_GROUPS)
    zone_sizes: dict[str, float] = field(default_factory=dict, metadata=_SIZES)
    secret_cohort: bool | None = field(default=None, metadata=_FLAG)
    vectors: dict[str, NDArray[np.float32]] = field(default_factory=dict, metadata=_VECTORS)

"""What a client looks for in its own messages while a run is recorded: the plain values of the zones that it protects.

Nobody else could look: the server has no plain values, and neither has the record. So each client does it itself,
before a message leaves, and says how many values it looked for and how many it found.

A value is found in three forms, at any byte, in either order of bytes: as float32 next to its neighbour in the zone, as
float32 next to its neighbour in the model, and alone as float64, of many values every other. One float32 alone is too
short: 4 bytes agree by chance. In a long message so does one float64, which counts there behind its tag in msgpack, or
next to another one. The values are those of the update, and those between the links of a zone before they
are hidden, such as clipped ones. Zeros and numbers of few significant bits, such as 0.5, are left out for the same
reason, and so are pairs of equal values. The frame of a message holds no values, and is not looked at: the zeros of its
length, and a byte of its checksum, may be the float64 of one. What is scaled, rounded or encoded otherwise before it is
sent is not found.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fedplug.api.codec import FRAME_SIZE
from fedplug.api.records import Count, Record
from fedplug.api.reports import MOST_NAMES, Name
from pydantic import Field

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROUND = np.uint32(0xFFF)
"""Bits at the end of a float32, all zero in numbers of few significant bits."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MOST_BITS = 24
_PIECE = 1 << 17
"""Bytes of a message that are looked through at once."""
MOST = 1 << 18
"""Values that a client looks for in a round; of more, every second, third, ... A leak of many is found all the same."""


_LONG = 1 << 16
"""Bytes of a message in which a float64 without a tag does not count alone: noised float32 values that happen to be
exactly 0, with what is next to them, were one of 2^21 plain values in one of fifteen rounds."""
_TAGS = b"\xcb", b"\xc4\x08"
"""In msgpack, before a number, and before the bytes of an array of one."""
_MANY = 1 << 14
"""Values above which only half is looked for alone: those whose float64 does not begin like the float32 of 0 or 2.
Noised values may be exactly 0. With the next one that was the float64 of one of 2^18 values in two of three runs.
"""


class Compared(Record):
    """What clients found in their own messages of the plain values of zones that they protect, while a run is recorded.

    Attributes:
        messages: how many were looked through.
        values: by zone, how many values were looked for, over clients and rounds.
        found: by zone, at how many places of messages there was one.
    """

    messages: Count = 0
    values: Annotated[dict[Name, Count], Field(max_length=MOST_NAMES)] = dataclasses.field(default_factory=dict)
    found: Annotated[dict[Name, Count], Field(max_length=MOST_NAMES)] = dataclasses.field(default_factory=dict)

    def __add__(self, other: Compared) -> Compared:
        """Both together."""
        return Compared(
            self.messages + other.messages, added(self.values, other.values), added(self.found, other.found)
        )


def added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The counts of both, by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


class Sought:
    """Plain values, ready to be looked for in bytes.

    Args:
        update: of a client, float32 (P,).
        zones: by zone, the positions whose values are looked for, ascending.

    Attributes:
        values: by zone, how many are looked for.
    """

    def __init__(self, update: NDArray[np.float32], zones: Mapping[str, NDArray[np.integer]]) -> None:
        bits = update.view(np.uint32)
        telling = np.isfinite(update) & ((bits & _ROUND) != 0)
        telling_of = {zone: np.flatnonzero(telling[where]) for zone, where in zones.items()}
        step = -(-sum(map(len, telling_of.values())) // MOST) or 1
        chosen = {zone: found[::step] for zone, found in telling_of.items()}
        self.values = {zone: len(found) for zone, found in chosen.items()}
        self._pairs = {zone: _pairs(update, telling, where, chosen[zone]) for zone, where in zones.items()}
        self._alone = {zone: _alone(update[where[chosen[zone]]]) for zone, where in zones.items()}
        everything = np.concatenate([np.empty(0, np.uint64), *self._pairs.values(), *self._alone.values()])
        self._bits = min(_MOST_BITS, max(10, int(16 * everything.size).bit_length()))
        # Most of a message is told apart from all that is sought by a few bits of each word.
        self._maybe = np.zeros(1 << self._bits, np.bool_)
        self._maybe[self._place(everything)] = True

    def found_in(self, data: bytes) -> Counter[str]:
        """By zone, at how many places of a message there is a value; zones without any are left out."""
        found: Counter[str] = Counter()
        for start in range(0, len(data) - 7, _PIECE):
            # At every byte, as one array: most messages are short, where a call of numpy costs more than what it does.
            words = np.ndarray(min(_PIECE, len(data) - 7 - start), "<u8", data, start, (1,))
            places = np.flatnonzero(self._maybe[self._place(words)])
            words = words[places]
            for zone in self.values:
                found[zone] += int(np.count_nonzero(_among(words, self._pairs[zone])))
                alone = start + places[_among(words, self._alone[zone])]
                found[zone] += len(alone) if len(data) < _LONG else _sure(alone, data)
        return +found

    def _place(self, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
        return (words * _FACTOR) >> np.uint64(64 - self._bits)


def _among(words: NDArray[np.uint64], sought: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which of some words are sought; these are in order."""
    if not (words.size and sought.size):
        return np.zeros(words.size, np.bool_)
    return np.asarray(sought[np.searchsorted(sought, words).clip(max=sought.size - 1)] == words)


def _sure(places: NDArray[np.intp], data: bytes) -> int:
    """How many of these places of a long message have a float64 that is there on purpose."""
    if not places.size:
        return 0
    tagged = np.array([data[max(0, place - 2) : place].endswith(_TAGS) for place in places.tolist()])
    return int(np.count_nonzero(tagged | np.isin(places + 8, places) | np.isin(places - 8, places)))


def _pairs(
    update: NDArray[np.float32], telling: NDArray[np.bool_], where: NDArray[np.integer], chosen: NDArray[np.intp]
) -> NDArray[np.uint64]:
    """Eight bytes of two float32 each, as numbers, in order: of a zone's values those that are chosen, each with its
    neighbours.
    """
    where = where.astype(np.int64)  # positions are unsigned, and there is one before the first
    behind = chosen[chosen + 1 < where.size]
    firsts, seconds = [where[behind]], [where[behind + 1]]  # neighbours in the zone
    for first in (where[chosen], where[chosen] - 1):  # and in the model, behind it and before it
        inside = first[(first >= 0) & (first + 1 < update.size)]
        firsts.append(inside)
        seconds.append(inside + 1)
    one, other = np.concatenate(firsts), np.concatenate(seconds)
    known = telling[one] & telling[other]
    both = np.stack([update[one[known]], update[other[known]]], 1)
    return _in_both_orders(both[both[:, 0] != both[:, 1]], "f4")


def _alone(values: NDArray[np.float32]) -> NDArray[np.uint64]:
    """The same of one float64 each."""
    if values.size > _MANY:
        words = values.astype("<f8").view("<u8")
        values = values[(words >> np.uint64(29)) & np.uint64(1) == 1]
    return _in_both_orders(values, "f8")


def _in_both_orders(values: NDArray[np.float32], form: str) -> NDArray[np.uint64]:
    """As a number in the order of bytes of a message: what is sent with the last byte first, and with the first."""
    return np.sort(np.concatenate([values.astype(order + form).view("<u8").ravel() for order in "<>"]))


class Comparison:
    """What one client has found in its messages.

    A message that leaves before the values of its round are cut into zones, such as a ballot, waits until they are.
    What leaves in a later round is compared with the values before it too, where this process still has them; it counts
    as compared after a comparison with the values of its round.
    """

    def __init__(self) -> None:
        self._round, self._holds = -1, False
        self._sought: list[Sought] = []
        self._waiting: list[bytes] = []
        self._said = Compared()

    def hold(
        self, round: int, update: NDArray[np.float32], zones: Mapping[str, NDArray[np.integer]],
        between: Mapping[str, Sequence[NDArray[np.float32]]],
    ) -> None:  # fmt: skip
        """Takes the plain values of a round (0-based), and looks for them in what was sent in it already.

        Args:
            round: the round.
            update: of the client, (P,).
            zones: by zone that the client protects, the positions whose values are looked for.
            between: by zone, the values as they were between its links before they were hidden, such as clipped ones.
        """
        self._at(round)
        clipped = [Sought(values, {zone: np.arange(values.size)}) for zone, each in between.items() for values in each]
        self._sought, self._holds = [Sought(update, zones), *clipped], True
        self._said = self._said + Compared(values=self._sought[0].values)
        waiting, self._waiting = self._waiting, []
        for data in waiting:
            self._look(data)

    def look(self, round: int, data: bytes) -> dict[str, Any]:
        """Compares a message of a round, with its frame, that is about to leave; gives what there is to say since the
        last time: a `Compared` as it travels.
        """
        self._at(round)
        data = data[FRAME_SIZE:]
        if self._sought:
            self._look(data)
        if not self._holds:
            self._waiting.append(data)
        said, self._said = self._said, Compared()
        return said.to_plain() if said.messages or said.found else {}

    def _look(self, data: bytes) -> None:
        # The same values may be there as they were trained and as they were clipped: the form that tells more counts.
        found: Counter[str] = Counter()
        for sought in self._sought:
            found |= sought.found_in(data)
        self._said = self._said + Compared(messages=int(self._holds), found=dict(found))

    def _at(self, round: int) -> None:
        if round != self._round:
            self._round, self._holds, self._waiting = round, False, []

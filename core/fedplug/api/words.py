"""What a sealer closes, adds up and opens: the words of one zone, and the bytes that they become.

The core makes words of values and values of words (`Numbers`), multiplies a client's weight in, knows whose uploads a
sum holds, what it is divided by, and where its values belong. A sealer gets words and gives bytes, adds bytes up, and
gives the words of the sum.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Numbers(Protocol):
    """How one client's weighted values become words, and a sum of words a sum of values.

    It follows from options and public facts, so that all parties have the same. Words add up.
    """

    @property
    def range(self) -> float:
        """Largest magnitude of a value; larger ones saturate. Infinity: none does; NaN: unknown."""
        ...

    @property
    def step(self) -> float:
        """Distance of neighbouring values; values are rounded to it. 0: none is; NaN: unknown."""
        ...

    def encode(self, values: NDArray[np.float64], rng: np.random.Generator) -> tuple[NDArray[Any], float]:
        """The words of finite values, (n,), and the share of values that saturated.

        Args:
            values: float64, (n,).
            rng: the client's, reproducible, for rounding at random.

        Raises:
            ProtectionError: a value has no word.
        """
        ...

    def decode(self, words: NDArray[Any], counts: Any) -> NDArray[np.floating]:
        """The sums of values that sums of words represent, of the shape of `words`.

        Args:
            words: sums of words, (n,) or (m, width).
            counts: how many words are in each sum: a number, or (m, 1).

        Raises:
            ProtectionError: so many words cannot have such a sum. Without the sum: the message travels to the server.
        """
        ...


@dataclasses.dataclass(frozen=True)
class FixedPoint:
    """Whole numbers of steps, ties to the even one: words are int64.

    Attributes:
        range: largest magnitude of a value; larger ones saturate.
        step: distance of neighbouring values.
    """

    range: float
    step: float

    @property
    def largest(self) -> int:
        """The largest magnitude of a client's word."""
        return round(self.range / self.step)

    def encode(self, values: NDArray[np.float64], rng: np.random.Generator) -> tuple[NDArray[np.int64], float]:
        """See `Numbers`."""
        held = np.clip(values, -self.range, self.range)
        saturated = float(np.mean(held != values)) if held.size else 0.0
        return np.rint(held * (1 / self.step)).astype(np.int64), saturated

    def decode(self, words: NDArray[Any], counts: Any) -> NDArray[np.float64]:
        """See `Numbers`."""
        if words.size and not (np.abs(words) <= self.largest * counts).all():
            raise ProtectionError(
                "the opened sum is larger than its updates add up to: an upload or a key was wrong; it is not used"
            )
        values: NDArray[np.float64] = np.multiply(words, self.step, dtype=np.float64)
        return values


@dataclasses.dataclass(frozen=True, eq=False)
class Words:
    """What is to be closed.

    Attributes:
        zone: the zone.
        values: the words, (n,), in ascending order of position; or (m, width) of m blocks of global positions.
        index: int64 (m,), the numbers of those blocks, where each client has its own positions; else None.
    """

    zone: str
    values: NDArray[Any]
    index: NDArray[np.int64] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Sealed:
    """Closed words, as they travel.

    Attributes:
        parts: bytes; for words with an index, one for each of its blocks.
        letters: by receiver, bytes that a client needs to help open a sum with this upload.
    """

    parts: tuple[bytes, ...]
    letters: Mapping[int, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, eq=False)
class Total:
    """A closed sum, or an upload as a sum of one.

    Attributes:
        zone: the zone.
        size: how many scalars the sum covers.
        parts: as `add` gave them.
        clients: whose uploads are in it, ascending.
        counts: how many uploads; or int64 (m,), in each of its blocks of positions.
        index: int64 (m,), the numbers of these blocks; None where all clients share the zone.
        letters: at the server, by receiver, what each client has sent it.
        gathered: what `gather` has added.
    """

    zone: str
    size: int
    parts: tuple[bytes, ...]
    clients: tuple[int, ...]
    counts: int | NDArray[np.int64]
    index: NDArray[np.int64] | None = None
    letters: Mapping[int, Mapping[int, bytes]] = dataclasses.field(default_factory=dict)
    gathered: Any = None

    def replace(self, **changes: Any) -> Total:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True, eq=False)
class Opened:
    """The words of a sum.

    Attributes:
        words: (size,); or (m, width), of blocks of positions.
        counts: how many uploads each of the parts holds, as the parts themselves say; None: they do not.
    """

    words: NDArray[Any]
    counts: NDArray[np.int64] | None = None

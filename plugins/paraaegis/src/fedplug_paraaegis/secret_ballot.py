"""Deterministic encryption of parameter indices, under a key that the clients share and the server does not know.

The index i gets a pseudorandom tag, the i-th 64-bit word of an AES-256-CTR keystream under a key of this vote. The
rank of its tag among all P tags is its ciphertext: a secret permutation of 0..P-1, fresh in every vote. A set of
encrypted indices is then a bitmap of P bits. The server sees equal ciphertexts as equal positions, and learns nothing
about where in the model they are. A ballot costs P/8 bytes, where 16-byte AES blocks would cost 16 bytes per vote.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from fedplug_std.replies import packed_problem, votes
from fedplug_std.scores import highest

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclasses.dataclass(frozen=True, eq=False)
class IndexCipher:
    """A keyed permutation of the indices 0..P-1.

    Attributes:
        index_of: int64 (P,), the index whose ciphertext has each rank.
    """

    index_of: NDArray[np.int64]

    @classmethod
    def of(cls, key: bytes, size: int) -> IndexCipher:
        """Builds the permutation from one bulk AES call and one sort.

        Args:
            key: 32 bytes, used for one vote only.
            size: P.
        """
        keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()  # one key per vote: no nonce needed
        tags = np.frombuffer(keystream.update(bytes(8 * size)), np.uint64)
        # Sorting 64-bit words that carry the index in their low bits is several times faster than argsort. The 40 or
        # more tag bits above it leave practically no ties.
        bits = np.uint64(max(1, int(size - 1).bit_length()))
        words = np.sort((tags >> bits << bits) | np.arange(size, dtype=np.uint64))
        return cls((words & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64))

    @classmethod
    @functools.lru_cache(maxsize=2)  # per vote: one for the ballots, one for equal scores
    def shared(cls, key: bytes, size: int) -> tuple[IndexCipher, float]:
        """The permutation of `of`, once for all clients of a process that have this key, and the seconds it took."""
        started = time.perf_counter()
        return cls.of(key, size), time.perf_counter() - started

    def encrypt(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        """The packed bitmap of the encrypted indices, P bits."""
        chosen = np.zeros(len(self.index_of), np.bool_)
        chosen[self._place_of[indices]] = True
        return np.packbits(chosen)

    @functools.cached_property
    def _place_of(self) -> NDArray[np.int64]:
        """The inverse permutation. Few indices are nominated, so it is cheaper than a search over all places."""
        place_of = np.empty_like(self.index_of)
        place_of[self.index_of] = np.arange(len(self.index_of))
        return place_of

    def decrypt(self, ballot: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The indices of a bitmap, in no particular order."""
        return self.index_of[np.flatnonzero(np.unpackbits(ballot, count=len(self.index_of)))]


def nominated(
    scores: NDArray[Any], seats: int, key: bytes, saved: Callable[[float], None] = lambda seconds: None
) -> NDArray[np.int64]:
    """The indices of the highest scores. The key decides which of equal scores are among them.

    The ciphertexts must not decide: votes for equal scores would then crowd at one end of the ballot, and the server
    could count them. With the same key, clients choose alike.

    Args:
        scores: one per parameter, (P,).
        seats: number of indices to nominate.
        key: 32 bytes, different from the ballot key.
        saved: gets the seconds that another client of the process has spent on the permutation for this one too.

    Raises:
        ProtectionError: a score is NaN, which is neither high nor low.
    """
    chosen = highest(scores, seats)
    if seats == 0 or np.count_nonzero(scores >= scores[chosen].min()) == seats:
        return chosen  # no equal scores at the border, as nearly always
    started = time.perf_counter()
    cipher, alone = IndexCipher.shared(key, len(scores))
    saved(alone - (time.perf_counter() - started))
    shuffled = cipher.index_of
    return shuffled[highest(scores[shuffled], seats)]


def ballot_problem(ballot: Any, size: int, seats: int) -> str:
    """Why a client's ballot is not valid; empty if it is.

    Args:
        ballot: should be the packed bitmap of `size` bits, of which `seats` are set.
        size: P.
        seats: number of indices that each client nominates.
    """
    if problem := packed_problem(ballot, size, "ballot"):
        return problem
    given = int(np.count_nonzero(np.unpackbits(ballot)))
    return "" if given == seats else f"its ballot holds {given} votes, which must be {seats}"


def tally(ballots: list[NDArray[np.uint8]], size: int, seats: int) -> NDArray[np.uint8]:
    """The bitmap of the ciphertexts with most votes. Runs at the server, without the key.

    Among ciphertexts with equally many votes the lowest win. Their order is that of a secret random permutation, so
    every index is as likely to win as any other with as many votes, wherever in the model it is.

    Args:
        ballots: one packed bitmap per client, each of `size` bits.
        size: P.
        seats: number of winners, at most `size`.
    """
    won = np.zeros(size, np.bool_)
    won[highest(votes(ballots, size), seats)] = True
    return np.packbits(won)

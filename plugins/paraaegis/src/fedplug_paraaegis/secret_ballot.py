"""Deterministic encryption of parameter indices, under a key that the clients share and the server does not know.

The index i gets a pseudorandom tag, the i-th 64-bit word of an AES-256-CTR keystream under a key of this round. The
rank of its tag among all P tags is its ciphertext: a secret permutation of 0..P-1, fresh in every round. A set of
encrypted indices is then a bitmap of P bits: the server sees equal ciphertexts as equal positions, and nothing of where
in the model they lie. It costs P/8 bytes a ballot, where 16-byte AES blocks would cost 16 bytes a vote.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
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
            key: 32 bytes, used for one round only.
            size: P.
        """
        keystream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()  # one key a round: no nonce needed
        tags = np.frombuffer(keystream.update(bytes(8 * size)), np.uint64)
        # Sorting 64-bit words that carry the index in their low bits is several times faster than argsort, and the
        # 40 or more tag bits above it leave practically no ties.
        bits = np.uint64(max(1, int(size - 1).bit_length()))
        words = np.sort((tags >> bits << bits) | np.arange(size, dtype=np.uint64))
        return cls((words & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64))

    def encrypt(self, indices: NDArray[Any]) -> NDArray[np.uint8]:
        """The packed bitmap of the encrypted indices, P bits."""
        chosen = np.zeros(len(self.index_of), np.bool_)
        chosen[indices] = True
        return np.packbits(chosen[self.index_of])

    def decrypt(self, ballot: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The indices of a bitmap, in no particular order."""
        return self.index_of[np.flatnonzero(np.unpackbits(ballot, count=len(self.index_of)))]


def ballot_problem(ballot: Any, size: int, seats: int) -> str:
    """What is wrong with what a client sent as its ballot; empty if nothing.

    Args:
        ballot: should be the packed bitmap of `size` bits, of which `seats` are set.
        size: P.
        seats: how many indices each client nominates.
    """
    if not isinstance(ballot, np.ndarray) or ballot.dtype != np.uint8 or ballot.shape != ((size + 7) // 8,):
        kind = f"{ballot.dtype}{list(ballot.shape)}" if isinstance(ballot, np.ndarray) else type(ballot).__name__
        return f"its ballot is {kind}, which must be uint8[{(size + 7) // 8}]"
    bits = np.unpackbits(ballot)
    if bits[size:].any():
        return f"its ballot votes beyond the {size} indices"
    votes = int(np.count_nonzero(bits))
    return "" if votes == seats else f"its ballot holds {votes} votes, which must be {seats}"


def tally(ballots: list[NDArray[np.uint8]], size: int, seats: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
    """Counts equal ciphertexts; runs at the server, without the key.

    Args:
        ballots: one packed bitmap a client, all of `size` bits.
        size: P.
        seats: how many indices win, at most `size`.

    Returns:
        The bitmap of those that have won, the bitmap of those tied for the remaining seats, and how many seats remain.
    """
    votes = np.zeros(size, np.uint32)
    for ballot in ballots:
        votes += np.unpackbits(ballot, count=size)
    # The seats-th largest count: everything above it has won, everything equal to it is tied.
    least = np.partition(votes, size - seats)[size - seats]
    winners, tied = votes > least, votes == least
    return np.packbits(winners), np.packbits(tied), seats - int(winners.sum())

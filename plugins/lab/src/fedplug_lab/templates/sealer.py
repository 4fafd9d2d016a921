"""Sketch: a sealer."""

import hashlib
import os
from collections.abc import Sequence
from typing import Any

import fedplug
import numpy as np
from fedplug import Client, Facts, FixedPoint, Known, Opened, Operations, Reveals, Seal, Sealed, Total, Words
from numpy.typing import NDArray


class Thing(fedplug.Sealer):
    """Add masks of a key that all clients share, so that the server adds up what it cannot read."""

    cohort_secret = True

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Seal(scheme="masks", opened_by="clients", numbers=FixedPoint(range=2.0**12, step=2.0**-16)),)

    def mask(self, client: Client, nonce: bytes, size: int) -> NDArray[np.uint64]:
        return np.frombuffer(hashlib.shake_256(client.secret(self, nonce)).digest(8 * size), np.uint64)

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        nonce = os.urandom(16)
        return Sealed(((words.values.view(np.uint64) + self.mask(client, nonce, words.values.size)).tobytes(), nonce))

    def add(self, uploads: Sequence[Total], server: Any, facts: Facts) -> tuple[bytes, ...]:
        total = np.sum([np.frombuffer(upload.parts[0], np.uint64) for upload in uploads], axis=0)
        return total.tobytes(), b"".join(upload.parts[1] for upload in uploads)

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        words, nonces = np.frombuffer(total.parts[0], np.uint64).copy(), total.parts[1]
        for start in range(0, len(nonces), 16):
            words -= self.mask(party, nonces[start : start + 16], total.size)
        return Opened(words.view(np.int64))

    def reveals(self, facts: Facts) -> list[Reveals]:
        return []

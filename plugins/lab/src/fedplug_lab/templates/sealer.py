"""Sketch: a sealer."""

import hashlib
import os
from typing import Any

import fedplug
import numpy as np
from fedplug import Client, Facts, FixedPoint, Known, Opened, Operations, Reveals, Seal, Sealed, Total, Words


class Thing(fedplug.Sealer):
    """Add masks of a key that all clients share, so that the server adds up what it cannot read."""

    cohort_secret = True

    def protect(self, known: Known, facts: Facts) -> Operations:
        return (Seal(scheme="masks", opened_by="clients", numbers=FixedPoint(range=2.0**12, step=2.0**-16)),)

    def mask(self, client: Client, nonce: bytes, size: int) -> Any:
        return np.frombuffer(hashlib.shake_256(client.secret(self, nonce)).digest(8 * size), np.int64)

    def seal(self, words: Words, client: Client, facts: Facts) -> Sealed:
        nonce = os.urandom(16)
        return Sealed(((words.values + self.mask(client, nonce, words.values.size)).tobytes(), nonce))

    def add(self, uploads: Any, server: Any, facts: Facts) -> tuple[bytes, ...]:
        total = np.sum([np.frombuffer(each.parts[0], np.int64) for each in uploads], axis=0)
        return total.tobytes(), *(nonce for each in uploads for nonce in each.parts[1:])

    def open(self, total: Total, party: Any, facts: Facts) -> Opened:
        masks = [self.mask(party, nonce, total.size) for nonce in total.parts[1:]]
        return Opened(np.frombuffer(total.parts[0], np.int64) - np.sum(masks, axis=0))

    def reveals(self, facts: Facts) -> list[Reveals]:
        return []

"""Reproducible random streams, one for each purpose. They hide nothing."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@functools.cache
def _philox() -> Callable[[NDArray[np.uint64]], np.random.Philox]:
    """What makes Philox with a key. `Philox(key=...)` makes the same, but asks the system for a seed first, and drops
    it, which takes three times as long. Made when it is first needed: much that imports this module draws nothing.
    """
    from numpy.random.bit_generator import ISeedSequence

    class Key(ISeedSequence):
        def __init__(self, key: NDArray[np.uint64]) -> None:
            self.key = key

        def generate_state(self, n_words: int, dtype: Any = np.uint32) -> NDArray[Any]:
            return self.key  # two words of 64 bits, which is all that Philox asks for

    return lambda key: np.random.Philox(Key(key))  # type: ignore[arg-type]  # it takes any ISeedSequence


def stream(seed: int, *purpose: object) -> np.random.Generator:
    """A separate, reproducible random stream for each purpose.

    Philox keyed by a hash of the seed and the purpose, so that streams do not depend on the order in which parties
    run. Not a source of secret randomness.
    """
    text = "\x1f".join([str(seed), *map(str, purpose)])
    key = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), np.uint64)
    return np.random.Generator(_philox()(key))

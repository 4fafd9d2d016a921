"""Reproducible randomness: one stream for each purpose, and whether anybody drew from it."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_watched: contextvars.ContextVar[list[np.random.Generator] | None] = contextvars.ContextVar("_watched", default=None)


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
    """A reproducible random stream of its own for each purpose.

    Philox keyed by a hash of the seed and the purpose, so that streams do not depend on the order in which parties
    run. Not a source of secret randomness.
    """
    text = "\x1f".join([str(seed), *map(str, purpose)])
    key = np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), np.uint64)
    made = np.random.Generator(_philox()(key))
    if (watched := _watched.get()) is not None:
        watched.append(made)
    return made


@contextlib.contextmanager
def watch_streams() -> Iterator[Callable[[], bool]]:
    """Inside, notes reproducible streams; gives what tells whether any of them was drawn from."""
    made: list[np.random.Generator] = []
    token = _watched.set(made)

    def drawn() -> bool:
        if not made:
            return False
        states = [generator.bit_generator.state for generator in made]
        fresh = np.random.Philox(key=0).state
        return any(
            state["state"]["counter"].any() or state["buffer_pos"] != fresh["buffer_pos"] or state["has_uint32"]
            for state in states
        )

    try:
        yield drawn
    finally:
        _watched.reset(token)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Inside, streams are not noted."""
    token = _watched.set(None)
    try:
        yield
    finally:
        _watched.reset(token)

"""Every round of a target that an adversary saw, kept apart from the parties and read one at a time."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

from fedplug_runs.files import read_bytes, write_bytes

from fedplug_attacks import Observation

# Memory for the observations of one target before further ones go to files.
_IN_MEMORY = 1 << 28


class Observations(Sequence[Observation]):
    """Observations that are read on request: each time a new copy, which its reader may change.

    They hold arrays and public facts alone, and lead to no party. Those beyond 256 MiB are in files, which exist as
    long as the attack runs.

    Args:
        kept: each pickled, or its file.
    """

    def __init__(self, kept: Sequence[bytes | Path]) -> None:
        self._kept = tuple(kept)

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, place: int) -> Observation: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Observation]: ...

    def __getitem__(self, place: int | slice) -> Observation | Sequence[Observation]:
        if isinstance(place, slice):
            return Observations(self._kept[place])
        kept = self._kept[place]
        observation: Observation = pickle.loads(kept if isinstance(kept, bytes) else read_bytes(kept))
        return observation


class Shelf:
    """Keeps the observations of one target at a time. Close it at the end."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="fedplug-")

    def close(self) -> None:
        """Forgets the observations."""
        self._scratch.cleanup()

    def keep(self, found: Iterable[Observation]) -> Observations:
        """The observations, each stored before the next one is made."""
        kept: list[bytes | Path] = []
        held = 0
        for number, observation in enumerate(found):
            data = pickle.dumps(observation, pickle.HIGHEST_PROTOCOL)
            if held + len(data) <= _IN_MEMORY:
                held += len(data)
                kept.append(data)
                continue
            path = Path(self._scratch.name) / f"observation-{number}"
            write_bytes(path, data)
            kept.append(path)
        return Observations(kept)

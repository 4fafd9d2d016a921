"""Every round of a target that an adversary saw, kept apart from the parties and read one at a time."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable, Sequence
from typing import IO, overload

from fedplug_attacks import Observation

# Memory for the observations of one target before they go to a file.
_IN_MEMORY = 1 << 28


class Observations(Sequence[Observation]):
    """Observations that are read on request: each time a new copy, which its reader may change.

    They hold arrays and public facts alone, and lead to no party.

    Args:
        file: in which each is pickled.
        places: of each in the file.
    """

    def __init__(self, file: IO[bytes], places: Sequence[int]) -> None:
        self._file, self._places = file, tuple(places)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Observation: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Observation]: ...

    def __getitem__(self, place: int | slice) -> Observation | Sequence[Observation]:
        if isinstance(place, slice):
            return Observations(self._file, self._places[place])
        self._file.seek(self._places[place])
        observation: Observation = pickle.load(self._file)
        return observation


class Shelf:
    """Keeps the observations of one target at a time; of more than 256 MiB in a file that nobody else can open.

    Close it at the end.
    """

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile()  # noqa: SIM115 (open until the next one)

    def close(self) -> None:
        """Forgets the observations."""
        self._file.close()

    def keep(self, found: Iterable[Observation]) -> Observations:
        """The observations, each stored before the next one is made; those of the target before are forgotten."""
        self.close()
        self._file, places = tempfile.SpooledTemporaryFile(_IN_MEMORY), list[int]()  # noqa: SIM115
        for observation in found:
            places.append(self._file.tell())
            pickle.dump(observation, self._file, pickle.HIGHEST_PROTOCOL)
        return Observations(self._file, places)

"""Data sets as a run loads them: each has a digest, and the runs of a study load one that they have in common once."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from fedplug.api.data import Dataset
from fedplug.recipe.composition import Composition
from fedplug.recipe.parts import Use
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import load_data

MOST = 4
"""Data sets that are kept at a time: a study of a hundred needs none of them twice."""
BYTES = 2**29
"""Of data sets that are kept at a time, where they are several: features of one data set may differ in every run."""
Kept = tuple[str, Dataset]
"""A data set, behind its digest in hex."""


class Loaded:
    """The data sets of a study, by what they were loaded from."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}

    def digest(self, recipe: Recipe, data_root: str | None) -> str:
        """That of the data of a recipe, loaded if it is not yet; empty with data at sites, which nobody has.

        Raises:
            DataError: the data are missing or cannot be used.
        """
        if recipe.data.agreed is not None:
            return ""
        with keeping(self):
            once = Once(recipe, Composition(recipe))
            load_data(recipe, once.composition.components, data_root)
        return once.digest

    def packed(self) -> dict[str, bytes]:
        """All of it for another process, less what cannot travel: that process loads it itself."""
        found = {}
        for key, kept in self._kept.items():
            with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
                found[key] = pickle.dumps(kept, protocol=5)
        return found

    @classmethod
    def unpacked(cls, packed: Mapping[str, bytes]) -> Loaded:
        """Inverse of `packed`, of a process that this one was started by."""
        loaded = cls()
        loaded._kept = {key: pickle.loads(data) for key, data in packed.items()}
        return loaded

    def load(self, key: str, component: Any, root: str | None) -> Kept:
        """A data set that is there, or is loaded now."""
        if key not in self._kept:
            self._kept[key] = _load(component, root)
            while len(self._kept) > MOST or (len(self._kept) > 1 and sum(map(_bytes, self._kept.values())) > BYTES):
                del self._kept[next(iter(self._kept))]
        return self._kept[key]


def place_of(recipe: Recipe, data_root: str | None) -> str:
    """What the data of a recipe are loaded from: recipes of one place have the same."""
    return " ".join(_key(use, data_root) for use in _uses(recipe))


def _uses(recipe: Recipe) -> list[Use]:
    return [recipe.components[each.name] for each in (recipe.data, recipe.public) if each]


_now: Loaded | None = None


@contextlib.contextmanager
def keeping(loaded: Loaded) -> Iterator[None]:
    """Inside, runs of this process take the data sets that are there, and keep what they load."""
    global _now
    before, _now = _now, loaded
    try:
        yield
    finally:
        _now = before


class Once:
    """A composition whose data sets are loaded through here.

    Attributes:
        composition: a copy for what loads data, and for nothing else.
    """

    def __init__(self, recipe: Recipe, composition: Composition) -> None:
        self._digests: list[str] = []
        self.composition = composition
        if recipe.data.agreed is not None:
            return
        self.composition = copy.copy(composition)
        doors = {use.name: _Door(use, composition.components[use.name], self._digests) for use in _uses(recipe)}
        self.composition.components = {**composition.components, **doors}  # type: ignore[dict-item]

    @property
    def digest(self) -> str:
        """Of all that was loaded, in hex; empty where nothing was."""
        return hashlib.sha256(" ".join(self._digests).encode()).hexdigest() if self._digests else ""


class _Door:
    """A data set's component as far as a world asks for it: `load`."""

    def __init__(self, use: Use, component: Any, digests: list[str]) -> None:
        self._use, self._component, self._digests = use, component, digests

    def load(self, root: str | None) -> Dataset:
        """As `DataSource.load`."""
        if _now is None:
            digest, data = _load(self._component, root)
        else:
            digest, data = _now.load(_key(self._use, root), self._component, root)
        self._digests.append(digest)
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._component, name)


def _load(component: Any, root: str | None) -> Kept:
    data = component.load(root)
    return (_digest(data) if isinstance(data, Dataset) else ""), data


def _bytes(kept: Kept) -> int:
    data = kept[1]
    parts = (data.train, data.test) if isinstance(data, Dataset) else ()
    return sum(array.nbytes for part in parts for array in vars(part).values() if isinstance(array, np.ndarray))


def _key(use: Use, root: str | None) -> str:
    """What a data set is loaded from: its class, its options, its own files, and the folder of data sets."""
    parts = [[each.use, each.own and each.own.sha256, each.options.model_dump(mode="json"),
              [file.sha256 for file in each.files]] for each in use.nested]  # fmt: skip
    return json.dumps([root, parts], sort_keys=True, default=str)


def _digest(data: Dataset) -> str:
    """SHA-256 of all examples with their answers, in their order."""
    found = hashlib.sha256()
    for examples in (data.train, data.test):
        for name, array in vars(examples).items():
            if isinstance(array, np.ndarray):
                found.update(f"{name} {array.dtype.str} {array.shape}".encode())
                found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()

"""Features of a data set: a public function of each example's inputs takes their place.

Under differential privacy a linear model on fixed features is better than a network that must learn them (Tramer &
Boneh, ICLR 2021). A feature is a data set around another one, so features nest: a projection of a scattering transform
of images.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, TypeAlias

import fedplug
import numpy as np
from fedplug import Declares, Field, Reveals
from fedplug.api.errors import DataError
from fedplug_std import cache

if TYPE_CHECKING:
    from fedplug import Dataset, Facts
    from numpy.typing import NDArray

Function: TypeAlias = "Callable[[NDArray[Any]], NDArray[np.float32]]"
"""Gives the features of examples, (n, ...) of (n, ...); an example's follow from it alone."""
Public: TypeAlias = "Sequence[Callable[[int], NDArray[Any]]]"
"""For each of the publics, in order: gives its inputs as a function would get them, at most so many."""
Kind: TypeAlias = Literal["numbers", "pixels", "text"]
"""Of inputs: numbers as a model gets them, standardised; pixels from 0 to 1; bytes of texts, with 0 after their end."""

LENGTH = (
    "every example is scaled to this L2 norm, which bounds what one of them adds to a gradient; null: it keeps its own"
)
_AT_ONCE = 64
"""Examples that are worked on at once: what lies between is much larger than their features."""
_COMPARED, _TELLING = 1024, 32
"""Examples that are compared at once, and numbers of one that tell it from all others, whatever their scale."""
_LEAST = 1e-6
"""The length below which an example stays as it is."""
_FORMAT = 2
"""Changes when features of the same inputs would be others."""


class Features(fedplug.DataSource):
    """A data set whose inputs are features of another one's, example by example."""

    inner: ClassVar[Mapping[str, str]] = {"of": "dataset"}
    of: fedplug.DataSource
    reads: ClassVar[Kind] = "numbers"
    """What its function gets. Only the innermost features can read anything but numbers."""

    @property
    def publics(self) -> Sequence[fedplug.DataSource]:
        """The public data sets that the function follows from."""
        return ()

    @abc.abstractmethod
    def shape(self, of: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of one example's features, of the shape of its inputs; None where only a file says it.

        Raises:
            DataError: there are no such features of inputs of this shape.
        """

    @abc.abstractmethod
    def function(self, of: tuple[int, ...], public: Public, root: str | None) -> Function:
        """What makes the features.

        Args:
            of: the shape of an example's inputs.
            public: gives what this function would get of the first training examples of each of `publics`.
            root: folder of data sets, or None.
        """

    def misplaced(self) -> str | None:
        """Why it cannot be of its inner data set, whatever the shape of that, and the remedy; None: it can."""
        if self.reads == "numbers" or not isinstance(self.of, Features):
            return None
        return (
            f"{self.name} reads {self.reads}, and {self.of.name} gives other numbers; put it innermost: "
            f"{self.of.name} of {self.name}"
        )

    def follows_from(self, root: str | None) -> list[Any]:
        """All that the function depends on, as JSON takes it: its options, and the digest of public data.

        Args:
            root: folder of data sets, or None.
        """
        return [f"{type(self).__module__}.{type(self).__qualname__}", self.options.model_dump(mode="json")]

    def reveals(self, facts: Facts) -> Sequence[Reveals]:
        """That everybody knows the function, and what it and those within it follow from."""
        return [
            Reveals(
                "function of features", ("server", "client", "key_holder", "released_model"),
                covered_by="nothing to pay", note=_follows_from(self.calls_public),
            )
        ]  # fmt: skip

    @property
    def _inside(self) -> str:
        """The inner data set, in the plan."""
        told = self.of.describe()
        return f"{self.of.name}: {told}" if isinstance(self.of, Features) else self.of.name

    def follows_from_public(self) -> str:
        """From what the function follows, in a sentence for the plan."""
        return _follows_from(self.rests_on)

    @property
    def rests_on(self) -> list[str]:
        """What this function follows from and the recipe calls public: names of data sets and of files."""
        return [_taken_apart(known)[1].name for known in self.publics]

    @property
    def unpinned(self) -> list[str]:
        """Those of which the recipe states no SHA-256, so that parties may have others and nobody notices."""
        return self.rests_on if getattr(self.options, "sha256", "") is None else []

    @property
    def calls_public(self) -> list[str]:
        """The same of all functions, one around the other. The ledger names it in every line of the verdict."""
        within = [each for each in (*self.publics, self.of) if isinstance(each, Features)]
        return list(dict.fromkeys([*self.rests_on, *(name for each in within for name in each.calls_public)]))

    @property
    def declares(self) -> Declares:
        """The inner data set's, with the shape of the features."""
        inside = self.of.declares
        if inside.shape is None or inside.per == "pixel":
            return dataclasses.replace(inside, shape=None)
        try:
            return dataclasses.replace(inside, shape=self.shape(inside.shape))
        except DataError:  # said when it is loaded, with the place
            return dataclasses.replace(inside, shape=None)

    def load(self, root: str | None) -> Dataset:
        """Loads the inner data set and puts features in the place of its inputs.

        Raises:
            DataError: the inner data set cannot be loaded, or there are no such features of it.
        """
        chain, source = _taken_apart(self)
        for each in chain:
            if said := each.misplaced():
                raise DataError(said)
        data = source.load(root)
        answers = data.train.targets
        if (answers is not None and answers.ndim > 2) or source.declares.task == "std.language_model":
            each_has = "of pixels" if data.train.inputs.ndim > 2 else "at each position"
            raise DataError(f"{self.name} has no features of {source.name}, whose answers are classes {each_has}")
        for known, public in _publics(self):
            if shared := _shared(data, public.load(root)):
                raise DataError(
                    f"{self.name}: {shared} examples of {source.name} are among those of {known.name}, from which "
                    "features follow that everybody has; choose another public data set"
                )

        def made() -> list[NDArray[np.float32]]:
            functions: list[Function] = []
            given = _read(chain[0], source, data, data.train.inputs[:1])
            for each in chain:
                public = [
                    functools.partial(_of_training, chain[0], (*functions,), root, source) for source in each.publics
                ]
                functions.append(each.function(given.shape[1:], public, root))
                given = functions[-1](given)
            return [_applied(chain[0], functions, source, data, part.inputs) for part in (data.train, data.test)]

        told = [_FORMAT, digest(data), *(each.follows_from(root) for each in chain)]
        inputs = cache.kept("features", told, made, _save, _load)
        train, test = (
            dataclasses.replace(part, inputs=found, regions=None)
            for part, found in zip((data.train, data.test), inputs, strict=True)
        )
        return dataclasses.replace(data, train=train, test=test, mean=(), std=(), columns=(), region_names=())


class Fitted(Features):
    """Features that follow from a public data set, `fitted_on`, of which no example may be a client's."""

    inner: ClassVar[Mapping[str, str]] = {"of": "dataset", "fitted_on": "dataset"}
    fitted_on: fedplug.DataSource

    class Options(fedplug.Options):
        """Which examples these must be."""

        sha256: str | None = Field(
            None, pattern="^[0-9a-f]{64}$",
            description="of the inputs of fitted_on, so that no site has others; null: whatever they are",
        )  # fmt: skip

    options: Options

    @property
    def publics(self) -> Sequence[fedplug.DataSource]:
        """The one that it is fitted on."""
        return (self.fitted_on,)

    def follows_from(self, root: str | None) -> list[Any]:
        """Its options, and the public examples.

        Raises:
            DataError: these have another SHA-256 than the recipe says.
        """
        found, said = digest(self.fitted_on.load(root)), self.options.sha256
        if said not in (None, found):
            raise DataError(
                f"{self.name}: the inputs of {self.fitted_on.name} have the sha256 {found}, and the recipe says "
                f"{said}; all sites must have the same examples, or features are not the same function"
            )
        return [*super().follows_from(root), found]


def _follows_from(names: Sequence[str]) -> str:
    named = " and ".join(names)
    return f"follows from {named} alone, which the recipe calls public" if named else "fixed: follows from no data"


def _taken_apart(source: fedplug.DataSource) -> tuple[list[Features], fedplug.DataSource]:
    """The features that nest in a data set, the innermost first, and the data set that they are of."""
    chain: list[Features] = []
    while isinstance(source, Features):
        chain.insert(0, source)
        source = source.of
    return chain, source


def _publics(feature: Features) -> Iterator[tuple[fedplug.DataSource, fedplug.DataSource]]:
    """The public data sets that a feature follows from, each as it is named and without features of its own; also those
    that features of public data follow from.
    """
    for each in _taken_apart(feature)[0]:
        for known in each.publics:
            yield known, _taken_apart(known)[1]
            if isinstance(known, Features):
                yield from _publics(known)


def _shared(private: Dataset, public: Dataset) -> int:
    """How many examples of a data set, for training or for tests, are training examples of a public one."""
    known: tuple[set[bytes], ...] = set(), set()
    for forms in _forms(public, public.train.inputs):
        for seen, form in zip(known, forms, strict=True):
            seen.update(form)
    known[1].discard(b"")
    parts = private.train.inputs, private.test.inputs
    found = (zip(*forms, strict=True) for part in parts for forms in _forms(private, part))
    return sum(own in known[0] or alike in known[1] for some in found for own, alike in some)


def _forms(data: Dataset, inputs: NDArray[Any]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Of some examples at a time, two digests of each.

    The first is of an example as a model gets it, so coarsely that bytes and parts of one are alike. The second is of
    an example whose channels have mean 0 and deviation 1: it is the same however a data set standardises its images.
    Of a few numbers, or of equal ones, that would say too little: it is empty.
    """
    for start in range(0, len(inputs), _COMPARED):
        some = inputs[start : start + _COMPARED]
        given = as_models_get(data, some).round(3) + np.float32(0)  # no -0, which has other bytes
        rows = some.astype(np.float64).reshape(len(some), some.shape[1] if some.ndim == 4 else 1, -1)
        spread = rows.std(2, keepdims=True)
        alike = ((rows - rows.mean(2, keepdims=True)) / spread.clip(1e-9)).round(2).astype(np.float32) + np.float32(0)
        tells = (spread > 1e-6).all((1, 2)) & (rows.shape[2] >= _TELLING)
        yield _digests(given), [one if told else b"" for one, told in zip(_digests(alike), tells, strict=True)]


def _digests(rows: NDArray[np.float32]) -> list[bytes]:
    """Without zeros at the end: the same text may be cut to another length."""
    return [hashlib.blake2b(row.tobytes().rstrip(b"\0"), digest_size=16).digest() for row in rows]


def _save(opened: IO[Any], inputs: list[NDArray[np.float32]]) -> None:
    np.savez(opened, train=inputs[0], test=inputs[1])


def _load(opened: BinaryIO) -> list[NDArray[np.float32]]:
    found = np.load(opened, allow_pickle=False)
    return [found["train"], found["test"]]


def digest(data: Dataset) -> str:
    """Of the inputs of a data set, as models get them."""
    found = hashlib.sha256(repr((data.mean, data.std)).encode())
    for part in (data.train.inputs, data.test.inputs):
        found.update(f"{part.dtype.str} {part.shape}".encode())
        found.update(np.ascontiguousarray(part).data)
    return found.hexdigest()


def _of_training(
    first: Features, functions: Sequence[Function], root: str | None, source: fedplug.DataSource, most: int
) -> NDArray[Any]:
    data = source.load(root)
    return _applied(first, functions, source, data, data.train.inputs[:most])


def _applied(
    first: Features, functions: Sequence[Function], source: fedplug.DataSource, data: Dataset, inputs: NDArray[Any]
) -> NDArray[Any]:
    """The features of inputs, one function after the other; `first` says what the first of them reads."""
    parts = []
    for start in _shown(range(0, len(inputs) or 1, _AT_ONCE)):
        some = _read(first, source, data, inputs[start : start + _AT_ONCE])
        for function in functions:
            some = function(some)
        parts.append(some)
    return np.concatenate(parts)


def _read(first: Features, source: fedplug.DataSource, data: Dataset, inputs: NDArray[Any]) -> NDArray[Any]:
    """Inputs of a data set as the innermost features read them."""
    if first.reads == "numbers":
        return as_models_get(data, inputs)
    if first.reads == "pixels":
        if inputs.ndim != 4:
            raise DataError(
                f"{first.name} reads images, not inputs of shape {list(inputs.shape[1:])}; choose a data set of images "
                f"instead of {source.name}"
            )
        return as_models_get(dataclasses.replace(data, mean=(), std=()), inputs)
    whole = inputs.ndim == 2 and inputs.dtype.kind in "iu"
    if not whole or (inputs.size and not 0 <= inputs.min() <= inputs.max() < 256):
        raise DataError(
            f"{first.name} reads the bytes of texts, and {source.name} has none; name a data set of texts, such as "
            "std.text_table"
        )
    return inputs


def _shown(starts: range) -> Iterator[int]:
    """The same, and a line about them in a terminal where they take seconds."""
    began, written = time.monotonic(), False
    for start in starts:
        if sys.stderr.isatty() and time.monotonic() > began + 2:
            sys.stderr.write(f"\rfeatures, once for this data set: {start:,} of {starts.stop:,} examples ")
            written = True
        yield start
    if written:
        sys.stderr.write("\r\x1b[K")


def to_length(rows: NDArray[np.float32], length: float) -> NDArray[np.float32]:
    """Rows, (n, numbers), each scaled to this L2 norm; one without a direction stays as it is."""
    own = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(own > _LEAST, rows / own.clip(_LEAST) * np.float32(length), rows)


def as_models_get(data: Dataset, inputs: NDArray[Any]) -> NDArray[np.float32]:
    """Inputs as they reach a model: bytes as parts of one, standardised where the data set says how."""
    values = inputs.astype(np.float32)
    if inputs.dtype == np.uint8:
        values /= np.float32(255)
    if not data.mean:
        return values
    around = (-1, *(1,) * (inputs.ndim - 2))
    mean, std = (np.array(each, np.float32).reshape(around) for each in (data.mean, data.std))
    return (values - mean) / std

"""The data that travels between hooks: layout, plan, block, scores.

Everything here is plain: numpy arrays, numbers, strings. No torch, no keys, no behaviour beyond what keeps the data
consistent. The words are those of `docs/architecture.md`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fedplug.api.unchangeable import is_unchangeable, unchangeable

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENCRYPTED, NOISED, RETAINED, CLEAR = "encrypted", "noised", "retained", "clear"
BASE_ZONES: tuple[str, ...] = (ENCRYPTED, NOISED, RETAINED, CLEAR)
"""Zones every protocol knows. `retained` never leaves the client; a recipe may add zones of its own."""

Scores: TypeAlias = "NDArray[np.float32]"
"""What a scorer says: one value a scalar, shape (P,), or one value a layer, shape (L,)."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One named parameter tensor inside the flat vector."""

    name: str
    shape: tuple[int, ...]
    offset: int
    layer: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def slice(self) -> slice:
        return slice(self.offset, self.offset + self.size)


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where each parameter tensor lives in the flat update vector of P scalars.

    Attributes:
        parameters: the tensors in order, each with its name, shape, offset and layer.

    Raises:
        ValueError: the tensors do not tile the vector without gaps, in order.
    """

    parameters: tuple[Parameter, ...]

    def __post_init__(self) -> None:
        expected = 0
        for parameter in self.parameters:
            if parameter.offset != expected:
                raise ValueError(f"{parameter.name} starts at {parameter.offset}, expected {expected}")
            expected += parameter.size

    @classmethod
    def of(cls, named_shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Layout:
        """Lays named shapes one after the other; the layer of `fc1.weight` is `fc1`."""
        parameters, offset = [], 0
        for name, shape in named_shapes:
            parameter = Parameter(name, tuple(int(n) for n in shape), offset, name.rpartition(".")[0] or name)
            parameters.append(parameter)
            offset += parameter.size
        return cls(tuple(parameters))

    @property
    def size(self) -> int:
        """P, the number of scalars."""
        return self.parameters[-1].slice.stop if self.parameters else 0

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the L layers, in order of first appearance."""
        return tuple(dict.fromkeys(parameter.layer for parameter in self.parameters))

    @functools.cached_property
    def layer_sizes(self) -> tuple[int, ...]:
        """Scalars of each of the L layers."""
        return tuple(sum(part.stop - part.start for part in parts) for parts in self.layer_slices().values())

    def layer_slices(self) -> dict[str, list[slice]]:
        """For each layer, the slices of the flat vector that it owns."""
        slices: dict[str, list[slice]] = {layer: [] for layer in self.layers}
        for parameter in self.parameters:
            slices[parameter.layer].append(parameter.slice)
        return slices

    def per_scalar(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of each layer, (L,), spread over its scalars; values of each scalar, (P,), as they are."""
        if len(values) == self.size:
            return values
        spread = np.empty(self.size, values.dtype)
        for value, slices in zip(values, self.layer_slices().values(), strict=True):
            for part in slices:
                spread[part] = value
        return spread


def _label(zone: str, zones: tuple[str, ...]) -> int:
    """By what a plan with these zones labels the scalars of one of them."""
    if zone not in zones:
        raise ValueError(
            f"zone {zone!r} is none of {', '.join(zones)}; a plan is made with ctx.zones and puts scalars into these: "
            "name another one, or add yours to protect in the recipe"
        )
    return zones.index(zone)


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """For one client and round: one zone label per scalar, so zones are disjoint and complete by construction.

    Attributes:
        labels: uint8 array, shape (P,); `labels[j]` indexes `zones`.
        zones: the zone names the labels refer to.
        shared: zones whose positions are the same at every client of the group. Their blocks travel gathered and
            without positions, so that the server need not learn where in the model the values belong.

    Raises:
        ValueError: a label refers to no zone.
    """

    labels: NDArray[np.uint8]
    zones: tuple[str, ...]
    shared: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.labels.dtype != np.uint8 or self.labels.ndim != 1:
            raise ValueError(f"labels must be uint8[P], got {self.labels.dtype}{list(self.labels.shape)}")
        if self.labels.size and int(self.labels.max()) >= len(self.zones):
            raise ValueError(f"label {int(self.labels.max())} refers to no zone of {self.zones}")

    @classmethod
    @functools.lru_cache(maxsize=4)
    def single(cls, zone: str, size: int, zones: tuple[str, ...]) -> Plan:
        """The whole model in one zone; the clients of a process share it, and numpy lets nobody change it.

        Raises:
            ValueError: there is no such zone.
        """
        labels = unchangeable(np.full(size, _label(zone, zones), np.uint8))
        return cls(labels, zones, frozenset(zones))

    @classmethod
    def of(cls, rest: str, size: int, zones: tuple[str, ...], *, shared: Iterable[str] = (),
           **positions: NDArray[Any]) -> Plan:
        """`rest` everywhere, and each `zone=positions` on top (indices or a boolean mask).

        Raises:
            ValueError: there is no such zone.
        """
        labels = np.full(size, _label(rest, zones), np.uint8)
        for zone, where in positions.items():
            labels[where] = _label(zone, zones)
        return cls(labels, zones, frozenset(shared))

    def positions(self, zone: str) -> NDArray[np.uint32]:
        """Global positions of a zone, ascending; shape (n,)."""
        if not is_unchangeable(self.labels):
            return self._find(zone)
        if zone not in self._kept_positions:  # of a plan that clients share: found once
            self._kept_positions[zone] = unchangeable(self._find(zone))
        return self._kept_positions[zone]

    @functools.cached_property
    def _kept_positions(self) -> dict[str, NDArray[np.uint32]]:
        return {}

    def _find(self, zone: str) -> NDArray[np.uint32]:
        return np.flatnonzero(self.labels == _label(zone, self.zones)).astype(np.uint32)

    def where(self, zone: str) -> NDArray[np.uint32] | slice:
        """The same for indexing alone: of a zone that holds every scalar all of them, without a list of them."""
        return slice(None) if self.sizes().get(zone) == self.labels.size else self.positions(zone)

    def widened(self, zone: str, width: int) -> Plan:
        """The plan with a zone spread over the `clear` scalars of every block of `width` scalars that it touches.

        What is encrypted in whole blocks costs the same, and shows less.
        """
        labels, clear = self.labels, self.zones.index(CLEAR)
        touched = np.zeros(-(-labels.size // width), np.bool_)
        touched[self.positions(zone) // width] = True
        inside = np.repeat(touched, width)[: labels.size]
        wider = np.where(inside & (labels == clear), np.uint8(self.zones.index(zone)), labels)
        return Plan(wider, self.zones, self.shared)

    def sizes(self) -> dict[str, int]:
        """Number of scalars in each zone."""
        return dict(self._kept_sizes if is_unchangeable(self.labels) else self._count())

    @functools.cached_property
    def _kept_sizes(self) -> dict[str, int]:
        """Of labels that nobody can change, as those of a plan that clients share: counted once."""
        return self._count()

    def _count(self) -> dict[str, int]:
        return {zone: int(np.count_nonzero(self.labels == label)) for label, zone in enumerate(self.zones)}


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """One zone's share of one update, or of a sum of updates: values or ciphertexts, and where they belong.

    While plain, `values` has shape (size,). Once encrypted, `values` is
    None, `ciphertexts` holds serialised ciphertexts without any context, and `sealed_by` names the component that can
    add and open them.

    Attributes:
        zone: the zone it belongs to.
        size: how many scalars it covers.
        values: float32 (size,), in ascending order of position; None once encrypted.
        positions: uint32 (size,) global positions; None when they follow from a plan that the cohort shares.
        ciphertexts: serialised ciphertexts; empty while plain.
        sealed_by: name of the component that encrypted it; None while plain.
        contributors: how many updates are behind every value: 1 in an upload; the fewest where positions differ.
        divisor: what to divide by to obtain the mean: total weight, a scalar or one value a position.
        weighted: True once the client's weight has been multiplied in (a protector that encrypts does so).
        meta: plain data a protector needs later (numbers, strings, bytes); travels with the block.
    """

    zone: str
    size: int
    values: NDArray[np.float32] | None = None
    positions: NDArray[np.uint32] | None = None
    ciphertexts: tuple[bytes, ...] = ()
    sealed_by: str | None = None
    contributors: int = 1
    divisor: float | NDArray[np.float64] = 1.0
    weighted: bool = False
    meta: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def plain(self) -> NDArray[np.float32]:
        """The values of a block that is not encrypted.

        Raises:
            ValueError: the block is encrypted.
        """
        if self.values is None:
            raise ValueError(f"the {self.zone} block is encrypted by {self.sealed_by}; it has no plain values here")
        return self.values

    def replace(self, **changes: Any) -> Block:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def apart(self) -> Block:
        """A copy of which whoever is handed it may change whatever can be changed, while this block stays as it is."""
        arrays = {
            name: array.copy() if isinstance(array, np.ndarray) and not is_unchangeable(array) else array
            for name, array in (("values", self.values), ("positions", self.positions), ("divisor", self.divisor))
        }
        return self.replace(**arrays, meta=copy.deepcopy(self.meta))

    def mean(self) -> NDArray[np.float32]:
        """Values over divisor; (size,). A position nobody contributed to is 0.

        Raises:
            ValueError: the block is encrypted.
        """
        if isinstance(self.divisor, float) and self.divisor == 1.0:
            return self.plain()
        total = self.plain().astype(np.float64)
        divisor = np.asarray(self.divisor, np.float64)
        there = divisor > 0
        with np.errstate(over="ignore"):  # whoever uses a mean looks whether it is finite
            np.divide(total, divisor, out=total, where=there)
            total[~np.broadcast_to(there, total.shape)] = 0
            return total.astype(np.float32)

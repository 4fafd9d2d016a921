"""The data that travels between links: layout, plan, block and scores; and how blocks add up.

Everything here is plain: numpy arrays, numbers, strings. No torch, no keys, no behaviour beyond what keeps the data
consistent.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from fedplug.api.errors import ProtectionError
from fedplug.api.records import is_count, is_number, kind_of, shown

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_unchangeable(array: NDArray[Any]) -> bool:
    """Whether the array lies in `bytes`, as one that was decoded does.

    A read-only mark is not enough: the owner of the memory can remove it, or may hold a view without it.
    """
    below: Any = array
    while isinstance(below, np.ndarray):
        if below.flags.writeable:
            return False
        below = below.base
    return isinstance(below, bytes)


def unchangeable(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself where numpy lets nobody change it and it is contiguous, else a copy of which both hold."""
    if is_unchangeable(array) and array.flags.c_contiguous:
        return array
    if not array.size:  # numpy makes no array of no bytes
        empty = np.empty(array.shape, array.dtype)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)


ENCRYPTED, NOISED, RETAINED, CLEAR = "encrypted", "noised", "retained", "clear"
BASE_ZONES: tuple[str, ...] = (ENCRYPTED, NOISED, RETAINED, CLEAR)
"""Zones every protocol knows. `retained` never leaves the client; a recipe may add its own zones."""

Scores: TypeAlias = "NDArray[np.float32]"
"""The scores of a scorer: one value a scalar, shape (P,), or one value a layer, shape (L,)."""


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
            f"zone {zone!r} is none of {', '.join(zones)}; a plan is made with facts.zones and puts scalars into "
            "these: name another one, or add yours to protect in the recipe"
        )
    return zones.index(zone)


class Sizes(Protocol):
    """What plans and sums need of `Facts`."""

    @property
    def layout(self) -> Layout:
        """Of the model."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Of the recipe."""


@dataclasses.dataclass(frozen=True, eq=False)
class Plan:
    """For one client and round: one zone label per scalar, so zones are disjoint and complete by construction.

    Attributes:
        labels: uint8 array, shape (P,); `labels[j]` indexes `zones`.
        zones: the zone names the labels refer to.
        whole: the zone that holds the whole model, where one does; before a model is known, too.

    Raises:
        ValueError: a label refers to no zone.
    """

    labels: NDArray[np.uint8]
    zones: tuple[str, ...]
    whole: str = ""

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
        return cls(labels, zones, zone)

    @classmethod
    def of(cls, facts: Sizes, other_zone: str, **positions: NDArray[Any]) -> Plan:
        """`other_zone` everywhere, and each `zone=positions` on top (indices or a boolean mask).

        Args:
            facts: say how large the model is, and which zones the recipe has.
            other_zone: the zone of all scalars that no positions name.
            positions: by zone.

        Raises:
            ValueError: there is no such zone.
        """
        zones = facts.zones
        labels = np.full(facts.layout.size, _label(other_zone, zones), np.uint8)
        for zone, where in positions.items():
            labels[where] = _label(zone, zones)
        return cls(labels, zones)

    def may_hold(self, zone: str) -> bool:
        """Whether there is a scalar in a zone, or may be, before a model is known."""
        if self.whole or not self.labels.size:
            return zone == (self.whole or zone)
        return zone in self.zones and bool(self.sizes()[zone])

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
        return Plan(wider, self.zones)

    def sizes(self) -> dict[str, int]:
        """Number of scalars in each zone."""
        return dict(self._kept_sizes if is_unchangeable(self.labels) else self._count())

    def _count(self) -> dict[str, int]:
        return {zone: int(np.count_nonzero(self.labels == label)) for label, zone in enumerate(self.zones)}

    _kept_sizes = functools.cached_property(_count)
    """The counts of labels that nobody can change, as those of a plan that clients share: counted once."""


def shared_plan(plan: Plan) -> Plan:
    """The plan with labels that nobody can change, so that what is found out of them is found once."""
    return plan if is_unchangeable(plan.labels) else dataclasses.replace(plan, labels=unchangeable(plan.labels))


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """One zone's share of one update, or of a sum of updates: values or ciphertexts, and where they belong.

    While plain, `values` has shape (size,). Once encrypted, `values` is
    None, `ciphertexts` holds serialised ciphertexts without any context, and `sealed_by` names the component that can
    add and open them.

    Attributes:
        zone: the zone it belongs to.
        size: how many scalars it covers.
        values: float32 (size,), in ascending order of position, float64 of a sum that others may join; None once
            encrypted.
        positions: uint32 (size,) global positions; None when they follow from a plan that the cohort shares.
        ciphertexts: serialised ciphertexts; empty while plain.
        sealed_by: name of the component that encrypted it; None while plain.
        contributors: how many updates are behind every value: 1 in an upload; the fewest where positions differ.
        divisor: what to divide by to obtain the mean: total weight, a scalar or one value a position.
        weighted: True once the client's weight has been multiplied in (a protector that encrypts does so).
        meta: plain data that belongs to closed values; travels with the block.
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
        """A copy that its holder may change without changing this block."""
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
        with np.errstate(over="ignore"):  # users of a mean check that it is finite
            np.divide(total, divisor, out=total, where=there)
            total[~np.broadcast_to(there, total.shape)] = 0
            return total.astype(np.float32)


def block_problem(block: Any) -> str:
    """Which field of a `Block` that arrived is not of its type, and the rule; empty if all are.

    The sum checks that the values are finite, which costs no separate pass.
    """
    if not isinstance(block.zone, str):
        return f"its zone is {shown(block.zone)}, which must be a name"
    for name in ("size", "contributors"):
        if not is_count(getattr(block, name)):
            return f"its {name} is {shown(getattr(block, name))}, which must be a whole number >= 0"
    for name, kind in (("values", np.float32), ("positions", np.uint32)):
        if problem := _array_problem(getattr(block, name), kind, block.size):
            return f"its {name} are {problem}"
    where = block.positions
    if where is not None and not (where[1:] > where[:-1]).all():
        return "its positions must be strictly ascending"
    if not isinstance(block.ciphertexts, tuple) or not all(isinstance(part, bytes) for part in block.ciphertexts):
        return f"its ciphertexts are {shown(block.ciphertexts)}, which must be bytes, one after the other"
    if not isinstance(block.sealed_by, str | None):
        return f"its sealed_by is {shown(block.sealed_by)}, which must be a component's name"
    if isinstance(block.divisor, np.ndarray):
        if problem := _array_problem(block.divisor, np.float64, block.size):
            return f"its divisors are {problem}"
    elif not is_number(block.divisor):
        return f"its divisor is {shown(block.divisor)}, which must be a number >= 0, or one for each scalar"
    if not isinstance(block.weighted, bool):
        return f"its weighted is {shown(block.weighted)}, which must be true or false"
    return _meta_problem(block.meta)


def _array_problem(array: Any, kind: type[np.generic], size: int) -> str:
    if array is None or (isinstance(array, np.ndarray) and array.dtype == kind and array.shape == (size,)):
        return ""
    rule = f"which must be {np.dtype(kind).name}[{size}]: one for each scalar"
    if not isinstance(array, np.ndarray):
        return f"{shown(array)}, {rule}"
    return f"{array.dtype}{list(array.shape)}, {rule}"


def _meta_problem(meta: Any) -> str:
    """Meta is plain data by name. Without recursion: a sender chooses how deeply lists lie in lists."""
    if not isinstance(meta, dict) or not all(isinstance(key, str) for key in meta):
        return f"its meta is {shown(meta)}, which must be plain data by name"
    left = list(meta.values())
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if not all(isinstance(key, str | int) for key in value):
                return "its meta holds a dict whose keys are neither names nor whole numbers"
            left.extend(value.values())
        elif isinstance(value, list | tuple):
            left.extend(value)
        elif not isinstance(value, int | float | str | bytes | np.ndarray | np.generic | None):
            return (
                f"its meta holds {kind_of(value)}, which must be numbers, text, bytes, arrays, or lists and "
                "dicts of these"
            )
    return ""


_AT_ONCE = 1 << 14
"""Scalars of all clients that are added before the next ones: their sum stays in the processor's cache."""


def add_blocks(blocks: dict[int, Block], weights: Mapping[int, float], facts: Sizes, *, rounded: bool = True) -> Block:
    """The weighted sum of one zone's plain blocks, with `divisor` the total weight at each position.

    Blocks without positions are added scalar by scalar; blocks with their own positions are added into the union of
    their positions, each divided by the weight of those clients that really sent it. Clients are added in ascending id,
    so the sum does not depend on who answered first.

    Args:
        blocks: by client id; not empty.
        weights: by client id, in (0, 1].
        facts: the round.
        rounded: whether values become float32; else they are float64, for a sum to which others are joined.

    Raises:
        ProtectionError: blocks of different zones, kinds or sizes; values or positions that cannot be, which are
            blamed on their client.
    """
    blocks = dict(sorted(blocks.items()))
    total = _added(blocks, weights, facts)
    return in_float32(total) if rounded else total


def _added(blocks: dict[int, Block], weights: Mapping[int, float], facts: Sizes) -> Block:
    first = next(iter(blocks.values()))
    check_alike(blocks)
    if any(block.positions is not None for block in blocks.values()):
        return _add_scattered(blocks, weights, facts.layout.size)
    total = np.zeros(first.size, np.float64)
    weighted = np.empty(min(_AT_ONCE, first.size), np.float64)
    with np.errstate(invalid="ignore"):  # signalling NaN, or infinities of both signs: `_finite` says whose they are
        for start in range(0, first.size, _AT_ONCE):
            part = total[start : start + _AT_ONCE]
            product = weighted[: len(part)]
            for client_id, block in blocks.items():
                np.copyto(product, block.plain()[start : start + _AT_ONCE])
                if not block.weighted and weights[client_id] != 1.0:
                    product *= weights[client_id]
                part += product
    divisor = sum(weights[client_id] for client_id in blocks)
    return first.replace(
        values=_finite(total, blocks), divisor=divisor, weighted=True, contributors=len(blocks),
        meta={},  # what one client's block carried says nothing of the sum
    )  # fmt: skip


def check_alike(blocks: Mapping[int, Block]) -> None:
    """Refuses blocks of different zones, closed by different components, or, without positions, of different sizes.

    Raises:
        ProtectionError: names the first client whose block differs from that of the first.
    """
    first = next(iter(blocks.values()))
    for client_id, block in blocks.items():
        if (block.zone, block.sealed_by) != (first.zone, first.sealed_by):
            raise ProtectionError(
                f"client {client_id} sent a {block.zone} block sealed by {block.sealed_by}, others a {first.zone} "
                f"block sealed by {first.sealed_by}; all clients of a group must protect a zone alike"
            )
        if block.positions is None and first.positions is None and block.size != first.size:
            raise other_size(f"client {client_id}", block, first)


def join_sums(sums: Sequence[Block]) -> Block:
    """The plain sum of one zone over all clients, of the sums over some of them; those of no client may be in two.

    Args:
        sums: not empty; alike, without positions.
    """
    total = np.zeros(sums[0].size, np.float64)
    for block in sums:
        total += block.plain()
    return sums[0].replace(
        values=total, divisor=sum(block.divisor for block in sums),
        contributors=sum(block.contributors for block in sums),
    )  # fmt: skip


def in_float32(block: Block) -> Block:
    """A sum with its values as float32; a closed one as it is."""
    return block if block.values is None else block.replace(values=block.values.astype(np.float32, copy=False))


def other_size(who: str, block: Block, first: Block) -> ProtectionError:
    """The complaint about a block, or a sum of blocks, that has another size or kind than the first one."""
    kind = f" {first.zone} scalars sealed by {first.sealed_by}"
    alike = (block.zone, block.sealed_by) == (first.zone, first.sealed_by)
    return ProtectionError(
        f"{who} sent {block.size} {block.zone} scalars{'' if alike else f' sealed by {block.sealed_by}'}, others "
        f"{first.size}{'' if alike else kind}; a shared zone must have the same positions at every client"
        f"{'' if alike else ', protected alike'}"
    )


def fewest_in(block: Block) -> int:
    """How many updates at least are behind every value that a sum holds, opened or not.

    Ciphertexts may hold more than what comes out of them; who summed them says so in `meta["fewest"]`. What is not a
    count there promises nothing, so that no credit follows from it.
    """
    stated = block.contributors if block.sealed_by is None else block.meta.get("fewest", block.contributors)
    return min(stated, block.contributors) if is_count(stated) else 0


def share_divisors(blocks: dict[str, Block]) -> dict[str, Block]:
    """Sums of several zones of one group, where a position may be in one zone at some clients and in another at others.

    Every such position is divided by the weight of all who sent it, in whichever zone, so that the means of the zones
    add up to the weighted mean. Zones without positions are the same at every client and overlap with nothing. Where an
    aggregator divides by one number for all senders, it stays.

    Args:
        blocks: by zone; plain or sealed sums.
    """
    scattered = {
        zone: block
        for zone, block in blocks.items()
        if block.positions is not None and block.size and isinstance(block.divisor, np.ndarray)
    }
    if len(scattered) < 2:
        return blocks
    total = np.zeros(max(int(block.positions[-1]) for block in scattered.values()) + 1)  # type: ignore[index]
    for block in scattered.values():
        total[block.positions] += block.divisor
    shared = {zone: block.replace(divisor=total[block.positions]) for zone, block in scattered.items()}
    return {zone: shared.get(zone, block) for zone, block in blocks.items()}


def meet(blocks: list[Block]) -> Block:
    """Plain sums with positions, which may overlap, as one sum; the zone is that of the first.

    Values and divisors add up position by position, so that `mean` gives the weighted mean over all who sent a
    position in any of the parts (SenseCrypt, Alg. 3, lines of the DKMS).
    """
    first = blocks[0]
    if len(blocks) == 1:
        return first
    size = max((int(block.positions[-1]) + 1 for block in blocks if block.size), default=0)  # type: ignore[index]
    total, divisor = np.zeros(size), np.zeros(size)
    for block in blocks:
        total[block.positions] += block.plain()
        if isinstance(block.divisor, np.ndarray):
            divisor[block.positions] += block.divisor
        else:  # one number for the whole model, of which the parts do not make several
            divisor[block.positions] = np.maximum(divisor[block.positions], block.divisor)
    positions = np.flatnonzero(divisor).astype(np.uint32)
    return first.replace(
        size=len(positions),
        values=total[positions].astype(np.float32),
        positions=positions,
        divisor=divisor[positions],
        contributors=min(block.contributors for block in blocks),
    )


def _finite(total: NDArray[np.float64], blocks: dict[int, Block]) -> NDArray[Any]:
    """The sum, unless one client's values have spoilt it: that client is blamed."""
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(total.astype(np.float32))
    if finite.all():
        return total
    largest = {}
    for client_id, block in blocks.items():
        magnitudes = np.nan_to_num(np.abs(block.plain()), nan=np.inf, posinf=np.inf)
        largest[client_id] = float(magnitudes.max(initial=0))
    worst = max(largest, key=largest.__getitem__)
    what = "NaN or infinite" if np.isinf(largest[worst]) else "far too large"
    raise ProtectionError(
        f"client {worst} sent {what} values in the {blocks[worst].zone} zone, which would spoil the mean: its training "
        "diverged, or its noise is too large; lower lr in train first"
    ).blame(worst)


def _add_scattered(blocks: dict[int, Block], weights: Mapping[int, float], size: int) -> Block:
    total, divisor, counts = np.zeros(size, np.float64), np.zeros(size, np.float64), np.zeros(size, np.uint32)
    for client_id, block in blocks.items():
        if block.positions is None:
            raise ProtectionError(f"client {client_id} sent a {block.zone} block without positions, others with")
        where, weight = block.positions, weights[client_id]
        if where.dtype != np.uint32 or not (where[1:] > where[:-1]).all():
            problem = f"client {client_id} sent {block.zone} positions that are not uint32 and strictly ascending"
            raise ProtectionError(problem).blame(client_id)
        if len(where) and int(where[-1]) >= size:
            problem = f"client {client_id} sent {block.zone} position {int(where[-1])} of {size}"
            raise ProtectionError(problem).blame(client_id)
        with np.errstate(invalid="ignore"):
            total[where] += block.plain() * np.float64(1.0 if block.weighted else weight)
        divisor[where] += weight
        counts[where] += 1
    positions = np.flatnonzero(divisor).astype(np.uint32)
    return Block(
        zone=next(iter(blocks.values())).zone,
        size=len(positions),
        values=_finite(total[positions], blocks),
        positions=positions,
        divisor=divisor[positions],
        weighted=True,
        contributors=int(counts[positions].min(initial=len(blocks))),
    )

"""Canary clients: their choice, their coins, their uploads, and what others saw of them.

A canary client uploads in every round a secret random direction where its coin said in, and zeros where it said out.
Two runs that differ in one coin are therefore neighbours under the adjacency of the ledger's epsilon (zero-out). In all
other respects a canary client is like any other: it is scored, votes, clips, adds noise, seals, and is sampled.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from fedplug import Clip
from fedplug.api.events import Event, Uploaded, ZoneOpened
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fedplug import Client, Facts
    from fedplug.api.blocks import Block, Plan
    from fedplug.recipe.catalog import Catalog
    from fedplug.recipe.recipe import Recipe

BEYOND = 100.0
"""Length of a canary's update in clipping norms: long enough to fill every layer's norm if layers are clipped."""
_MOST_ORTHOGONAL = 10_000_000
"""Largest number of scalars in all directions for which they are made orthogonal. Beyond it P is large, and random
directions are nearly orthogonal."""


@dataclasses.dataclass(eq=False)
class Canaries:
    """The canary clients of one run; it listens to what the server sees.

    Args:
        ids: of the clients that are canaries.
        seed: seed of coins and directions; nobody in the run knows it.
        all_out: no canary sends its direction, whatever its coin; this is the run of an adversary who knows the seed.

    Attributes:
        inside: (m,) bool, the coins, tossed before training.
        initial: the global model before round 1; None before any client has trained.
    """

    ids: tuple[int, ...]
    seed: int
    all_out: bool = False
    hears: ClassVar[tuple[type[Event], ...]] = (Uploaded, ZoneOpened)
    initial: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        self.inside = self._stream("coins").random(len(self.ids)) < 0.5
        self._number = {client_id: number for number, client_id in enumerate(self.ids)}
        self._clients: dict[int, Any] = {}
        self._single = False
        self.plans: dict[tuple[int, int], Plan | None] = {}
        self._groups: dict[str, list[int]] = {}
        self._opened: dict[str, NDArray[np.float64]] = {}

    def _stream(self, *purpose: Any) -> np.random.Generator:
        return stream_of(self.seed, *purpose)

    @property
    def _size(self) -> int:
        assert self.initial is not None  # asked only once a client has trained
        return self.initial.size

    @functools.cached_property
    def _order(self) -> NDArray[np.int64]:
        return self._stream("scalars").permutation(self._size)

    @functools.cached_property
    def _frame(self) -> NDArray[np.float32] | None:
        """Orthogonal directions (m, P), so that no canary disturbs another's score; None if there are too many."""
        if len(self.ids) > self._size or len(self.ids) * self._size > _MOST_ORTHOGONAL:
            return None
        drawn = self._stream("directions").standard_normal((self._size, len(self.ids)))
        return np.ascontiguousarray(np.linalg.qr(drawn)[0].T, np.float32)

    def direction(self, client_id: int) -> NDArray[np.float32]:
        """One canary's direction (P,), of length 1: a random one, or a separate scalar if values are clipped in L1."""
        number = self._number[client_id]
        if self._single:
            vector = np.zeros(self._size, np.float32)
            vector[self._order[number % self._size]] = self._stream("sign", number).choice([-1, 1])
            return vector
        if self._frame is not None:
            row: NDArray[np.float32] = self._frame[number]
            return row
        drawn = self._stream("direction", number).standard_normal(self._size)
        unit: NDArray[np.float32] = (drawn / np.linalg.norm(drawn)).astype(np.float32)
        return unit

    # -- at the clients

    def train(self, client: Client, facts: Facts) -> bool:
        """Makes a canary client learn its direction, or nothing; returns whether the client is a canary."""
        if self.initial is None:
            self.initial = client.vector
        if client.client_id not in self._number:
            return False
        self._clients[client.client_id] = client
        clips = [
            operation
            for zone in facts.zones
            for step in facts.steps(zone)
            if step.link.hook == "protect"
            for operation in step.operations
            if isinstance(operation, Clip)
        ]
        self._single = any(clip.order == 1 for clip in clips)
        if self.inside[self._number[client.client_id]] and not self.all_out:
            longest = max((float(np.max(clip.bound.norm)) for clip in clips), default=1 / BEYOND)
            client.model.set_vector(client.start + np.float32(BEYOND * longest) * self.direction(client.client_id))
        return True

    # -- what is seen

    def observe(self, event: Event) -> None:
        """Notes the positions of the canaries' uploads in the model, and adds up the sums that the server sees."""
        if isinstance(event, Uploaded):
            self._groups = {group: [*ids] for group, ids in event.groups.items()}
            for client_id, client in self._clients.items():
                self.plans[event.round, client_id] = client.plan
        elif isinstance(event, ZoneOpened) and event.block.values is not None:
            group, zone = self._groups.get(event.group, []), event.block.zone
            along = self._opened.setdefault(zone, np.zeros(len(self.ids)))
            for client_id in group:
                if client_id in self._clients:  # of a mean; times the clients it is of the size of an upload
                    along[self._number[client_id]] += len(group) * self.along(event.round, client_id, event.block)

    def along(self, round: int, client_id: int, block: Block) -> float:
        """The component of plain values along a canary's direction; 0 if their positions are unknown."""
        placed = self._placed(round, client_id, block)
        return 0.0 if placed is None else float(placed[2] @ self.direction(client_id)[placed[1]])

    def along_models(self) -> NDArray[np.float64]:
        """Movement (m,) of the global model along each direction in the whole run; 0 for absent canaries."""
        moved = np.zeros(len(self.ids))
        for client_id, client in self._clients.items():
            difference = client.vector.astype(np.float64) - self.initial
            moved[self._number[client_id]] = difference @ self.direction(client_id)
        return moved

    def along_server(self, uploads: Iterable[tuple[int, int, Mapping[str, Block]]]) -> NDArray[np.float64]:
        """Component (m,) along each canary's direction of what the server can read: its uploads, or sums elsewhere."""
        found, read = np.zeros(len(self.ids)), set[str]()
        for round, client_id, blocks in uploads:
            for block in blocks.values() if client_id in self._number else ():
                if block.values is not None:
                    read.add(block.zone)
                    found[self._number[client_id]] += self.along(round, client_id, block)
        return found + sum(along for zone, along in self._opened.items() if zone not in read)

    def along_differences(self, uploads: Iterable[tuple[int, int, Mapping[str, Block]]]) -> NDArray[np.float64]:
        """Component (m,) along each canary's direction of its readable uploads, less the mean of the other clients'.

        Noise that differs from client to client stays as large; noise from a seed that all clients share is gone.
        """
        found = np.zeros(len(self.ids))
        for round, sent in itertools.groupby(uploads, lambda upload: upload[0]):
            placed = [one for _, client_id, blocks in sent for block in blocks.values()
                      if (one := self._placed(round, client_id, block)) is not None]  # fmt: skip
            total, count = np.zeros(self._size), np.zeros(self._size)
            for _, where, values in placed:
                total[where] += values
                count[where] += 1
            for client_id, where, values in placed if len(placed) > 1 else ():
                if client_id in self._number:
                    others = (total[where] - values) / np.maximum(count[where] - 1, 1)
                    found[self._number[client_id]] += (values - others) @ self.direction(client_id)[where]
        return found

    def _placed(self, round: int, client_id: int, block: Block) -> tuple[int, Any, NDArray[np.float64]] | None:
        """The client, and the positions and values of a block; None if either is unknown."""
        plan = self.plans.get((round, client_id))
        if block.values is None or (block.positions is None and plan is None):
            return None
        where: Any = plan.where(block.zone) if block.positions is None and plan is not None else block.positions
        return client_id, where, block.mean().astype(np.float64)

    def along_sums(self, sealed: Set[str]) -> NDArray[np.float64]:
        """Component (m,) along each direction of the opened sums of the sealed zones, as clients adopt them."""
        opened = (along for zone, along in self._opened.items() if zone in sealed)
        return sum(opened, np.zeros(len(self.ids)))

    def replaced(self, recipe: Recipe, catalog: Catalog) -> Replaced:
        """The same trainer, except that canary clients learn what `train` says."""
        base: Any = catalog.groups["trainer"][recipe.train.use].load()

        canaries = self

        def train(self: Any, client: Client, facts: Facts) -> dict[str, float]:
            if canaries.train(client, facts):
                return {"loss": 0.0}
            numbers: dict[str, float] = base.train(self, client, facts)
            return numbers

        return {("trainer", recipe.train.use): class_with(base, train=train)}


Replaced = Mapping[tuple[str, str], type]
"""The classes that replace those of the catalog in an audit, by group and name."""


def class_with(base: Any, **members: Any) -> type:
    """A subclass of a component that is otherwise unchanged, so its declarations still hold."""
    stated = {name: getattr(base, name) for name in ("round_release", "release_problem") if hasattr(base, name)}
    about = {"__module__": base.__module__, "__doc__": base.__doc__}
    made: type = type(base.__name__, (base,), {**about, **stated, **members})
    return made


def stream_of(seed: int, *purpose: Any) -> np.random.Generator:
    """Random numbers for one purpose of an audit."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big"))


def added(start: NDArray[np.float32], blocks: Mapping[str, Block], plan: Plan | None) -> NDArray[np.float32]:
    """A model, moved by those blocks of an upload that can be read."""
    moved = start.copy()
    for block in blocks.values():
        where: Any = block.positions if block.positions is not None else plan and plan.where(block.zone)
        if block.values is not None and where is not None:
            moved[where] += block.mean()
    return moved

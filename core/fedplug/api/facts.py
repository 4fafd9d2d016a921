"""The public facts of a round: the one thing from which the operations on a zone's values follow.

There is no party in them, and no way to one. What the server finds out becomes a fact by `cohort.publish`, which every
party of the group and the ledger hear. So all parties have the same operations, by construction.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np

from fedplug.api import codec
from fedplug.api.blocks import Layout, Plan, unchangeable
from fedplug.api.data import Judge, PublicData
from fedplug.api.streams import stream

T = TypeVar("T")
NOTHING: Mapping[Any, Any] = MappingProxyType({})
Snapshots = dict[int, dict[str, dict[str, Any]]]
"""By round, what components had published by then: by name of the component."""


@runtime_checkable
class Negotiates(Protocol):
    """A component by which clients get their plans: the role `Negotiation`."""

    plans: Any
    negotiate_mask: Any


@runtime_checkable
class PlansInPublic(Negotiates, Protocol):
    """One whose plans follow from facts: the role `PublicPlan`."""

    plan: Any
    planned: Callable[[Facts], Plan | None]


class Fresh(Mapping[str, Any]):
    """Components by name, each built anew from its options when it is first asked for.

    A hook of facts runs on one that no party has had in hand, so that nothing which a function kept on itself reaches
    it.

    Args:
        makers: by name, what builds it.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers, self._made = makers, dict[str, Any]()

    def anew(self) -> Fresh:
        """The same components, none of which is made yet."""
        return Fresh(self._makers)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


@dataclasses.dataclass(frozen=True, eq=False)
class Facts:
    """The public facts of a round: the same at every party of a group.

    Attributes:
        round: 0-based round number (people are shown `round + 1`); -1 is the set-up.
        rounds: how many rounds are planned, T.
        layout: where parameters live in the flat vector; empty before a model is known.
        zones: the zone names of this recipe, in label order.
        num_clients: K, all clients of the run.
        min_clients: the fewest updates a sum may hold.
        seed: of the recipe.
        digest: of the resolved recipe.
        components: every component of the recipe by name, as its options make it.
        public: examples that everybody has, where the recipe names some; None at the key server.
        chains: for each zone that is sent, the links that its values pass, in order, with any components; see `links`.
        published: what components have published so far, by name (`cohort.publish`); see `of`.
    """

    round: int
    rounds: int
    layout: Layout
    zones: tuple[str, ...]
    num_clients: int
    min_clients: int
    seed: int
    digest: str
    components: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    public: PublicData | None = None
    chains: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    published: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    _memo: dict[Any, Any] = dataclasses.field(default_factory=dict, repr=False)  # of all rounds of a run
    _kept: dict[str, Any] = dataclasses.field(default_factory=dict, init=False, repr=False)

    @functools.cached_property
    def links(self) -> Mapping[str, tuple[Any, ...]]:
        """For each zone that is sent, the links that its values pass (`fedplug.api.links`), with these components."""
        made = {link.name: self.components.get(link.name, link.component) for c in self.chains.values() for link in c}
        return {
            zone: tuple(dataclasses.replace(link, component=made[link.name]) for link in chain)
            for zone, chain in self.chains.items()
        }

    def of(self, component: Any) -> Mapping[str, Any]:
        """What a component has published by now, by the names that it gave; empty before it has published anything."""
        told = self.published.get(component if isinstance(component, str) else component.name, NOTHING)
        return {name: _copied(value) for name, value in told.items()}

    def at(self, round: int) -> Facts:
        """The same in another round, where no more is published than here."""
        return self if round == self.round else dataclasses.replace(self, round=round)

    def steps(self, zone: str) -> tuple[Any, ...]:
        """The links of a zone with what they do in this round, and what is known before and behind each operation: a
        `fedplug.api.links.Step` each.

        Raises:
            Misplaced: the place of a link is wrong.
        """
        # Of all zones at once: a function that runs in one of them may change the component that gave it.
        steps: Mapping[str, tuple[Any, ...]] = self.once(
            "steps", lambda now: {each: links[0].fold(links, now) for each, links in now.links.items() if links}
        )
        return steps.get(zone, ())

    def once(self, what: str, find: Callable[[Facts], T]) -> T:
        """What these facts say, asked for once; before round 1 what holds in it.

        Asked of components that nobody has had in hand, and that nothing leads to: neither these facts, which every
        function is handed, nor what says something else.
        """
        if what not in self._kept:
            now = self.at(max(self.round, 0))
            asked = now.components.anew() if isinstance(now.components, Fresh) else now.components
            self._kept[what] = find(dataclasses.replace(now, components=asked))
        return cast("T", self._kept[what])

    # -- plans that everybody can work out -----------------------------------------------------------------------------

    @property
    def plan(self) -> Plan | None:
        """The plan of this round, where it follows from these facts alone; None where clients negotiate it."""
        if "planner" not in self._memo:  # its name alone: each round asks one that no function has had in hand
            parts = self.components.items()
            self._memo["planner"] = next((name for name, part in parts if isinstance(part, PlansInPublic)), None)
        planner = self._memo["planner"]
        return self.once("plan", lambda now: None if planner is None else now.components[planner].planned(now))

    def sent(self, zone: str) -> bool:
        """Whether clients may send something in this zone in this round."""
        if zone not in self.links:
            return False
        plan = self.plan
        return plan is None or plan.may_hold(zone)

    @property
    def plans_are_public(self) -> bool:
        """Whether the plans of all rounds follow from facts alone: not from data, nor from who takes part."""
        return self._schedule[0]

    def times(self, zone: str) -> int:
        """In how many rounds of the run clients may send something in this zone; at least 1."""
        return max(1, self._schedule[1].get(zone, [0])[-1])

    def turn(self, zone: str) -> int:
        """In how many rounds before this one they may have done so."""
        turns = self._schedule[1].get(zone)
        return turns[min(max(0, self.round), self.rounds)] if turns else 0

    @property
    def _schedule(self) -> tuple[bool, dict[str, list[int]]]:
        """Whether the plans of all rounds are public; by zone, in how many rounds before each something may be sent."""
        key = "schedule", self.layout, self._published_digest
        if key not in self._memo:
            parts = (part for part in self.components.values() if isinstance(part, Negotiates))
            fixed = any(part.plans.fixed for part in parts)
            each = [
                (now.plan is not None, [now.sent(zone) for zone in self.links])
                for now in map(self.at, range(1 if fixed else self.rounds))
            ] * (self.rounds if fixed else 1)
            sent = zip(*(zones for _, zones in each), strict=True)
            turns = {z: [*itertools.accumulate(ever, initial=0)] for z, ever in zip(self.links, sent, strict=False)}
            self._memo[key] = all(public for public, _ in each), turns
        schedule: tuple[bool, dict[str, list[int]]] = self._memo[key]
        return schedule

    # -- the recipe's parts --------------------------------------------------------------------------------------------

    @property
    def descends(self) -> str:
        """The loss of the recipe's task, for `Learns.descends`: `cross_entropy` where it names none."""
        tasks = (part for part in self.components.values() if isinstance(part, Judge))
        return next((task.descends for task in tasks), "cross_entropy")

    @property
    def bare_zones(self) -> tuple[str, ...]:
        """Zones that are sent, and whose sum carries no noise that counts: the model is moved by them as they are."""
        return tuple(zone for zone in self.links if not any(step.after.releases for step in self.steps(zone)[-1:]))

    def component(self, name: str) -> Any:
        """The component of that name.

        Raises:
            KeyError: the recipe has no such component.
        """
        try:
            return self.components[name]
        except KeyError:
            raise KeyError(f"the recipe has no component named {name!r}; it has {sorted(self.components)}") from None

    def rng(self, *purpose: object) -> np.random.Generator:
        """Reproducible stream for this round and purpose."""
        return stream(self.seed, "server", self.round, *purpose)

    def public_rng(self, *purpose: object) -> np.random.Generator:
        """The same for what hides nothing, such as rotations or samples that all parties draw alike."""
        return self.rng("public", *purpose)

    @property
    def _published_digest(self) -> bytes:
        if not self.published:
            return b""
        published = {name: dict(values) for name, values in self.published.items()}
        return hashlib.blake2b(codec.encode(published), digest_size=16).digest()

    @functools.cached_property
    def fingerprint(self) -> bytes:
        """A digest of what was published, of the round and of the recipe: travels with each upload, so that a server
        which publishes one thing to one client and another to the next is found out.
        """
        told = f"{self.digest} {self.round} ".encode() + self._published_digest
        return hashlib.blake2b(told, digest_size=8).digest()


def _copied(value: Any) -> Any:
    """Plain data anew, so that nobody changes what is public for others; of arrays, one that nobody can change."""
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(each) for each in value] if isinstance(value, list) else tuple(map(_copied, value))
    return unchangeable(value) if isinstance(value, np.ndarray) else value


def published_to(published: Mapping[str, Snapshots], group: str) -> Snapshots:
    """What components have made public to a group, by round; before it was formed, to all."""
    return published.get(group, published.get("all", {}))


def in_force(published: Snapshots, round: int) -> Mapping[str, Mapping[str, Any]]:
    """What had been published by a round, with what was published in it."""
    rounds = [each for each in published if each <= round]
    return published[max(rounds)] if rounds else NOTHING


def with_published(published: Snapshots, round: int, name: str, values: Mapping[str, Any]) -> Snapshots:
    """The snapshots with what a component publishes in a round, and the one before it: adopting a sum, or charging for
    it, needs the facts of its round, and those of earlier rounds are never asked for.
    """
    before = max((each for each in published if each < round), default=None)
    kept = {} if before is None else {before: published[before]}
    in_all = {each: dict(told) for each, told in in_force(published, round).items()}
    return {**kept, round: {**in_all, name: dict(values)}}

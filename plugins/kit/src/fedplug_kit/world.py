"""A small federation around one component: a recipe that uses it, and real parties in this process."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from fedplug.api.blocks import RETAINED
from fedplug.api.errors import FedplugError, RecipeError
from fedplug.api.events import Events, Note
from fedplug.api.roles import (
    Aggregator,
    Component,
    Extension,
    Groups,
    ModelSource,
    Negotiation,
    Opener,
    Protector,
    Scorer,
    Sealer,
    Trainer,
)
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.privacy.charging import ledger_of
from fedplug.privacy.views import PLAIN_VALUES
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.composition import Composition, vars_of
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost, KeyServerHost
from fedplug.round.protocol import Protocol
from fedplug.round.steps import needs_key_server
from fedplug.round.world import load_data
from fedplug.runs.archive import Bookkeeping
from fedplug.wire.record import Wire

from fedplug_kit.parts import PARTS, Seen, Spy

if TYPE_CHECKING:
    from fedplug.api.links import Step
    from fedplug.api.roles import Component

CLIENTS, ROUNDS = 4, 2
_BEFORE: tuple[list[Any], ...] = ([], [{"use": "kit.clip"}], [{"use": "kit.clip", "order": 1}])
"""Operations that a link may need before it: nothing, or a clip in one of the norms."""

_WRONG = "dropped out", "is skipped", "ended with different models"
"""Phrases in the notes of failed runs; parties of the kit do not fail by themselves."""


class Notes:
    """Collects the notes of a run."""

    def __init__(self, events: Events) -> None:
        self.notes: list[str] = []
        events.subscribe(Note, lambda event: self.notes.append(event.text))


@dataclasses.dataclass(eq=False)
class World:
    """A finished run.

    Attributes:
        protocol: with its server, ledger and composition.
        engine: with all parties.
        seen: the operations of every link, each time it was asked.
        problems: the problems, as sentences.
    """

    protocol: Protocol
    engine: LocalEngine
    seen: list[Seen]
    problems: list[str]

    def steps(self, name: str, hook: str) -> list[Step]:
        """The server's links of the component for a hook, in the current round."""
        facts = self.protocol.server.facts
        facts = dataclasses.replace(facts, round=min(facts.round, facts.rounds - 1))
        steps = (step for zone in facts.links for step in facts.steps(zone))
        return [step for step in steps if (step.link.name, step.link.hook) == (name, hook)]

    def steps_at(self, step: Step, client_id: int) -> Step | None:
        """A client's copy of the same link, in the current round."""
        facts = list(self.clients.clients.values())[client_id].facts
        steps = dataclasses.replace(facts, round=min(facts.round, facts.rounds - 1)).steps(step.link.zone)
        return next((s for s in steps if (s.link.name, s.link.hook) == (step.link.name, step.link.hook)), None)

    def enter(self, round: int) -> None:
        """Enters a round by hand: all parties are in it, and only its preparation has happened."""
        self.protocol.begin(round, "upload")
        facts = self.protocol.context(round)
        for client in self.clients.clients.values():
            self.clients._at_round(client, round)
        preparing = [one for one in self.protocol.composition.components.values() if prepares(one)]
        if preparing:
            cohort = self.protocol.cohort(self.protocol.client_ids)
            for component in preparing:
                component.prepare(cohort, facts)
            cohort.ask(self.protocol.steps.ready)  # delivers queued messages

    @property
    def clients(self) -> ClientHost:
        """The clients."""
        return self.engine.clients

    @property
    def compositions(self) -> list[Composition]:
        """The components of all parties."""
        hosts = [host for host in self.engine.hosts if isinstance(host, KeyServerHost)]
        return [self.protocol.composition, self.clients.composition, *(host.composition for host in hosts)]


@functools.cache
def _installed() -> Catalog:
    return Catalog.discover()


def prepares(component: Component) -> bool:
    """Whether it exchanges keys in every round, which serve for one upload a client."""
    return type(component).prepare is not Component.prepare


def name_of(found: str) -> str:
    """Name of a class that is not installed, in a recipe of the kit; none of the kit's parts has it."""
    name = f"kit.{found.lower()}"
    return f"own.{found.lower()}" if any(name in parts for parts in PARTS.values()) else name


def catalog_with(name: str, found: type, groups: list[str]) -> Catalog:
    """The installed components, the kit's parts and one class under a name."""
    catalog = Catalog(_installed().groups)
    for group, classes in [*PARTS.items(), *((group, {name: found}) for group in groups)]:
        for known, each in classes.items():
            value = f"{each.__module__}:{each.__qualname__}"
            catalog.groups[group].setdefault(known, Entry(known, group, value, "kit", "0", each))
    return catalog


def recipe_around(
    name: str, component: Component, options: Mapping[str, Any], changes: Mapping[str, Any], catalog: Catalog, draw: int
) -> Recipe:
    """A valid recipe that uses the component in each of its roles.

    Raises:
        RecipeError: none of the kit's recipes is valid; `changes` can give what the component needs.
    """
    failed: RecipeError | None = None
    for before in _BEFORE:
        plain = _plain(name, component, dict(options), before, draw) | copy.deepcopy(dict(changes))
        try:
            return Recipe.from_plain(plain, catalog, "kit")
        except RecipeError as error:
            failed = failed or error
    assert failed is not None
    raise failed


def _plain(name: str, component: Component, options: dict[str, Any], before: list[Any], draw: int) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": "kit", "seed": 7, "rounds": ROUNDS, "min_clients": 3,
        "data": {"use": "kit.images", "draw": draw, "clients": CLIENTS, "partition": "kit.in_order"},
        "model": "kit.two_layers",
        "train": "kit.push",
        "score_parameters": ["kit.scores", "kit.layer_scores"],
        "negotiate_mask": {"use": "kit.one_zone", "zone": "clear"},
        "aggregate": "kit.sum",
        "extensions": ["kit.spy"],
    }  # fmt: skip
    # The first use defines it; further ones refer to it.
    uses = iter([{"use": name, **options}])

    def use() -> Any:
        return next(uses, name)

    if isinstance(component, Trainer):
        plain["train"] = use()
    if isinstance(component, Scorer):
        plain["score_parameters"] = [use(), *plain["score_parameters"]]
    if isinstance(component, Groups):
        plain["groups"] = use()
    zones = frozenset({"clear"})
    if isinstance(component, Negotiation):
        plain["negotiate_mask"] = use()
        zones = component.plans.zones
    plain["protect"] = {zone: [] for zone in sorted(zones - {RETAINED})}
    zone = next(iter(plain["protect"]), "clear")
    if isinstance(component, Protector):
        plain["protect"][zone] = [*before, use()]
    if isinstance(component, Opener):
        plain["protect"][zone] = plain["protect"][zone] or before
        plain["postprocess"] = {zone: [use()]}
        if isinstance(component, Sealer):
            plain["postprocess"] = {zone: [name]}
    if isinstance(component, Aggregator):
        plain["aggregate"] = use()
    if isinstance(component, Extension):
        plain["extensions"] = ["kit.spy", use()]
    return plain


def build(recipe: Recipe, catalog: Catalog, data_root: str | None = None) -> tuple[Bookkeeping, LocalEngine, Notes]:
    """Real parties in this process, ready for the set-up, and their books."""
    composition, events = Composition(recipe), Events()
    notes = Notes(events)
    job = Job(recipe.to_plain(), data_root=data_root, key_server=needs_key_server(composition), catalog=catalog)
    engine = LocalEngine(job)
    data, public = load_data(recipe, composition.components, data_root)
    source = composition.part(recipe.model.name, ModelSource)
    model = source.build(data.shape, len(data.classes), recipe.seed, "cpu")
    ledger = ledger_of(recipe, composition, model.layout)
    protocol = Protocol(recipe, composition, engine, model.layout, Wire(keep=True), events, model, public)
    return Bookkeeping(protocol, ledger), engine, notes


def run(recipe: Recipe, catalog: Catalog, *, rebuilt: bool = False, data_root: str | None = None) -> World:
    """Runs a recipe from set-up to end.

    Args:
        recipe: what to run.
        catalog: with its components.
        rebuilt: whether every component is rebuilt before each round, as after a restart.
        data_root: folder of data sets.
    """
    books, engine, notes = build(recipe, catalog, data_root)
    protocol = books.protocol
    world = World(protocol, engine, [], [])
    before, Spy.seen[:] = [_kept(composition) for composition in world.compositions], []
    try:
        protocol.setup()
        for round in range(recipe.rounds):
            if rebuilt:
                _rebuild(world)
            protocol.round(round)
            world.problems += _apart(world, round)
        protocol.finish()
    except FedplugError as error:
        world.problems.append(f"a run of it fails: {error}")
    world.seen = list(Spy.seen)
    world.problems += _changed([] if rebuilt else before, world)
    world.problems += [note for note in notes.notes if any(wrong in note for wrong in _WRONG)]
    remedy = "name the method in Reveals(..., asked=(...))"
    world.problems += [f"component {note}; {remedy}" for note in books.ledger.uncovered if note != PLAIN_VALUES]
    world.problems += [f"{told.zone}: clients {told.reason}" for row in books.rows for told in row.unopened]
    return world


def staged(recipe: Recipe, catalog: Catalog, data_root: str | None = None) -> World:
    """Parties that have finished the set-up and round 1, for rounds entered by hand (`World.enter`).

    Raises:
        FedplugError: the set-up or round 1 fails.
    """
    books, engine, _ = build(recipe, catalog, data_root)
    books.protocol.setup()
    books.protocol.round(0)
    return World(books.protocol, engine, [], [])


def _apart(world: World, round: int) -> list[str]:
    """Finds zones declared as shared whose positions differ between clients of a group.

    Such blocks travel without positions, so a client puts others' values where its own zone is.
    """
    clients = {client.client_id: client for client in world.clients.clients.values()}
    found = []
    for ids in (world.protocol.server.groups or {"all": list(clients)}).values():
        here = [clients[each] for each in ids if clients[each].remembered.protected == round]
        plans = {client.client_id: client.plan for client in here if client.plan is not None}
        for zone in sorted(frozenset().union(*(plan.shared for plan in plans.values())) - {RETAINED}):
            where = {client_id: plan.positions(zone) for client_id, plan in plans.items()}
            first = next(iter(where))
            other = next((each for each in where if not np.array_equal(where[each], where[first])), None)
            if other is not None:
                found.append(
                    f"its plans declare that all clients share zone {zone}, but clients {first} and {other} have it in "
                    "different places; leave it out of Plan.shared and name it in Plans.own"
                )
    return found


def _kept(composition: Composition) -> dict[str, dict[str, Any]]:
    """The state of the components. Their attributes are frozen, but the contents need not be."""
    return {name: {key: _copied(value) for key, value in vars(part).items()}
            for name, part in composition.components.items()}  # fmt: skip


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(inner) for key, inner in value.items()}
    try:
        return copy.deepcopy(value)
    except TypeError:  # a lock or a context of a library: as it is
        return value


def _changed(before: list[dict[str, dict[str, Any]]], world: World) -> list[str]:
    """Finds components that keep state inside their attributes, which another process would not have."""
    found = []
    for kept, composition in zip(before, world.compositions, strict=False):
        for name, part in composition.components.items():
            for attribute, value in vars(part).items():
                if attribute not in kept[name] or not _equal(kept[name][attribute], value):
                    found.append(
                        f"component {name} keeps state in {attribute} during a run, which is lost in another process "
                        "or shared by all clients of one; use party.memory(self)"
                    )
    return list(dict.fromkeys(found))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(value, other[key]) for key, value in one.items())
    if type(one) is type(other) and "__eq__" not in vars_of(type(one)):  # equal to itself alone: look inside
        return one is other or _equal(vars(one), vars(other))
    return bool(one == other)


def _rebuild(world: World) -> None:
    """Gives every component of every party the attributes of a new one."""
    for composition in world.compositions:
        fresh = Composition(composition.recipe)
        for name, part in composition.components.items():
            vars(part).clear()
            vars(part).update(vars(fresh.components[name]))

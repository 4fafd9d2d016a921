"""A small federation around one component: a recipe that uses it, and real parties in this process."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedplug.api import roles
from fedplug.api.blocks import RETAINED
from fedplug.api.errors import FedplugError, RecipeError
from fedplug.api.events import Events, Note
from fedplug.engines.base import Job
from fedplug.engines.local import LocalEngine
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.parties import ClientHost, KeyServerHost
from fedplug.round.protocol import Protocol
from fedplug.round.steps import needs_key_server
from fedplug.round.world import load_data
from fedplug_ledger.charging import ledger_of
from fedplug_ledger.wording import PLAIN_VALUES
from fedplug_runs.archive import Bookkeeping
from fedplug_runs.checkpoint import StateFiles
from fedplug_runs.wire_record import Wire

from fedplug_kit.leaves import leaves
from fedplug_kit.parts import PARTS

if TYPE_CHECKING:
    from fedplug.api.facts import Facts
    from fedplug.api.links import Step
    from fedplug.api.parties import Client, Party
    from fedplug.api.roles import Component

CLIENTS, ROUNDS, MOVES = 4, 2, 3
_BEFORE: tuple[list[Any], ...] = ([], [{"use": "std.clip", "norm": 1.0}], [{"use": "std.clip_l1", "norm": 1.0}])
"""Operations that a link may need before it: nothing, or a clip in one of the norms."""

_WRONG = {
    "dropped out": "", "is skipped": "",
    "ended with different models": "; a zone that lies in other places at another client is to be in Plans.own",
}  # fmt: skip
"""Phrases in the notes of failed runs, with a remedy; parties of the kit do not fail by themselves."""


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
        problems: the problems, as sentences.
    """

    protocol: Protocol
    engine: LocalEngine
    problems: list[str]

    def steps(self, name: str, hook: str) -> list[Step]:
        """The server's links of the component for a hook, in the current round."""
        steps = (step for zone in self.facts.links for step in self.facts.steps(zone))
        return [step for step in steps if (step.link.name, step.link.hook) == (name, hook)]

    @property
    def facts(self) -> Facts:
        """The facts of the current round; after the run, of its last one."""
        facts = self.protocol.server.facts
        return facts.at(min(facts.round, facts.rounds - 1))

    def at(self, round: int) -> None:
        """From here on all parties have the facts of this round."""
        self.protocol.facts(round)
        for client in self.clients.clients.values():
            self.clients._at_round(client, round)

    def enter(self, round: int) -> None:
        """Enters a round by hand: all parties are in it, and only its preparation has happened."""
        self.protocol.begin(round, "upload")
        self.at(round)
        if any(map(prepares, self.protocol.composition.components.values())):
            cohort = self.protocol.cohort(self.protocol.client_ids)
            for component in self.protocol.composition.components.values():
                component.prepare(cohort, self.facts)
            cohort.ask(self.protocol.steps.ready)  # delivers queued messages

    def client(self, client_id: int) -> Client:
        """The client of that number."""
        return next(client for client in self.clients.clients.values() if client.client_id == client_id)

    @property
    def clients(self) -> ClientHost:
        """The clients."""
        return self.engine.clients

    @property
    def parties(self) -> list[Party]:
        """All parties."""
        return [self.protocol.server, *self.clients.clients.values(), *(host.party for host in self._key_servers)]

    @property
    def compositions(self) -> list[Composition]:
        """The components of all processes."""
        return [self.protocol.composition, self.clients.composition, *(host.composition for host in self._key_servers)]

    @property
    def _key_servers(self) -> list[KeyServerHost]:
        return [host for host in self.engine.hosts if isinstance(host, KeyServerHost)]


@functools.cache
def _installed() -> Catalog:
    return Catalog.discover()


def prepares(component: Component) -> bool:
    """Whether it exchanges keys in every round, which serve for one upload a client."""
    return type(component).prepare is not roles.Component.prepare


def name_of(found: str) -> str:
    """Name of a class that is not installed, in a recipe of the kit; none of the kit's parts has it."""
    name = f"kit.{found.lower()}"
    return f"own.{found.lower()}" if any(name in parts for parts in PARTS.values()) else name


def catalog_with(name: str, found: type, groups: list[str]) -> Catalog:
    """The installed components, the kit's parts and one class under a name."""
    catalog = Catalog(_installed().groups)
    for group, classes in [*PARTS.items(), *((group, {name: found}) for group in groups)]:
        for known, each in classes.items():
            value, of = f"{each.__module__}:{each.__qualname__}", "kit" if each is found else "fedplug-kit"
            catalog.groups[group].setdefault(known, Entry(known, group, value, of, "0", each))
    return catalog


def recipe_around(
    name: str, component: Component, options: Mapping[str, Any], changes: Mapping[str, Any], catalog: Catalog,
    draw: int,
) -> Recipe:  # fmt: skip
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
        "data": {"use": "kit.images", "draw": draw, "clients": CLIENTS, "partition": "std.iid"},
        "model": "kit.two_layers",
        "train": "kit.push",
        "score_parameters": ["kit.scores", "kit.layer_scores"],
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
    }  # fmt: skip
    # The first use defines it; further ones refer to it.
    uses = iter([{"use": name, **options}])

    def use() -> Any:
        return next(uses, name)

    if isinstance(component, roles.Trainer):
        plain["train"] = use()
    if isinstance(component, roles.Scorer):
        plain["score_parameters"] = [use(), *plain["score_parameters"]]
    if isinstance(component, roles.Groups):
        plain["groups"] = use()
    zones = frozenset({"clear"})
    if isinstance(component, roles.Negotiation):
        plain["negotiate_mask"] = use()
        zones = component.plans.zones
    plain["protect"] = {zone: [] for zone in sorted(zones - {RETAINED})}
    zone = next(iter(plain["protect"]), "clear")
    if isinstance(component, roles.Protector):
        plain["protect"][zone] = [*before, use()]
    if isinstance(component, roles.Opener):
        plain["protect"][zone] = plain["protect"][zone] or before
        plain["postprocess"] = {zone: [use()]}
        if isinstance(component, roles.Closer):
            plain["postprocess"] = {zone: [name]}
    if isinstance(component, roles.Aggregator):
        plain["aggregate"] = use()
    if isinstance(component, roles.Extension):
        plain["extensions"] = [use()]
    return plain


def moved(recipe: Recipe, name: str, catalog: Catalog, *, both: bool = False) -> Recipe | None:
    """The same recipe with a component's zone moving from round to round; None where the component cannot be in one.

    Args:
        recipe: with the component.
        name: of the component.
        catalog: with the component.
        both: whether the links of the zone also work on the rest of the model.
    """
    sections = recipe.protect, recipe.postprocess
    places = (zone for section in sections for zone, uses in section.items() if any(use.name == name for use in uses))
    plain, zone = recipe.to_plain(), next(places, RETAINED)
    rest = f"{zone}_rest"
    plain["rounds"], plain["negotiate_mask"] = MOVES, {"use": "kit.alternating", "zone": zone, "rest": rest}
    for section in ("protect", "postprocess"):
        links = plain[section].get(zone, [])
        plain[section] = {zone: links, rest: [use if isinstance(use, str) else use["use"] for use in links if both]}
    try:
        return Recipe.from_plain(plain, catalog, "kit")
    except RecipeError:
        return None


def build(recipe: Recipe, catalog: Catalog, data_root: str | None = None) -> tuple[Bookkeeping, LocalEngine, Notes]:
    """Real parties in this process, ready for the set-up, and their books."""
    composition, events = Composition(recipe), Events()
    job = Job(recipe.to_plain(), data_root=data_root, key_server=needs_key_server(composition), catalog=catalog,
              store=StateFiles())  # fmt: skip
    engine = LocalEngine(job)
    data, public = load_data(recipe, composition.components, data_root)
    source = composition.part(recipe.model.name, roles.ModelSource)
    model = source.build(data.shape, len(data.classes), recipe.seed, "cpu")
    wire = Wire(keep=True)
    protocol = Protocol(recipe, composition, engine, model.layout, wire, events, model, public)
    return Bookkeeping(protocol, wire, ledger_of(recipe, composition, model.layout)), engine, Notes(events)


def run(books: Bookkeeping, engine: LocalEngine, notes: Notes, *, forgetful: bool = False) -> World:
    """Runs a recipe from set-up to end.

    Args:
        books, engine, notes: what `build` has made of it.
        forgetful: whether every party's cache is empty before each round, as after a restart.
    """
    protocol = books.protocol
    world = World(protocol, engine, [])
    try:
        protocol.setup()
        for round in range(protocol.recipe.rounds):
            for party in world.parties if forgetful else ():
                party.cache.clear()
            protocol.round(round)
        world.problems += _changed(world)
        protocol.finish()
    except FedplugError as error:
        world.problems.append(f"a run of it fails: {error}")
    world.problems += [note + remedy for note in notes.notes for wrong, remedy in _WRONG.items() if wrong in note]
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
    return World(books.protocol, engine, [])


def _changed(world: World) -> list[str]:
    """Finds components that keep state inside their attributes, which another process would not have: those of all
    parties, and those of the facts of a round. Attributes are frozen, but what they hold need not be.
    """
    fresh = Composition(world.protocol.recipe).components
    facts = [world.protocol.server.facts, *(client.facts for client in world.clients.clients.values())]
    held = [*(each.components for each in world.compositions), *(each.components for each in dict.fromkeys(facts))]
    # Those whose functions have run.
    held += [{s.link.name: s.link.component for zone in each.links for s in each.steps(zone)} for each in facts]
    return [
        f"component {name} keeps state in {attribute} during a run, which is lost in another process or shared by all "
        "clients of one; use party.memory(self)"
        for components in held for name, part in components.items() for attribute, value in vars(part).items()
        if leaves(value) != leaves(vars(fresh[name]).get(attribute))
    ]  # fmt: skip

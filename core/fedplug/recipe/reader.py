"""Plain data to components with validated options; collects complaints instead of stopping at the first."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from fedplug.api.base import Component
from fedplug.api.component import Options
from fedplug.api.errors import PluginError
from fedplug.api.role_table import ROLES
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.option_errors import closest, explain
from fedplug.recipe.parts import CHAINS, LISTS, SECTIONS, DataUse, General, Use, zone_order
from fedplug.recipe.sections import Section, list_model, unknown
from fedplug.recipe.sections import load as load_section
from fedplug.recipe.yaml_source import KeyPath, Source

if TYPE_CHECKING:
    from fedplug.recipe.recipe import Recipe

REQUIRED = ("data", "model", "train", "negotiate_mask", "protect", "aggregate")
_MACHINE = ("engine", "workers", "device", "output", "record_wire")  # people look for these in the recipe
_RESERVED = ("use", "name", "clients", "public", "partition")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_ZONE = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass
class Draft:
    """What could be read of a recipe that may hold mistakes; the cross rules work on it.

    Attributes:
        uses: every place whose component is known; `options` is None where they are invalid.
        groups: the group of components that each place draws from, also where it refers to one of another group.
        chains: for `protect` and `postprocess`, each zone's places; empty chains included.
        classes: the class of each component by instance name, where it could be imported.
        general: the general keys, if valid.
        unreadable: zones with a link that is no known component; rules about their chains cannot be judged.
        clients: of `data`, if valid.
        sections: those that plugins offer and that are valid by themselves; those that say nothing are left out.
        recipe: the recipe, if nothing was wrong so far.
    """

    uses: list[Use]
    groups: dict[KeyPath, str]
    chains: dict[str, dict[str, list[Use]]]
    classes: dict[str, type]
    unreadable: set[str]
    general: General | None
    clients: int | None
    sections: dict[str, Section]
    recipe: Recipe | None


def read_draft(source: Source, catalog: Catalog, build: Callable[..., Recipe]) -> Draft:
    """Reads what can be read; the complaints go to `source.problems`.

    Args:
        source: plain data with positions.
        catalog: the components on offer.
        build: makes the recipe of its fields, where nothing was wrong.

    Raises:
        PluginError: a plugin offers a section under a key that is the core's own.
    """
    for key in sorted(catalog.sections.keys() & {*General.model_fields, *SECTIONS, *_MACHINE, "extends"}):
        entry = catalog.sections[key]
        raise PluginError(
            f"plugin {entry.distribution} {entry.version}: {entry.title} ({entry.value}) has the name of a key that "
            "every recipe can have; uninstall it, or let it take another name"
        )
    return _Reader(source, catalog, build).read()


@dataclasses.dataclass
class _Slot:
    """A place of the recipe that holds a component, before it is looked at."""

    path: KeyPath
    group: str
    raw: Any
    place: str  # the zone, or the section: what an automatic second name ends in


class _Reader:
    def __init__(self, source: Source, catalog: Catalog, build: Callable[..., Recipe]) -> None:
        self.source, self.catalog, self.data, self.build = source, catalog, source.data, build
        self.slots: list[_Slot] = []
        self.chains: dict[str, dict[str, list[_Slot]]] = {}
        self.defined: dict[str, Use] = {}
        self.places: dict[KeyPath, Use] = {}
        self.classes: dict[str, type] = {}
        self.unknown: set[str] = set()
        self.offered: dict[str, type[Section]] = {}

    def read(self) -> Draft:
        general = self.general()
        self.load_sections()
        self.find_slots()
        clients, public = self.clients(), self.public()
        plain = {key: self.section_options(key, found) for key, found in self.offered.items()}
        self.define()
        self.refer()
        built = {key: self.section(key, *given) for key, given in plain.items() if given is not None}
        sections = {key: section for key, section in built.items() if section is not None and not section.empty}
        chains = {
            section: {
                zone: [self.places[slot.path] for slot in slots if slot.path in self.places]
                for zone, slots in zones.items()
            }
            for section, zones in self.chains.items()
        }
        uses = [self.places[slot.path] for slot in self.slots if slot.path in self.places]
        complete = general and clients and not self.source.problems
        recipe = self.recipe(general, clients, public, chains, sections) if complete else None  # type: ignore[arg-type]
        unreadable = {
            zone
            for zones in self.chains.values()
            for zone, slots in zones.items()
            if any(slot.path not in self.places for slot in slots)
        }
        groups = {slot.path: slot.group for slot in self.slots}
        return Draft(uses, groups, chains, self.classes, unreadable, general, clients, sections, recipe)

    def general(self) -> General | None:
        """The keys that are no components; also complains about unknown and missing keys."""
        known = [*General.model_fields, *SECTIONS, *self.catalog.sections, "extends"]
        for key in self.data:
            if key in _MACHINE:
                remedy = f"it is a setting of the run, not of the protocol: --{key.replace('_', '-')}"
                self.source.complain((key,), f"unknown key {key!r}; {remedy}", key=True)
            elif key not in known:
                hint = unknown(str(key), self.data[key], known, self.catalog)
                self.source.complain((key,), f"unknown key {key!r}; {hint}", key=True)
        for key in REQUIRED:
            if key not in self.data:
                self.source.complain((), f"the recipe needs {key!r}")
        given = {key: value for key, value in self.data.items() if key in General.model_fields}
        return self.validate(General, given, (), "")  # type: ignore[return-value]

    def validate(self, model: type[BaseModel], data: Any, path: KeyPath, owner: str) -> BaseModel | None:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for inside, on_key, message in explain(error, model, data, owner):
                self.source.complain((*path, *inside), message, key=on_key)
            return None

    def load_sections(self) -> None:
        """Imports the classes of the plugins' sections that the recipe has; null and [] stand for none."""
        for key, entry in sorted(self.catalog.sections.items()):
            if self.data.get(key) not in (None, [], ()):
                try:
                    self.offered[key] = load_section(entry)
                except PluginError as error:
                    self.source.complain((key,), str(error), key=True)

    def section_options(self, key: str, found: type[Section]) -> tuple[type[Section], Any, tuple[Any, ...]] | None:
        """The class of a plugin's section with its options and items; None where something is wrong with them."""
        raw, lists = self.data[key], list(found.lists)
        if found.Item is not None:
            items = self.validate(list_model(key, found), {key: raw}, (), "")
            return None if items is None else (found, found.Options(), tuple(getattr(items, key)))
        if not isinstance(raw, Mapping):
            if not lists:
                self.source.complain((key,), f"{key} must be a mapping of options, not {raw!r:.60}")
                return None
            raw = {lists[0]: raw}
        elif found.example and not raw.get(lists[0]):
            self.source.complain((key,), f"{key} needs {lists[0]!r}, a list such as {found.example}")
        given = {name: value for name, value in raw.items() if name not in lists}
        options = self.validate(found.Options, given, (key,), key)
        return None if options is None else (found, options, ())

    def section(self, key: str, found: type[Section], options: Any, items: tuple[Any, ...]) -> Section | None:
        """A plugin's section; None where one of its components could not be read."""
        uses: dict[str, tuple[Use, ...]] = {}
        for number, name in enumerate(found.lists):
            inside = [(key, name), (key,)] if number == 0 else [(key, name)]  # a plain list is the first one
            slots = [slot for slot in self.slots if slot.path[:-1] in inside]
            places = [self.places.get(slot.path) for slot in slots]
            uses[name] = tuple(place for place in places if place is not None and place.options is not None)
            if len(uses[name]) < len(slots):
                return None
        return found(key, options, items, uses)

    def find_slots(self) -> None:
        """Lists the places that hold components: in the order of the sections, then the plugins'; zones by label."""
        for section, group in SECTIONS.items():
            raw = self.data.get(section)
            if section in CHAINS:
                self.chains[section] = self.zone_slots(section, group, raw)
                self.slots += [slot for slots in self.chains[section].values() for slot in slots]
            elif section in LISTS:
                self.slots += self.list_slots((section,), group, raw, section)
            elif raw is not None:
                self.slots.append(_Slot((section,), group, raw, section))
                if section == "data" and isinstance(raw, Mapping):
                    path = ("data", "partition")
                    if raw.get("partition") is None:
                        self.source.complain(("data",), "data needs 'partition', for instance {use: std.iid}")
                    else:
                        self.slots.append(_Slot(path, "partition", raw["partition"], "partition"))
            elif section in self.data and section in REQUIRED:
                self.source.complain((section,), f"{section} must name a component, not null")
        for section, found in self.offered.items():
            raw = self.data[section]
            if isinstance(raw, Mapping):
                for part, part_group in found.lists.items():
                    self.slots += self.list_slots((section, part), part_group, raw.get(part), part)
            elif found.lists:
                self.slots += self.list_slots((section,), next(iter(found.lists.values())), raw, section)

    def zone_slots(self, section: str, group: str, raw: Any) -> dict[str, list[_Slot]]:
        if raw is None and section not in self.data:
            return {}
        if not isinstance(raw, Mapping):
            example = "{noised: [{use: std.clip, norm: 1.0}], clear: []}"
            self.source.complain((section,), f"{section} must be a mapping from zones to lists, such as {example}")
            return {}
        # A zone of null is as good as absent: a recipe that extends another can drop a zone this way.
        zones = {zone: chain for zone, chain in raw.items() if chain is not None}
        for zone in [zone for zone in zones if not (isinstance(zone, str) and _ZONE.fullmatch(zone))]:
            message = f"zone {zone!r} must be lower-case letters, digits and underscores, starting with a letter"
            self.source.complain((section, zone), message, key=True)
            del zones[zone]
        return {
            zone: self.list_slots((section, zone), group, zones[zone], zone)
            for zone in zone_order(set(zones)) if zone in zones
        }  # fmt: skip

    def list_slots(self, path: KeyPath, group: str, raw: Any, place: str) -> list[_Slot]:
        if raw is None:
            return []
        if not isinstance(raw, (list, tuple)):
            self.source.complain(path, f"{'.'.join(map(str, path))} must be a list: put the component in [ ]")
            return []
        return [_Slot((*path, index), group, item, place) for index, item in enumerate(raw)]

    def clients(self) -> int | None:
        data = self.data.get("data")
        if data is None:
            return None
        if not isinstance(data, Mapping):
            self.source.complain(("data",), "data must be a mapping: {use: ..., clients: ..., partition: {use: ...}}")
            return None
        clients = data.get("clients")
        if "clients" not in data:
            self.source.complain(("data",), "data needs 'clients' (among how many clients it is split)")
        elif isinstance(clients, bool) or not isinstance(clients, int) or clients < 1:
            self.source.complain(("data", "clients"), f"clients={clients!r} must be a whole number >= 1")
        else:
            return clients
        return None

    def public(self) -> int:
        """How many training examples are set aside as public ones."""
        data = self.data.get("data")
        count = data.get("public", 0) if isinstance(data, Mapping) else 0
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            self.source.complain(("data", "public"), f"public={count!r} must be a whole number >= 0")
        elif count and self.data.get("public") is not None:
            message = f"public={count} examples are set aside, but the section public names others; keep one of them"
            self.source.complain(("data", "public"), message)
        else:
            return count
        return 0

    def define(self) -> None:
        """First pass: places written as mappings define components. Written names go before automatic ones."""
        mappings = []
        taken: dict[str, KeyPath] = {}
        for slot in self.slots:
            if isinstance(slot.raw, Mapping):
                use = slot.raw.get("use")
                if not isinstance(use, str) or not use:
                    what = "needs 'use'" if use is None else f"has use={use!r}, which is no name"
                    self.source.complain(slot.path, f"{_dotted(slot.path)} {what}; {self.catalog.offer(slot.group)}")
                    continue
                mappings.append((slot, self.full_name(slot.group, use)))
                name = slot.raw.get("name")
                if name is None:
                    continue
                at = (*slot.path, "name")
                if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "fedplug":
                    self.source.complain(at, f"name={name!r} must be letters, digits and . _ @ - only, and not fedplug")
                elif name in taken:
                    self.source.complain(at, f"name {name!r} is given twice; every component needs its own")
                else:
                    taken[name] = slot.path
            elif not isinstance(slot.raw, str) or not slot.raw:
                message = f"a component is written {{use: name, option: value}} or as a name, not {slot.raw!r}"
                self.source.complain(slot.path, message)
        for slot, use in mappings:
            name = slot.raw.get("name")
            if name is None or taken.get(name) != slot.path:
                name = use if use not in taken else f"{use}@{slot.place}"
                if name in taken:
                    self.source.complain(slot.path, f"another component is named {name} already; add name: to this one")
                    name = f"{name}#{len(taken)}"  # only so that reading can go on
                taken[name] = slot.path
            self.add(slot, use, name, slot.raw)

    def refer(self) -> None:
        """Second pass: plain names refer to a component, or define one with default options."""
        for slot in self.slots:
            if not isinstance(slot.raw, str) or not slot.raw:
                continue
            full = self.full_name(slot.group, slot.raw)
            if {slot.raw, full} & self.unknown:
                continue  # complained about where it is defined
            definition = self.defined.get(slot.raw) or self.defined.get(full)
            if definition:
                fields = {f.name: getattr(definition, f.name) for f in dataclasses.fields(Use)}
                self.places[slot.path] = Use(**(fields | {"is_reference": True, "path": slot.path}))
            else:
                self.add(slot, full, full, {})

    def full_name(self, group: str, use: str) -> str:
        """`dirichlet` means `std.dirichlet`, unless a plugin offers `dirichlet` itself."""
        if "." not in use and not self.catalog.get(group, use) and self.catalog.named(f"std.{use}"):
            return f"std.{use}"
        return use

    def add(self, slot: _Slot, use: str, name: str, raw: Mapping[str, Any]) -> None:
        """Looks a component up, imports it, and validates its options."""
        at = (*slot.path, "use") if raw else slot.path
        entry = self.catalog.get(slot.group, use)
        if entry is None:
            near = [other for other in self.defined if other != use]
            hint = self.catalog.suggest(slot.group, use)
            if not raw and "did you mean" not in hint and (close := closest(use, near)).startswith("did"):
                hint = f"{close.removesuffix('?')} (a component of this recipe)?"
            self.source.complain(at, f"unknown {slot.group} component {use!r}; {hint}")
            self.unknown.add(name)
            return
        # Known from here on, so that references to it are not called unknown because its options are wrong.
        self.places[slot.path] = self.defined[name] = Use(use, name, slot.group, None, False, slot.path)  # type: ignore[arg-type]
        try:
            found = entry.load()
        except PluginError as error:
            self.source.complain(at, str(error))
            return
        if not issubclass(found, Component):
            message = f"plugin {entry.distribution}: {use} is no component; its class must inherit from its role"
            self.source.complain(at, f"{message}, such as fedplug.{ROLES[slot.group].__name__}")
            return
        model: Any = found.Options
        if not (isinstance(model, type) and issubclass(model, Options)):
            message = f"plugin {entry.distribution}: {use} has no nested class Options(fedplug.Options)"
            self.source.complain(at, message)
            return
        self.classes[name] = found
        reserved = _RESERVED if slot.path == ("data",) else _RESERVED[:2]
        if clash := [key for key in reserved if key in model.model_fields]:
            message = f"plugin {entry.distribution}: {use} has an option named {clash[0]}, which recipes reserve"
            self.source.complain(at, message)
            return
        given = {key: value for key, value in raw.items() if key not in reserved}
        options = self.validate(model, given, slot.path, use)
        if options is not None:
            use_here = dataclasses.replace(self.places[slot.path], options=options)
            self.places[slot.path] = self.defined[name] = use_here

    def recipe(
        self,
        general: General,
        clients: int,
        public: int,
        chains: dict[str, dict[str, list[Use]]],
        offered: dict[str, Section],
    ) -> Recipe:
        """Everything was valid: puts the recipe together."""
        data = self.places[("data",)]
        fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(Use)}
        partition = self.places["data", "partition"]
        sections: dict[str, Any] = {"data": DataUse(**fields, clients=clients, partition=partition, public=public)}
        for section in SECTIONS:
            if section in CHAINS:
                sections[section] = {zone: tuple(chain) for zone, chain in chains[section].items()}
            elif section in LISTS:
                sections[section] = tuple(self.places[slot.path] for slot in self.slots if slot.path[0] == section)
            elif section != "data":
                sections[section] = self.places.get((section,))
        return self.build(**dict(general), **sections, sections=offered)


def _dotted(path: KeyPath) -> str:
    return ".".join(map(str, path))

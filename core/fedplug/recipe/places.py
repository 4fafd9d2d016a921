"""The places of a recipe that hold components: where they are, what each defines, and what it refers to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fedplug.api.base import Component
from fedplug.api.component import Options
from fedplug.api.errors import PluginError
from fedplug.api.role_table import ROLES
from fedplug.recipe import own_files
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.option_errors import closest
from fedplug.recipe.parts import CHAINS, LISTS, REQUIRED, SECTIONS, Split, Use, zone_order
from fedplug.recipe.sections import Section
from fedplug.recipe.yaml_source import KeyPath, Source

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_ZONE = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED = ("use", "name")
_RESERVED_OF_DATA = (*_RESERVED, *Split.model_fields, "partition")


@dataclasses.dataclass
class Slot:
    """A place that holds a component, before it is looked at: where it is, the group of components that it draws from,
    and what is written there.
    """

    path: KeyPath
    group: str
    raw: Any

    @property
    def place(self) -> str:
        """The zone, the list or the section: what an automatic second name ends in."""
        return next(key for key in reversed(self.path) if isinstance(key, str))


class Places:
    """The components of a recipe that may hold mistakes; the complaints go to the source.

    Attributes:
        slots: in the order of the sections, then the plugins'; zones by label.
        chains: for `protect` and `postprocess`, the slots of each zone.
        uses: what is known of each place, by path; its `options` are None where they are invalid.
        classes: the class of each component by instance name, where it could be imported.
    """

    def __init__(
        self, source: Source, catalog: Catalog, validate: Callable[[type[BaseModel], Any, KeyPath, str], Any]
    ) -> None:
        self.source, self.catalog, self.data, self.validate = source, catalog, source.data, validate
        self.slots: list[Slot] = []
        self.chains: dict[str, dict[str, list[Slot]]] = {}
        self.uses: dict[KeyPath, Use] = {}
        self.classes: dict[str, type] = {}
        self._defined: dict[str, Use] = {}
        self._unknown: set[str] = set()
        self._files: dict[str, own_files.OwnFile] = {}

    # -- where they are ------------------------------------------------------------------------------------------------

    def find(self, offered: Mapping[str, type[Section]]) -> None:
        """Lists the places of the core's sections, and of those that plugins offer."""
        for section, group in SECTIONS.items():
            raw = self.data.get(section)
            if section in CHAINS:
                self.chains[section] = self._zones(section, group, raw)
                self.slots += [slot for slots in self.chains[section].values() for slot in slots]
            elif section in LISTS:
                self.slots += self._list((section,), group, raw)
            elif raw is not None:
                self.slots.append(Slot((section,), group, raw))
                if section == "data" and isinstance(raw, Mapping):
                    self._partition(raw.get("partition"), raw.get("at", "here"))
            elif section in self.data and section in REQUIRED:
                self.source.complain((section,), f"{section} must name a component, not null")
        for section, section_class in offered.items():
            raw = self.data[section]
            if isinstance(raw, Mapping):
                for part, part_group in section_class.lists.items():
                    self.slots += self._list((section, part), part_group, raw.get(part))
            elif section_class.lists:
                self.slots += self._list((section,), next(iter(section_class.lists.values())), raw)

    def _partition(self, raw: Any, lies: Any) -> None:
        """The place of the partition; there is none where each site has what lies there."""
        path = ("data", "partition")
        if raw is None and lies == "here":
            self.source.complain(("data",), "data needs 'partition', for instance {use: std.iid}")
        elif raw is not None and lies == "sites":
            remedy = "remove partition, or write partition: null over an inherited one"
            self.source.complain(path, f"data at sites is not split: each client has what lies at its site; {remedy}")
        elif raw is not None:
            self.slots.append(Slot(path, "partition", raw))

    def _zones(self, section: str, group: str, raw: Any) -> dict[str, list[Slot]]:
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
            zone: list(self._list((section, zone), group, zones[zone]))
            for zone in zone_order(set(zones)) if zone in zones
        }  # fmt: skip

    def _list(self, path: KeyPath, group: str, raw: Any) -> Iterator[Slot]:
        if isinstance(raw, list | tuple):
            yield from (Slot((*path, index), group, item) for index, item in enumerate(raw))
        elif raw is not None:
            self.source.complain(path, f"{'.'.join(map(str, path))} must be a list: put the component in [ ]")

    # -- what they hold ------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Names the components and validates their options: first the mappings, which define, then plain names."""
        mappings = [slot for slot in self.slots if self._is_mapping(slot)]
        taken = dict(self._written_names(mappings))
        for slot in mappings:
            use, name = self._full_name(slot.group, slot.raw["use"]), slot.raw.get("name")
            if name is None or taken.get(name) != slot.path:
                own = _automatic(use)
                name = own if own not in taken else f"{own}@{slot.place}"
                if name in taken:
                    self.source.complain(slot.path, f"another component is named {name} already; add name: to this one")
                    name = f"{name}#{len(taken)}"  # only so that reading can go on
                taken[name] = slot.path
            self._define(slot, use, name, slot.raw)
        for slot in self.slots:
            if isinstance(slot.raw, str) and slot.raw:
                self._refer(slot)

    def _is_mapping(self, slot: Slot) -> bool:
        """Whether a place is a mapping that names a component; complains where it is neither that nor a name."""
        if not isinstance(slot.raw, Mapping):
            if not isinstance(slot.raw, str) or not slot.raw:
                message = f"a component is written {{use: name, option: value}} or as a name, not {slot.raw!r}"
                self.source.complain(slot.path, message)
            return False
        use = slot.raw.get("use")
        if isinstance(use, str) and use:
            return True
        what = "needs 'use'" if use is None else f"has use={use!r}, which is not a name"
        dotted = ".".join(map(str, slot.path))
        self.source.complain(slot.path, f"{dotted} {what}; {self.catalog.offer(slot.group)}")
        return False

    def _written_names(self, mappings: list[Slot]) -> Iterator[tuple[str, KeyPath]]:
        """The names that people gave, which go before automatic ones, with the first place of each."""
        taken = set()
        for slot in mappings:
            name, at = slot.raw.get("name"), (*slot.path, "name")
            if name is None:
                continue
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "fedplug":
                self.source.complain(at, f"name={name!r} must be letters, digits and . _ @ - only, and not fedplug")
            elif name in taken:
                self.source.complain(at, f"name {name!r} is given twice; every component needs its own")
            else:
                taken.add(name)
                yield name, slot.path

    def _refer(self, slot: Slot) -> None:
        """A plain name refers to a component, or defines one with default options."""
        full = self._full_name(slot.group, slot.raw)
        name = _automatic(full)
        if {slot.raw, name} & self._unknown:
            return  # complained about where it is defined
        if own_files.is_own(full):
            self._file(slot.path, full, None)  # which may be another one than that of the definition
        if definition := self._defined.get(slot.raw) or self._defined.get(name):
            fields = {field.name: getattr(definition, field.name) for field in dataclasses.fields(Use)}
            self.uses[slot.path] = Use(**(fields | {"is_reference": True, "path": slot.path}))
        else:
            self._define(slot, full, name, {})

    def _full_name(self, group: str, use: str) -> str:
        """`dirichlet` means `std.dirichlet`, unless a plugin offers `dirichlet` itself."""
        if "." not in use and not self.catalog.get(group, use) and self.catalog.named(f"std.{use}"):
            return f"std.{use}"
        return use

    def _define(self, slot: Slot, use: str, name: str, raw: Mapping[str, Any]) -> None:
        """Looks a component up, imports it, and validates its options."""
        at = (*slot.path, "use") if raw else slot.path
        entry = None if own_files.is_own(use) else self.catalog.get(slot.group, use)
        if entry is not None and entry.own is not None:  # offered by a file, which the recipe names from here on
            own_files.remember([entry.own])
            use, raw = entry.value, {"sha256": entry.own.sha256, **raw}
        reserved = _RESERVED_OF_DATA if slot.path == ("data",) else _RESERVED
        in_file = own_files.is_own(use)
        if in_file:
            full, reserved, whose = own_files.parts(use)[0], (*reserved, "sha256"), use
        elif entry is not None:
            full, whose = use, f"plugin {entry.distribution}: {use}"
        else:
            self.source.complain(at, f"unknown {slot.group} component {use!r}; {self._hint(slot.group, use, not raw)}")
            self._unknown.add(name)
            return
        # Known from here on, so that references to it are not called unknown because its options are wrong.
        known = self.uses[slot.path] = self._defined[name] = Use(full, name, slot.group, None, False, slot.path)  # type: ignore[arg-type]
        own = self._file(at, use, raw.get("sha256")) if in_file else None
        if in_file and own is None:
            return
        try:
            component_class: Any = own_files.component(own, full, slot.group) if own else entry and entry.load()
        except PluginError as error:
            self.source.complain(at, str(error))
            return
        if problem := _unusable(component_class, slot.group, reserved):
            self.source.complain(at, f"{whose} {problem}")
            return
        self.classes[name] = component_class
        given = {key: value for key, value in raw.items() if key not in reserved}
        options = self.validate(component_class.Options, given, slot.path, full)
        known = dataclasses.replace(known, options=options, own=own, made_of=component_class if own else None)
        self.uses[slot.path] = self._defined[name] = known

    def _hint(self, group: str, use: str, plain: bool) -> str:
        """What may have been meant by an unknown component; a plain name may refer to one of this recipe."""
        hint = self.catalog.suggest(group, use)
        if plain and "did you mean" not in hint:
            near = closest(use, [other for other in self._defined if other != use])
            if near.startswith("did"):
                return f"{near.removesuffix('?')} (a component of this recipe)?"
        return hint

    def _file(self, at: KeyPath, use: str, sha256: Any) -> own_files.OwnFile | None:
        """The file that is named there; None after a complaint."""
        # Where it is written, which may be the recipe that this one extends, and then where the recipe is.
        folders = [Path(place).parent for place in (self.source.where(at).origin, self.source.origin)]
        try:
            own = own_files.read(use, folders, None if sha256 is None else str(sha256))
        except PluginError as error:
            self.source.complain(at, str(error))
            return None
        if self._files.setdefault(own.name, own) == own:
            return own
        self.source.complain(at, f"two files of this recipe are named {own.name} and differ; rename one of them")
        return None


def _automatic(use: str) -> str:
    """What an instance is called whose name is not written."""
    return own_files.parts(use)[1] if own_files.is_own(use) else use


def _unusable(component_class: type, group: str, reserved: tuple[str, ...]) -> str:
    """Why a class cannot stand in a recipe; empty if it can."""
    if not issubclass(component_class, Component):
        return f"is not a component; its class must inherit from its role, such as fedplug.{ROLES[group].__name__}"
    model: Any = component_class.Options
    if not (isinstance(model, type) and issubclass(model, Options)):
        return "has no nested class Options(fedplug.Options)"
    clash = [key for key in reserved if key in model.model_fields]
    return f"has an option named {clash[0]}, which recipes reserve" if clash else ""

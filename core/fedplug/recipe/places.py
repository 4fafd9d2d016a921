"""The places of a recipe that hold components: where they are, what each defines, and what it refers to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedplug.api.base import Component
from fedplug.api.component import Options
from fedplug.api.errors import PluginError
from fedplug.api.role_table import ROLES
from fedplug.recipe import own_files
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.option_errors import closest, validated
from fedplug.recipe.parts import OF_DATA, SECTIONS, Use, leaves, mapped, zone_order
from fedplug.recipe.yaml_source import KeyPath, Source

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_ZONE = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED = ("use", "name")


@dataclasses.dataclass(frozen=True)
class Place:
    """A place that holds a component: where it is, the group that it draws from, and what is written there."""

    path: KeyPath
    group: str
    raw: Any


class Places:
    """The components of a recipe that may hold mistakes; the complaints go to the source.

    Attributes:
        found: for each section that is there a place, a list of places, or a list for each zone; zones by label. The
            partition counts as a section.
    """

    def __init__(self, source: Source, catalog: Catalog) -> None:
        self.source, self.catalog, self.data = source, catalog, source.data
        self.found: dict[str, Any] = {}
        self._uses: dict[KeyPath, Use] = {}
        self._defined: dict[str, Use] = {}
        self._unknown: set[str] = set()
        self._files: dict[str, own_files.OwnFile] = {}

    def known(self, section: str) -> Any:
        """A section with what is known of each place; None: not its component."""
        return mapped(self.found[section], lambda place: self._uses.get(place.path))

    # -- where they are ------------------------------------------------------------------------------------------------

    def find(self) -> None:
        """Finds the places of the core's sections."""
        for section, form in SECTIONS.items():
            raw = self.data.get(section)
            if form.holds == "zones":
                self.found[section] = self._zones(section, form.group, raw)
            elif form.holds == "list":
                self.found[section] = self.listed((section,), form.group, raw)
            elif raw is not None:
                self.found[section] = Place((section,), form.group, raw)
                if section == "data" and isinstance(raw, Mapping):
                    self.found["partition"] = self._partition(raw.get("partition"), raw.get("at", "here"))
            elif section in self.data and form.required:
                self.source.complain((section,), f"{section} must name a component, not null")

    def listed(self, path: KeyPath, group: str, raw: Any) -> list[Place]:
        """The places of what is written at `path`."""
        if isinstance(raw, list | tuple):
            return [Place((*path, index), group, item) for index, item in enumerate(raw)]
        if raw is not None:
            self.source.complain(path, f"{'.'.join(map(str, path))} must be a list: put the component in [ ]")
        return []

    def _partition(self, raw: Any, lies: Any) -> Place | None:
        """The place of the partition; there is none where each site has what lies there."""
        path = ("data", "partition")
        if raw is None and lies == "here":
            self.source.complain(("data",), "data needs 'partition', for instance {use: std.iid}")
        elif raw is not None and lies == "sites":
            remedy = "remove partition, or write partition: null over an inherited one"
            self.source.complain(path, f"data at sites is not split: each client has what lies at its site; {remedy}")
        elif raw is not None:
            return Place(path, "partition", raw)
        return None

    def _zones(self, section: str, group: str, raw: Any) -> dict[str, list[Place]]:
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
        return {zone: self.listed((section, zone), group, zones[zone]) for zone in zone_order(zones) if zone in zones}

    # -- what they hold ------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Names the components and validates their options: first the mappings, which define, then plain names."""
        places = [*leaves(self.found)]
        mappings = [place for place in places if self._is_mapping(place)]
        taken = dict(self._written_names(mappings))
        for place in mappings:
            use, name = self._full_name(place.group, place.raw["use"]), place.raw.get("name")
            if name is None or taken.get(name) != place.path:
                own = _automatic(use)
                name = own if own not in taken else f"{own}@{_second_name(place.path)}"
                if name in taken:
                    message = f"another component is named {name} already; add name: to this one"
                    self.source.complain(place.path, message)
                    name = f"{name}#{len(taken)}"  # only so that reading can go on
                taken[name] = place.path
            self._define(place, use, name, place.raw)
        for place in places:
            if isinstance(place.raw, str) and place.raw:
                self._refer(place)

    def _is_mapping(self, place: Place) -> bool:
        """Whether a place is a mapping that names a component; complains where it is neither that nor a name."""
        if not isinstance(place.raw, Mapping):
            if not isinstance(place.raw, str) or not place.raw:
                message = f"a component is written {{use: name, option: value}} or as a name, not {place.raw!r}"
                self.source.complain(place.path, message)
            return False
        use = place.raw.get("use")
        if isinstance(use, str) and use:
            return True
        what = "needs 'use'" if use is None else f"has use={use!r}, which is not a name"
        dotted = ".".join(map(str, place.path))
        self.source.complain(place.path, f"{dotted} {what}; {self.catalog.offer(place.group)}")
        return False

    def _written_names(self, mappings: list[Place]) -> Iterator[tuple[str, KeyPath]]:
        """The names that people gave, which go before automatic ones, with the first place of each."""
        taken = set()
        for place in mappings:
            name, at = place.raw.get("name"), (*place.path, "name")
            if name is None:
                continue
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "fedplug":
                self.source.complain(at, f"name={name!r} must be letters, digits and . _ @ - only, and not fedplug")
            elif name in taken:
                self.source.complain(at, f"name {name!r} is given twice; every component needs its own")
            else:
                taken.add(name)
                yield name, place.path

    def _refer(self, place: Place) -> None:
        """A plain name refers to a component, or defines one with default options."""
        full = self._full_name(place.group, place.raw)
        name = _automatic(full)
        if {place.raw, name} & self._unknown:
            return  # complained about where it is defined
        if own_files.is_own(full):
            self._file(place.path, full, None)  # which may be another one than that of the definition
        if definition := self._defined.get(place.raw) or self._defined.get(name):
            refers = dataclasses.replace(definition, is_reference=True, path=place.path, group=place.group)
            self._uses[place.path] = refers
        else:
            self._define(place, full, name, {})

    def _full_name(self, group: str, use: str) -> str:
        """`dirichlet` means `std.dirichlet`, unless a plugin offers `dirichlet` itself."""
        if "." not in use and not self.catalog.get(group, use) and self.catalog.named(f"std.{use}"):
            return f"std.{use}"
        return use

    def _define(self, place: Place, use: str, name: str, raw: Mapping[str, Any]) -> None:
        """Looks a component up, imports it, and validates its options."""
        at = (*place.path, "use") if raw else place.path
        entry = None if own_files.is_own(use) else self.catalog.get(place.group, use)
        if entry is not None and entry.own is not None:  # offered by a file, which the recipe names from here on
            own_files.remember([entry.own])
            use, raw = entry.value, {"sha256": entry.own.sha256, **raw}
        reserved = (*_RESERVED, *OF_DATA) if place.path == ("data",) else _RESERVED
        in_file = own_files.is_own(use)
        if in_file:
            full, reserved, whose = own_files.parts(use)[0], (*reserved, "sha256"), use
        elif entry is not None:
            full, whose = use, f"plugin {entry.distribution}: {use}"
        else:
            hint = self._hint(place.group, use, not raw)
            self.source.complain(at, f"unknown {place.group} component {use!r}; {hint}")
            self._unknown.add(name)
            return
        # Known from here on, so that references to it are not called unknown because its options are wrong.
        known = self._uses[place.path] = self._defined[name] = Use(full, name, place.group, None, False, place.path)
        own = self._file(at, use, raw.get("sha256")) if in_file else None
        if in_file and own is None:
            return
        try:
            component_class: Any = own_files.component(own, full, place.group) if own else entry and entry.load()
        except PluginError as error:
            self.source.complain(at, str(error))
            return
        if problem := _unusable(component_class, place.group, reserved):
            self.source.complain(at, f"{whose} {problem}")
            return
        given = {key: value for key, value in raw.items() if key not in reserved}
        options = validated(self.source, component_class.Options, given, place.path, full)
        known = dataclasses.replace(known, options=options, own=own, made_of=component_class)
        self._uses[place.path] = self._defined[name] = known

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


def _second_name(path: KeyPath) -> str:
    """The zone, the list or the section: what an automatic second name ends in."""
    return next(key for key in reversed(path) if isinstance(key, str))


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

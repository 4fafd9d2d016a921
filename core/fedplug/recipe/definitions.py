"""What stands at the places of a recipe: what each defines or refers to, its name, class and options."""

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
from fedplug.recipe.option_errors import meant, validated
from fedplug.recipe.parts import OF_DATA, Use, leaves, mapped
from fedplug.recipe.places import Place
from fedplug.recipe.yaml_source import KeyPath, Source

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_RESERVED = ("use", "name")


def defined(source: Source, catalog: Catalog, places: Mapping[str, Any]) -> dict[str, Any]:
    """The places of a recipe, as `places` gives them, with what is known of each in its place; complains to the source.

    None stands where it is not known which component that is; a `Use` is without class or options that are wrong.
    """
    reading = _Reading(source, catalog)
    reading.read([*leaves(places)])
    known: dict[str, Any] = mapped(places, lambda place: reading.uses.get(place.path))
    return known


class _Reading:
    """One pass over the places of a recipe."""

    def __init__(self, source: Source, catalog: Catalog) -> None:
        self.source, self.catalog = source, catalog
        self.uses: dict[KeyPath, Use] = {}
        self._defined: dict[str, Use] = {}
        self._unknown: set[str] = set()
        self._files: dict[str, own_files.OwnFile] = {}

    def read(self, places: list[Place]) -> None:
        """Names the components and validates their options: first the mappings, which define, then plain names."""
        mappings = [place for place in places if self._is_mapping(place)]
        taken = dict(self._written_names(mappings))
        for place in mappings:
            use, name = self._full_name(place.group, place.raw["use"]), place.raw.get("name")
            if not isinstance(name, str) or taken.get(name) != place.path:
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
            self.uses[place.path] = refers
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
        written = str(self.source.where(place.path))
        known = Use(full, name, place.group, None, False, place.path, place=written)
        self.uses[place.path] = self._defined[name] = known
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
        self.uses[place.path] = self._defined[name] = known

    def _hint(self, group: str, use: str, plain: bool) -> str:
        """What may have been meant by an unknown component; a plain name may refer to one of this recipe."""
        hint = self.catalog.suggest(group, use)
        others = [other for other in self._defined if other != use]
        if plain and "did you mean" not in hint and (near := meant(use, others)):
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

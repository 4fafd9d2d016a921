"""Plain data to components with validated options; collects complaints instead of stopping at the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.option_errors import explain
from fedplug.recipe.parts import CHAINS, LISTS, REQUIRED, SECTIONS, DataUse, General, Split, Use
from fedplug.recipe.places import Places
from fedplug.recipe.sections import Section, list_model, unknown
from fedplug.recipe.sections import load as load_section
from fedplug.recipe.yaml_source import KeyPath, Source

if TYPE_CHECKING:
    from fedplug.recipe.recipe import Recipe

_MACHINE = ("engine", "workers", "resident", "timeout", "device", "output", "record_wire")
"""Settings that people look for in the recipe."""


class Draft:
    """What could be read of a recipe that may hold mistakes; the cross rules work on it.

    Args:
        source: plain data with positions; the complaints go to its `problems`.
        catalog: the components on offer.
        build: makes the recipe of its fields, where nothing was wrong.

    Attributes:
        uses: every place whose component is known; `options` is None where they are invalid.
        groups: the group of components that each place draws from, also where it refers to one of another group.
        chains: for `protect` and `postprocess`, each zone's places; empty chains included.
        classes: the class of each component by instance name, where it could be imported.
        general: the general keys, if valid.
        unreadable: zones with a link that is not a known component; rules about their chains cannot be judged.
        clients: of `data`, if valid.
        sections: those that plugins offer and that are valid by themselves; those that say nothing are left out.
        recipe: the recipe, if nothing was wrong so far.

    Raises:
        PluginError: a plugin offers a section under a key that is the core's own.
    """

    def __init__(self, source: Source, catalog: Catalog, build: Callable[..., Recipe]) -> None:
        for key in sorted(catalog.sections.keys() & {*General.model_fields, *SECTIONS, *_MACHINE, "extends"}):
            remedy = "uninstall it, or let it take another name"
            raise PluginError(f"{catalog.sections[key]} has the name of a key that every recipe can have; {remedy}")
        self.source, self.catalog, self.data = source, catalog, source.data
        self.places = places = Places(source, catalog, self._validate)
        self.general, offered = self._general(), self._offered()
        places.find(offered)
        split = self._split()
        plain = {key: self._section_options(key, section_class) for key, section_class in offered.items()}
        places.read()
        built = {key: self._section(key, *given) for key, given in plain.items() if given is not None}
        self.sections = {key: section for key, section in built.items() if section is not None and not section.empty}
        self.classes, self.clients = places.classes, split.clients if split else None
        self.uses = [places.uses[slot.path] for slot in places.slots if slot.path in places.uses]
        self.groups = {slot.path: slot.group for slot in places.slots}
        self.chains: dict[str, dict[str, list[Use]]] = {}
        self.unreadable: set[str] = set()
        for name, zones in places.chains.items():
            known = {zone: [places.uses.get(slot.path) for slot in held] for zone, held in zones.items()}
            self.chains[name] = {zone: [use for use in uses if use is not None] for zone, uses in known.items()}
            self.unreadable |= {zone for zone, uses in known.items() if None in uses}
        valid = self.general and split and not source.problems
        self.recipe = build(**self._fields(split)) if valid and split else None

    def _general(self) -> General | None:
        """The keys that are not components; also complains about unknown and missing keys."""
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
        return self._validate(General, given, (), "")  # type: ignore[return-value]

    def _validate(self, model: type[BaseModel], data: Any, path: KeyPath, owner: str) -> BaseModel | None:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for inside, on_key, message in explain(error, model, data, owner):
                self.source.complain((*path, *inside), message, key=on_key)
            return None

    def _offered(self) -> dict[str, type[Section]]:
        """The classes of the plugins' sections that the recipe has; null and [] stand for none."""
        classes = {}
        for key, entry in sorted(self.catalog.sections.items()):
            if self.data.get(key) not in (None, [], ()):
                try:
                    classes[key] = load_section(entry)
                except PluginError as error:
                    self.source.complain((key,), str(error), key=True)
        return classes

    def _section_options(
        self, key: str, section_class: type[Section]
    ) -> tuple[type[Section], Any, tuple[Any, ...]] | None:
        """The class of a plugin's section with its options and items; None where something is wrong with them."""
        raw, lists = self.data[key], list(section_class.lists)
        if section_class.Item is not None:
            items = self._validate(list_model(key, section_class), {key: raw}, (), "")
            return None if items is None else (section_class, section_class.Options(), tuple(getattr(items, key)))
        if not isinstance(raw, Mapping):
            if not lists:
                self.source.complain((key,), f"{key} must be a mapping of options, not {raw!r:.60}")
                return None
            raw = {lists[0]: raw}
        elif section_class.example and not raw.get(lists[0]):
            self.source.complain((key,), f"{key} needs {lists[0]!r}, a list such as {section_class.example}")
        given = {name: value for name, value in raw.items() if name not in lists}
        options = self._validate(section_class.Options, given, (key,), key)
        return None if options is None else (section_class, options, ())

    def _section(self, key: str, section_class: type[Section], options: Any, items: tuple[Any, ...]) -> Section | None:
        """A plugin's section; None where one of its components could not be read."""
        uses: dict[str, tuple[Use, ...]] = {}
        for number, name in enumerate(section_class.lists):
            inside = [(key, name), (key,)] if number == 0 else [(key, name)]  # a plain list is the first one
            slots = [slot for slot in self.places.slots if slot.path[:-1] in inside]
            places = [self.places.uses.get(slot.path) for slot in slots]
            uses[name] = tuple(place for place in places if place is not None and place.options is not None)
            if len(uses[name]) < len(slots):
                return None
        return section_class(key, options, items, uses)

    def _split(self) -> Split | None:
        """The keys of `data` that are the recipe's own."""
        data = self.data.get("data")
        if not isinstance(data, Mapping):
            if data is not None:
                example = "{use: ..., clients: ..., partition: {use: ...}}"
                self.source.complain(("data",), f"data must be a mapping: {example}")
            return None
        given = {key: data[key] for key in Split.model_fields if key in data}
        split = self._validate(Split, given, ("data",), "data")
        if isinstance(split, Split) and split.public and self.data.get("public") is not None:
            message = f"public={split.public} examples are set aside, but the section public names others"
            self.source.complain(("data", "public"), f"{message}; keep one of them")
        return split  # type: ignore[return-value]

    def _fields(self, split: Split) -> dict[str, Any]:
        """Of the recipe, where everything was valid."""
        uses = self.places.uses
        data = {field.name: getattr(uses["data",], field.name) for field in dataclasses.fields(Use)}
        fields: dict[str, Any] = {**dict(self.general or ()), "sections": self.sections}
        for section in SECTIONS:
            if section in CHAINS:
                fields[section] = {zone: tuple(chain) for zone, chain in self.chains[section].items()}
            elif section in LISTS:
                fields[section] = tuple(use for use in self.uses if use.path[0] == section)
            else:
                fields[section] = uses.get((section,))
        return fields | {"data": DataUse(**data, **dict(split), partition=uses.get(("data", "partition")))}

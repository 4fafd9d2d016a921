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


@dataclasses.dataclass
class Draft:
    """What could be read of a recipe that may hold mistakes; the cross rules work on it.

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


class _Reader:
    def __init__(self, source: Source, catalog: Catalog, build: Callable[..., Recipe]) -> None:
        self.source, self.catalog, self.data, self.build = source, catalog, source.data, build
        self.places = Places(source, catalog, self.validate)

    def read(self) -> Draft:
        general, offered = self.general(), self.offered()
        self.places.find(offered)
        split = self.split()
        plain = {key: self.section_options(key, found) for key, found in offered.items()}
        self.places.read()
        built = {key: self.section(key, *given) for key, given in plain.items() if given is not None}
        sections = {key: section for key, section in built.items() if section is not None and not section.empty}
        slots, uses = self.places.slots, self.places.uses
        chains, unreadable = {}, set()
        for section, zones in self.places.chains.items():
            chains[section] = {zone: [uses[s.path] for s in held if s.path in uses] for zone, held in zones.items()}
            unreadable |= {zone for zone, held in zones.items() if any(slot.path not in uses for slot in held)}
        recipe = None
        if general and split and not self.source.problems:
            recipe = self.recipe(general, split, chains, sections)
        return Draft(
            [uses[slot.path] for slot in slots if slot.path in uses], {slot.path: slot.group for slot in slots}, chains,
            self.places.classes, unreadable, general, split.clients if split else None, sections, recipe,
        )  # fmt: skip

    def general(self) -> General | None:
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
        return self.validate(General, given, (), "")  # type: ignore[return-value]

    def validate(self, model: type[BaseModel], data: Any, path: KeyPath, owner: str) -> BaseModel | None:
        try:
            return model.model_validate(data)
        except ValidationError as error:
            for inside, on_key, message in explain(error, model, data, owner):
                self.source.complain((*path, *inside), message, key=on_key)
            return None

    def offered(self) -> dict[str, type[Section]]:
        """The classes of the plugins' sections that the recipe has; null and [] stand for none."""
        found = {}
        for key, entry in sorted(self.catalog.sections.items()):
            if self.data.get(key) not in (None, [], ()):
                try:
                    found[key] = load_section(entry)
                except PluginError as error:
                    self.source.complain((key,), str(error), key=True)
        return found

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
            slots = [slot for slot in self.places.slots if slot.path[:-1] in inside]
            places = [self.places.uses.get(slot.path) for slot in slots]
            uses[name] = tuple(place for place in places if place is not None and place.options is not None)
            if len(uses[name]) < len(slots):
                return None
        return found(key, options, items, uses)

    def split(self) -> Split | None:
        """The keys of `data` that are the recipe's own."""
        data = self.data.get("data")
        if not isinstance(data, Mapping):
            if data is not None:
                example = "{use: ..., clients: ..., partition: {use: ...}}"
                self.source.complain(("data",), f"data must be a mapping: {example}")
            return None
        given = {key: data[key] for key in Split.model_fields if key in data}
        found = self.validate(Split, given, ("data",), "data")
        if isinstance(found, Split) and found.public and self.data.get("public") is not None:
            message = f"public={found.public} examples are set aside, but the section public names others"
            self.source.complain(("data", "public"), f"{message}; keep one of them")
        return found  # type: ignore[return-value]

    def recipe(
        self, general: General, split: Split, chains: dict[str, dict[str, list[Use]]], offered: dict[str, Section]
    ) -> Recipe:
        """Everything was valid: puts the recipe together."""
        uses = self.places.uses
        data = {field.name: getattr(uses["data",], field.name) for field in dataclasses.fields(Use)}
        sections: dict[str, Any] = {"data": DataUse(**data, **dict(split), partition=uses.get(("data", "partition")))}
        for section in SECTIONS:
            if section in CHAINS:
                sections[section] = {zone: tuple(chain) for zone, chain in chains[section].items()}
            elif section in LISTS:
                sections[section] = tuple(uses[s.path] for s in self.places.slots if s.path[0] == section)
            elif section != "data":
                sections[section] = uses.get((section,))
        return self.build(**dict(general), **sections, sections=offered)

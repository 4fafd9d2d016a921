"""Plain data to components with validated options; collects complaints instead of stopping at the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.definitions import defined
from fedplug.recipe.option_errors import validated
from fedplug.recipe.parts import SECTIONS, DataUse, General, Split, Use, leaves
from fedplug.recipe.places import places
from fedplug.recipe.sections import Section, list_model, unknown
from fedplug.recipe.sections import load as load_section
from fedplug.recipe.yaml_source import Source

_MACHINE = ("engine", "workers", "resident", "timeout", "device", "output", "record_wire")
"""Settings that people look for in the recipe."""


class Draft:
    """What could be read of a recipe that may hold mistakes; the cross rules work on it.

    Args:
        source: plain data with positions; the complaints go to its `problems`.
        catalog: the components on offer.

    Attributes:
        known: for each section, the places whose component is known and None for others, in the section's form.
        uses: those places, in the order of the sections, zones by label, then the plugins'.
        general, split: the general keys, and those of `data` that are the recipe's own; None where they are invalid.
        unreadable: zones with a link that is not a known component; rules about their chains cannot be judged.
        sections: those that plugins offer and that are valid by themselves; those that say nothing are left out.

    Raises:
        PluginError: a plugin offers a section under a key that is the core's own.
    """

    def __init__(self, source: Source, catalog: Catalog) -> None:
        for key in sorted(catalog.sections.keys() & {*General.model_fields, *SECTIONS, *_MACHINE, "extends"}):
            remedy = "uninstall it, or let it take another name"
            raise PluginError(f"{catalog.sections[key]} has the name of a key that every recipe can have; {remedy}")
        self.source, self.catalog, self.data = source, catalog, source.data
        self.general, offered = self._general(), self._offered()
        found = places(source, offered)
        self.split = self._split()
        plain = {key: self._section_options(key, section_class) for key, section_class in offered.items()}
        self.known = defined(source, catalog, found)
        self.uses: list[Use] = [*leaves(self.known)]
        zones = [*self.known["protect"].items(), *self.known["postprocess"].items()]
        self.unreadable = {zone for zone, chain in zones if None in chain}
        built = {key: self._section(key, offered[key], *given) for key, given in plain.items() if given is not None}
        self.sections = {key: section for key, section in built.items() if section is not None and not section.empty}

    def chains(self, section: str) -> dict[str, list[Use]]:
        """Of `protect` or `postprocess`, each zone's places whose component is known."""
        return {zone: [*leaves(chain)] for zone, chain in self.known[section].items()}

    def fields(self) -> dict[str, Any] | None:
        """Of the recipe; None where something is wrong."""
        if self.general is None or self.split is None or self.source.problems:
            return None
        fields = {section: self.known.get(section) for section in SECTIONS}
        data = DataUse(**vars(fields["data"]), **dict(self.split), partition=self.known["partition"])
        return {**dict(self.general), **fields, "data": data, "sections": self.sections}

    # -- keys that are not components ----------------------------------------------------------------------------------

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
        for key, form in SECTIONS.items():
            if form.required and key not in self.data:
                self.source.complain((), f"the recipe needs {key!r}")
        given = {key: value for key, value in self.data.items() if key in General.model_fields}
        general: General | None = validated(self.source, General, given, (), "")
        return general

    def _split(self) -> Split | None:
        """The keys of `data` that are the recipe's own."""
        data = self.data.get("data")
        if not isinstance(data, Mapping):
            if data is not None:
                example = "{use: ..., clients: ..., partition: {use: ...}}"
                self.source.complain(("data",), f"data must be a mapping: {example}")
            return None
        given = {key: data[key] for key in Split.model_fields if key in data}
        split: Split | None = validated(self.source, Split, given, ("data",), "data")
        if split and split.public and self.data.get("public") is not None:
            message = f"public={split.public} examples are set aside, but the section public names others"
            self.source.complain(("data", "public"), f"{message}; keep one of them")
        return split

    # -- sections of plugins -------------------------------------------------------------------------------------------

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

    def _section_options(self, key: str, section_class: type[Section]) -> tuple[Any, tuple[Any, ...]] | None:
        """The options and items of a plugin's section; None where something is wrong with them."""
        raw, lists = self.data[key], list(section_class.lists)
        if section_class.Item is not None:
            items = validated(self.source, list_model(key, section_class), {key: raw}, (), "")
            return None if items is None else (section_class.Options(), tuple(getattr(items, key)))
        if not isinstance(raw, Mapping):
            if not lists:
                self.source.complain((key,), f"{key} must be a mapping of options, not {raw!r:.60}")
                return None
            raw = {lists[0]: raw}
        elif section_class.example and not raw.get(lists[0]):
            self.source.complain((key,), f"{key} needs {lists[0]!r}, a list such as {section_class.example}")
        given = {name: value for name, value in raw.items() if name not in lists}
        options = validated(self.source, section_class.Options, given, (key,), key)
        return None if options is None else (options, ())

    def _section(self, key: str, section_class: type[Section], options: Any, items: tuple[Any, ...]) -> Section | None:
        """A plugin's section; None where one of its components could not be read."""
        known: dict[str, tuple[Any, ...]] = dict.fromkeys(section_class.lists, ()) | self.known[key]
        if any(use is None or use.options is None for uses in known.values() for use in uses):
            return None
        return section_class(key, options, items, known)

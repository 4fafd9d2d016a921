"""Plain data to components with validated options; collects complaints instead of stopping at the first."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fedplug.api.component import File, Options
from fedplug.api.errors import PluginError, cause_of
from fedplug.api.roles import ROLES, Component, DataSource
from fedplug.recipe.catalog import Catalog, NotTrusted, Own, Resolver, service
from fedplug.recipe.composition import instantiate
from fedplug.recipe.parts import OF_DATA, SECTIONS, DataUse, General, Split, Use, leaves, mapped, zone_order
from fedplug.recipe.sections import Section, list_model
from fedplug.recipe.sections import load as load_section
from fedplug.recipe.source import KeyPath, OptionProblem, Problem, Source, closest

_ZONE = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class Place:
    """A place that holds a component: where it is, the group that it draws from, and what is written there."""

    path: KeyPath
    group: str
    raw: Any


def validated(source: Source, model: type[BaseModel], data: Any, path: KeyPath, owner: str) -> Any:
    """The model with this data, which is at `path`; None after complaints to the source. As in `explain`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        for inside, on_key, message in (service("explain") or explain)(error, model, data, owner):
            source.complain((*path, *inside), message, key=on_key)
    except Exception as error:  # of a validator that a plugin has written, over values that it did not expect
        source.complain(path, f"{owner}: the check of its options fails: {cause_of(error)}; write other values")
    return None


def explain(error: ValidationError, model: type[BaseModel], data: Any, owner: str) -> list[OptionProblem]:
    """What validating `data` against `model` raised, as pydantic says it; `owner` is whose options these are."""
    found = error.errors(include_url=False)
    return [OptionProblem(each["loc"], False, ": ".join(filter(None, [owner, each["msg"]]))) for each in found]


def places(source: Source, offered: Mapping[str, type[Section]]) -> dict[str, Any]:
    """The places of a recipe that may hold mistakes; complains to the source about what cannot be any.

    Args:
        source: the recipe.
        offered: the classes of the plugins' sections that it has, by key.

    Returns:
        For each section that is there a place, a list of places, or a list for each zone or name; zones by label. The
        partition of the data follows it, as a separate section.
    """
    found: dict[str, Any] = {}
    for section, form in SECTIONS.items():
        raw = source.data.get(section)
        if form.holds == "zones":
            found[section] = _zones(source, section, form.group, raw)
        elif form.holds == "list":
            found[section] = _list(source, (section,), form.group, raw)
        elif raw is not None:
            found[section] = Place((section,), form.group, raw)
            if section == "data" and isinstance(raw, Mapping):
                found["partition"] = _partition(source, raw.get("partition"), raw.get("at", "here"))
        elif section in source.data and form.required:
            source.complain((section,), f"{section} must name a component, not null")
    return found | {key: _named_lists(source, key, section_class) for key, section_class in offered.items()}


def _list(source: Source, path: KeyPath, group: str, raw: Any) -> list[Place]:
    if isinstance(raw, list | tuple):
        return [Place((*path, index), group, item) for index, item in enumerate(raw)]
    if raw is not None:
        source.complain(path, f"{'.'.join(map(str, path))} must be a list: put the component in [ ]")
    return []


def _partition(source: Source, raw: Any, lies: Any) -> Place | None:
    """There is none where each site has what lies there."""
    path = ("data", "partition")
    if raw is None and lies == "here":
        source.complain(("data",), "data needs 'partition', for instance {use: std.iid}")
    elif raw is not None and lies == "sites":
        remedy = "remove partition, or write partition: null over an inherited one"
        source.complain(path, f"data at sites is not split: each client has what lies at its site; {remedy}")
    elif raw is not None:
        return Place(path, "partition", raw)
    return None


def _zones(source: Source, section: str, group: str, raw: Any) -> dict[str, list[Place]]:
    if raw is None and section not in source.data:
        return {}
    if not isinstance(raw, Mapping):
        example = "{noised: [{use: std.clip, norm: 1.0}], clear: []}"
        source.complain((section,), f"{section} must be a mapping from zones to lists, such as {example}")
        return {}
    # A zone of null is as good as absent: a recipe that extends another can drop a zone this way.
    zones = {zone: chain for zone, chain in raw.items() if chain is not None}
    for zone in [zone for zone in zones if not (isinstance(zone, str) and _ZONE.fullmatch(zone))]:
        message = f"zone {zone!r} must be lower-case letters, digits and underscores, starting with a letter"
        source.complain((section, zone), message, key=True)
        del zones[zone]
    return {zone: _list(source, (section, zone), group, zones[zone]) for zone in zone_order(zones) if zone in zones}


def _named_lists(source: Source, key: str, section_class: type[Section]) -> dict[str, list[Place]]:
    """Of a plugin's section, by the names of its lists; a plain list is the first of them, as is one component."""
    raw, groups, own = source.data[key], section_class.lists, section_class.Options.model_fields
    if isinstance(raw, Mapping) and "use" in raw:
        one = {name: value for name, value in raw.items() if name not in own}
        return {name: [Place((key,), group, one)] for name, group in [*groups.items()][:1]}
    if isinstance(raw, Mapping):
        return {name: _list(source, (key, name), group, raw.get(name)) for name, group in groups.items()}
    return {name: _list(source, (key,), group, raw) for name, group in [*groups.items()][:1]}


_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
_RESERVED = ("use", "name")


def defined(source: Source, catalog: Catalog, places: Mapping[str, Any]) -> dict[str, Any]:
    """The places of a recipe, as `places` gives them, with what is known of each in its place; complains to the source.

    None means that the component is not known; a `Use` lacks a class or options that are wrong.
    """
    reading = _Reading(source, catalog)
    reading.read([*leaves(places)])
    known: dict[str, Any] = mapped(places, lambda place: reading.uses.get(place.path))
    return known


class _Reading:
    """One pass over the places of a recipe."""

    def __init__(self, source: Source, catalog: Catalog) -> None:
        self.source, self.catalog, self.files = source, catalog, catalog.files
        self.uses: dict[KeyPath, Use] = {}
        self._defined: dict[str, Use] = {}
        self._unknown: set[str] = set()
        self._not_run: set[KeyPath] = set()
        self._taken: dict[str, KeyPath] = {}
        self._files: dict[str, Own] = {}

    def read(self, places: list[Place]) -> None:
        """Names the components and validates their options: first the mappings, which define, then plain names."""
        mappings = [place for place in places if self._is_mapping(place)]
        self._take_names(mappings)
        for place in mappings:
            self._mapping(place)
        for place in places:
            if isinstance(place.raw, str) and place.raw:
                self._refer(place)

    def _mapping(self, place: Place) -> None:
        """Names the component that a mapping defines, and defines it."""
        taken = self._taken
        use, name = self._full_name(place.group, place.raw["use"]), place.raw.get("name")
        if not isinstance(name, str) or taken.get(name) != place.path:
            own = _automatic(use, self.files)
            zone_or_section = next(key for key in reversed(place.path) if isinstance(key, str))
            name = own if own not in taken else f"{own}@{zone_or_section}"
            if name in taken:
                message = f"another component is named {name} already; add name: to this one"
                self.source.complain(place.path, message)
                name = f"{name}#{len(taken)}"  # only so that reading can continue
            taken[name] = place.path
        self._define(place, use, name, place.raw)

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

    def _take_names(self, mappings: list[Place]) -> None:
        """Notes the names that people gave, which go before automatic ones, with the first place of each."""
        for place in mappings:
            name, at = place.raw.get("name"), (*place.path, "name")
            if name is None:
                continue
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name == "fedplug":
                self.source.complain(at, f"name={name!r} must be letters, digits and . _ @ - only, and not fedplug")
            elif name in self._taken:
                self.source.complain(at, f"name {name!r} is given twice; every component needs its own")
            else:
                self._taken[name] = place.path

    def _refer(self, place: Place) -> None:
        """A plain name refers to a component, or defines one with default options."""
        full = self._full_name(place.group, place.raw)
        name = _automatic(full, self.files)
        if {place.raw, name} & self._unknown:
            return  # complained about where it is defined
        if self.files.is_own(full):
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
        entry = None if self.files.is_own(use) else self.catalog.get(place.group, use)
        offered, _, thing = use.rpartition(".")
        if offers := entry.own if entry else self.catalog.not_run.get(offered):  # which the recipe names from here on
            self.files.see(offers)
            use, raw = f"{offers.name}:{thing}", {"sha256": offers.sha256, **raw}
        reserved = (*_RESERVED, *OF_DATA) if place.path == ("data",) else _RESERVED
        in_file = self.files.is_own(use)
        if in_file:
            full, reserved, whose = self.files.parts(use)[0], (*reserved, "sha256"), use
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
            component_class: Any = self.files.component(own, full, place.group) if own else entry and entry.load()
        except NotTrusted as error:
            self.source.not_run.append(Problem(self.source.where(at), str(error)))
            self._pass_over(place, name)
            return
        except PluginError as error:
            self.source.complain(at, str(error))
            return
        if problem := _unusable(component_class, place.group, reserved):
            self.source.complain(at, f"{whose} {problem}")
            return
        within = self._within(place, full, component_class.inner, raw)
        given = {key: value for key, value in raw.items() if key not in (*reserved, *component_class.inner)}
        options = validated(self.source, component_class.Options, given, place.path, full)
        files = self._files_of(place, options) if options is not None else None
        if self._not_run.intersection((*place.path, key) for key in component_class.inner):
            self._pass_over(place, name)
        if within is None or files is None:
            return
        options = options.model_copy(update={key: File(file=each.name, sha256=each.sha256) for key, each in files})
        named = tuple(each for _, each in files)
        known = dataclasses.replace(
            known, options=options, own=own, files=named, inner=within, made_of=component_class,
            distribution=entry.distribution if entry and not own else "",
        )  # fmt: skip
        self.uses[place.path] = self._defined[name] = known

    def _pass_over(self, place: Place, name: str) -> None:
        """Leaves a component unknown, since it is code that may not run, or something in it is."""
        del self.uses[place.path]
        self._unknown.add(name)
        self._not_run.add(place.path)

    def _within(
        self, place: Place, full: str, inner: Mapping[str, str], raw: Mapping[str, Any]
    ) -> tuple[tuple[str, Use], ...] | None:
        """The components within one; None where something is wrong with them."""
        for key, group in inner.items():
            inside = Place((*place.path, key), group, raw.get(key))
            if inside.raw is None:
                self.source.complain(place.path, f"{full} needs {key!r}, a component; {self.catalog.offer(group)}")
            elif self._is_mapping(inside):
                self._take_names([inside])
                self._mapping(inside)
            elif isinstance(inside.raw, str) and inside.raw:
                self._refer(inside)
        found = [(key, self.uses.get((*place.path, key))) for key in inner]
        known = tuple((key, use) for key, use in found if use is not None and use.options is not None)
        return known if len(known) == len(found) else None

    def _files_of(self, place: Place, options: Options) -> list[tuple[str, Own]] | None:
        """The files that options name, by option; None after a complaint."""
        named = [(key, value) for key, value in options if isinstance(value, File)]
        found = []
        for key, file in named:
            read = functools.partial(self.files.read_file, Path(file.file), sha256=file.sha256)
            if (own := self._read((*place.path, key), read)) is not None:
                found.append((key, own))
        return found if len(found) == len(named) else None

    def _hint(self, group: str, use: str, plain: bool) -> str:
        """What may have been meant by an unknown component; a plain name may refer to one of this recipe."""
        if (hints := service("hints")) is None:
            return self.catalog.offer(group)
        hint: str = hints.suggest(self.catalog, group, use, [*self._defined] if plain else ())
        return hint

    def _file(self, at: KeyPath, use: str, sha256: Any) -> Own | None:
        """The file that is named there; None after a complaint."""
        return self._read(at, lambda folders: self.files.read(use, folders, None if sha256 is None else str(sha256)))

    def _read(self, at: KeyPath, read: Callable[[list[Path]], Own]) -> Own | None:
        try:
            own = read(self.source.folders(at))
        except PluginError as error:
            self.source.complain(at, str(error))
            return None
        if self._files.setdefault(own.name, own) == own:
            return own
        self.source.complain(at, f"two files of this recipe are named {own.name} and differ; rename one of them")
        return None


def _automatic(use: str, files: Resolver) -> str:
    """What an instance is called whose name is not written."""
    return files.parts(use)[1] if files.is_own(use) else use


def _unusable(component_class: type, group: str, reserved: tuple[str, ...]) -> str:
    """Why a recipe cannot use a class; empty if it can."""
    if not issubclass(component_class, Component):
        return f"is not a component; its class must inherit from its role, such as fedplug.{ROLES[group].__name__}"
    model: Any = component_class.Options
    if not (isinstance(model, type) and issubclass(model, Options)):
        return "has no nested class Options(fedplug.Options)"
    own = [*component_class.inner, *model.model_fields]
    clash = [key for key in own if key in reserved or own.count(key) > 1]
    return f"has an option named {clash[0]}, which recipes reserve" if clash else ""


def _task_of(data: Use | None) -> str:
    """The task that a data set declares, for a recipe that names none; empty where it declares none."""
    if data is None or data.options is None:
        return ""
    try:
        source = instantiate(data)
        return source.declares.task if isinstance(source, DataSource) else ""
    except Exception:  # the rules between the parts say what is wrong with it
        return ""


_MACHINE = ("engine", "workers", "max_clients_in_memory", "threads", "timeout", "device", "output", "record_wire")
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
        if self.known.get("task") is None and "task" not in found and (name := _task_of(self.known.get("data"))):
            self.known |= defined(source, catalog, {"task": Place(("task",), "task", name)})
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
        if self.general is None or self.split is None or self.source.problems or self.source.not_run:
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
                hints, named = service("hints"), str(key)
                hint = closest(named, known)
                if hints is not None:
                    hint = hints.unknown(named, self.data[key], known, self.catalog)
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
        """The classes of the plugins' sections that the recipe has; null and [] mean none."""
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
        elif "use" in raw and lists:
            raw = {name: value for name, value in raw.items() if name in section_class.Options.model_fields}
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

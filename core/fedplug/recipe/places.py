"""Where components stand in a recipe."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from fedplug.recipe.parts import SECTIONS, zone_order
from fedplug.recipe.sections import Section
from fedplug.recipe.yaml_source import KeyPath, Source

_ZONE = re.compile(r"[a-z][a-z0-9_]*")


@dataclasses.dataclass(frozen=True)
class Place:
    """A place that holds a component: where it is, the group that it draws from, and what is written there."""

    path: KeyPath
    group: str
    raw: Any


def places(source: Source, offered: Mapping[str, type[Section]]) -> dict[str, Any]:
    """The places of a recipe that may hold mistakes; complains to the source about what cannot be any.

    Args:
        source: the recipe.
        offered: the classes of the plugins' sections that it has, by key.

    Returns:
        For each section that is there a place, a list of places, or a list for each zone or name; zones by label. The
        partition of the data stands behind it, as a section of its own.
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
    return found | {key: _named_lists(source, key, section_class.lists) for key, section_class in offered.items()}


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


def _named_lists(source: Source, key: str, groups: Mapping[str, str]) -> dict[str, list[Place]]:
    """Of a plugin's section, by the names of its lists; a plain list is the first of them."""
    raw = source.data[key]
    if isinstance(raw, Mapping):
        return {name: _list(source, (key, name), group, raw.get(name)) for name, group in groups.items()}
    return {name: _list(source, (key,), group, raw) for name, group in [*groups.items()][:1]}

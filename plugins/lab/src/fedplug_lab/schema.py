"""JSON schema of a recipe with the installed plugins' options in it, so that editors complete and check recipes."""

from __future__ import annotations

import math
from typing import Any

from fedplug.api.errors import PluginError
from fedplug.api.roles import Component
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.parts import SECTIONS, Form, General, Split
from fedplug.recipe.sections import Section, list_model, load
from fedplug_runs.docstrings import summary
from pydantic import BaseModel

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def recipe_schema(catalog: Catalog) -> tuple[dict[str, Any], list[str]]:
    """Builds the schema.

    Args:
        catalog: the components and sections to include; each is imported.

    Returns:
        The schema as plain JSON data, and one message for each component or section that is left out because it
        cannot be imported.
    """
    definitions: dict[str, Any] = {}
    failures: list[str] = []
    offered: dict[str, type[Section]] = {}
    for key, entry in catalog.sections.items():
        try:
            offered[key] = load(entry)
        except PluginError as error:
            failures.append(str(error))
    inside = [group for found in offered.values() for group in found.lists.values()]
    for group in dict.fromkeys([*(form.group for form in SECTIONS.values()), "partition", *inside]):
        names = []
        for entry in catalog.groups[group].values():
            try:
                definitions[f"{group}:{entry.name}"] = _component(entry, definitions)
                names.append(entry.name)
            except PluginError as error:
                failures.append(str(error))
        definitions[group] = _choice(group, names)
    general = _options(General, "general", definitions)
    sections = {section: _section(form) for section, form in SECTIONS.items()}
    sections |= {key: _offered(key, found, definitions) for key, found in offered.items()}
    named = {"anyOf": [{"type": "string"}, {"type": "object", "required": ["use"]}]}
    alone = {
        "required": [*general["required"], *(section for section, form in SECTIONS.items() if form.required)],
        "properties": {section: named for section, form in SECTIONS.items() if form.required and form.holds == "one"}
        | {
            "data": {
                "type": "object",
                "required": ["use", "clients"],
                "anyOf": [{"required": ["partition"]}, {"required": ["at", "agreed"]}],
            }
        }
        | {key: {"required": _required(found)} for key, found in offered.items()},
    }
    schema = {
        "$schema": _DIALECT,
        "title": "fedplug recipe",
        "description": "The composition of a federated-learning protocol.",
        "type": "object",
        "properties": {
            "extends": {"type": "string", "description": "recipe to start from: a path seen from this file, or a name"},
            **general["properties"],
            **sections,
        },
        "additionalProperties": False,
        # A recipe that extends another may leave out whatever it inherits, even the `use` of a component.
        "if": {"required": ["extends"]},
        "else": alone,
        "$defs": dict(sorted(definitions.items())),
    }
    return _finite(schema), failures


def _component(entry: Entry, definitions: dict[str, Any]) -> dict[str, Any]:
    """The mapping that uses one component."""
    found = entry.load()
    model = found.Options if issubclass(found, Component) else None
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        message = f"plugin {entry.distribution}: {entry.name} is not a component; its class must inherit from its role"
        raise PluginError(message)
    options = _options(model, f"{entry.group}:{entry.name}", definitions)
    properties = {
        "use": {"const": entry.name},
        "name": {"type": "string", "description": "the instance's own name; by default that of the component"},
        **options.get("properties", {}),
    }
    inner = found.inner if issubclass(found, Component) else {}
    properties |= {key: {"$ref": f"#/$defs/{group}"} for key, group in inner.items()}
    required = ["use", *options.get("required", []), *inner]
    if entry.group == "dataset":
        properties |= _options(Split, "split", definitions)["properties"]
        properties["partition"] = {"anyOf": [{"$ref": "#/$defs/partition"}, {"type": "null"}]}  # of sites
    return {
        "type": "object",
        "title": entry.name,
        "description": summary(entry),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _options(model: type[BaseModel], owner: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """An options class as JSON schema; nested classes move to the common definitions under the owner's name."""
    schema = model.model_json_schema(ref_template=f"#/$defs/{owner}:{{model}}")
    for name, nested in schema.pop("$defs", {}).items():
        definitions[f"{owner}:{name}"] = nested
    return schema


def _offered(key: str, found: type[Section], definitions: dict[str, Any]) -> dict[str, Any]:
    """A section that a plugin offers: a list of items, or a mapping, which the first of its lists may replace."""
    owner = f"section {key}"
    if found.Item is not None:
        forms = [_options(list_model(key, found), owner, definitions)["properties"][key]]
    else:
        mapping = _options(found.Options, owner, definitions)
        lists = [{"type": "array", "items": {"$ref": f"#/$defs/{group}"}} for group in found.lists.values()]
        properties = {**mapping.get("properties", {}), **dict(zip(found.lists, lists, strict=True))}
        definitions[owner] = {name: value for name, value in mapping.items() if name != "required"} | {
            "title": key, "properties": properties
        }  # fmt: skip
        one = [{"type": "object", "required": ["use"]}] if lists else []
        forms = [*lists[:1], {"$ref": f"#/$defs/{owner}"}, *one]
    return {"anyOf": [*forms, {"type": "null"}], "description": found.summary()}


def _required(found: type[Section]) -> list[str]:
    """The keys that a section needs where it is a mapping and inherits none from a parent."""
    options = [name for name, field in found.Options.model_fields.items() if field.is_required()]
    return [*options, *list(found.lists)[: bool(found.example)]]


def _choice(group: str, names: list[str]) -> dict[str, Any]:
    """One of the components of a group: a mapping, the name of a component, or, when extending, options alone."""
    by_name = {"type": "string", "description": "a component of this recipe, or one with default options"}
    inherits = {"type": "object", "properties": {"use": False}, "description": "options over those of the parent"}
    options = [{"$ref": f"#/$defs/{group}:{name}"} for name in names]
    own = {"type": "object", "required": ["use"], "properties": {"use": {"type": "string", "pattern": r"\.py:\w+$"}}}
    return {"oneOf": [*options, own, by_name | {"examples": names}, inherits]}


def _section(form: Form) -> dict[str, Any]:
    one: dict[str, Any] = {"$ref": f"#/$defs/{form.group}"}
    if form.holds == "zones":
        chain = {"anyOf": [{"type": "array", "items": one}, {"type": "null"}]}
        return {"type": "object", "additionalProperties": chain, "description": "for each zone, a list in order"}
    if form.holds == "list":
        return {"type": "array", "items": one}
    return {"anyOf": [one, {"type": "null"}]} if not form.required else one


def _finite(value: Any) -> Any:
    """JSON has no infinity: bounds and defaults that are infinite are left out."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items() if not (isinstance(v, float) and not math.isfinite(v))}
    return [_finite(item) for item in value] if isinstance(value, list) else value

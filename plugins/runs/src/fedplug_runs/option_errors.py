"""What pydantic finds wrong with options, in words that carry the value, the rule and the remedy.

The kernel asks `explain`, which is the service `explain`; without it, it says what pydantic says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedplug.recipe.source import OptionProblem, closest, meant
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

_RULES = {
    "greater_than": "> {gt}",
    "greater_than_equal": ">= {ge}",
    "less_than": "< {lt}",
    "less_than_equal": "<= {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "too_short": "at least {min_length} long",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "string_pattern_mismatch": "text of the form {pattern}",
}


def explain(error: ValidationError, model: type[BaseModel], data: Any, owner: str) -> list[OptionProblem]:
    """Complaints about `data`, one for each place, from what validating it against `model` raised; `owner` is whose
    options these are, and empty for the recipe itself.
    """
    of_owner, from_owner = (f" of {owner}", f"{owner}: ") if owner else ("", "")
    messages: dict[tuple[tuple[str | int, ...], bool, str], list[str]] = {}
    for item in error.errors(include_url=False):
        path, value = _inside(item["loc"], data)
        missing = ""  # every missing key is a separate mistake, though all are missing at the same place
        field, around = _around(model, item["loc"])
        if item["type"] == "extra_forbidden":
            path, on_key = item["loc"], True
            message = f"unknown option {item['loc'][-1]!r}{of_owner}; {_hint(item, around)}"
        elif item["type"] == "missing":
            path, on_key, missing = item["loc"][:-1], False, str(item["loc"][-1])
            meaning = f" ({field.description})" if field and field.description else ""
            place = ".".join(map(str, path))  # of options in options
            whose = f"{owner}: {place}" if owner and place else owner or place or "the recipe"
            message = f"{whose} needs {item['loc'][-1]!r}{meaning}"
        elif item["type"] in ("value_error", "assertion_error") and not item["loc"]:
            on_key, message = False, f"{from_owner}{item['ctx']['error']}"
        else:
            on_key, message = False, from_owner + _value_message(item, path, value, field)
        messages.setdefault((tuple(path), on_key, missing), []).append(message)
    # A value that fits no member of a union fails once for each of them.
    return [
        OptionProblem(path, on_key, "; or: ".join(dict.fromkeys(texts)))
        for (path, on_key, _), texts in messages.items()
    ]


def renamed(key: str, model: type[BaseModel]) -> str:
    """The present name of an option that was called `key`; empty where none was.

    A field says so with `json_schema_extra={"formerly": key}`, and of values with `{"renamed": {old: new}}`.
    """
    return next((name for name, field in model.model_fields.items() if _extra(field).get("formerly") == key), "")


def _extra(field: FieldInfo | None) -> Mapping[str, Any]:
    extra = field.json_schema_extra if field else None
    return extra if isinstance(extra, dict) else {}


def _hint(item: Any, around: type[BaseModel]) -> str:
    """What may have been meant by an unknown key."""
    key, value = str(item["loc"][-1]), item["input"]
    if name := renamed(key, around):
        return f"it is now called {name}: write {name}: {value if isinstance(value, str) else _show(value)}"
    return closest(key, around.model_fields)


def _value_message(item: Any, path: tuple[Any, ...], value: Any, field: FieldInfo | None) -> str:
    shown = f"{'.'.join(map(str, path))}={_show(value)}"
    context: Mapping[str, Any] = item.get("ctx", {})
    if item["type"] in ("value_error", "assertion_error"):
        text = str(context["error"])
        # Validators may say all of it themselves: `epsilon=0 must be > 0; to switch the noise off, write noised: []`.
        return text if text.startswith(str(path[-1])) else f"{shown}: {text}"
    if isinstance(value, str) and (now := _extra(field).get("renamed", {}).get(value)):
        return f"{shown} is now called {now}: write {path[-1]}: {now}"
    if item["type"] in _RULES:
        bounds = {key: f"{bound:g}" if isinstance(bound, float) else bound for key, bound in context.items()}
        rule = _RULES[item["type"]].format(**bounds)
        guess = ""
        if item["type"] in ("literal_error", "enum") and isinstance(value, str):
            guess = meant(value, rule.replace("'", "").replace(" or ", ", ").split(", "))
        message = f"{shown} must be {rule}" + (guess and f"; {guess}")
    elif item["type"] == "int_parsing_size":
        message = f"{shown} is too large"
    elif item["type"] in ("tuple_type", "list_type"):
        plain = isinstance(value, str | int | float) and not isinstance(value, bool)
        message = f"{shown} must be a list{f', such as [{value}]' if plain else ''}"
    else:
        text = item["msg"].removeprefix("Input should be ")
        message = f"{shown} must be {text}" if text != item["msg"] else f"{shown}: {text[:1].lower()}{text[1:]}"
    if remedy := _extra(field).get("remedy"):
        return f"{message}; {remedy}"
    return f"{message} ({field.description})" if field and field.description else message


def _show(value: Any) -> str:
    text = {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


def _inside(loc: tuple[Any, ...], data: Any) -> tuple[tuple[Any, ...], Any]:
    """The part of a pydantic location that exists in the data (it also names union members), and the value there."""
    path: list[Any] = []
    for key in loc:
        try:
            data = data[key]
        except (LookupError, TypeError):
            continue
        path.append(key)
    return tuple(path), data


def _nested(annotation: Any) -> type[BaseModel] | None:
    """The options class inside an annotation such as `Sampling | None`, if there is one."""
    from typing import get_args

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for part in get_args(annotation) if (inner := _nested(part))), None)


def _around(model: type[BaseModel], loc: tuple[Any, ...]) -> tuple[FieldInfo | None, type[BaseModel]]:
    """The field that a location is about, the outermost one where that fails, and the options around it."""
    field: FieldInfo | None = None
    here, around = model, model
    for key in loc:
        around = here
        if isinstance(key, str) and key in here.model_fields:
            field = here.model_fields[key]
            here = _nested(field.annotation) or here
    return field, around

"""Records: what fields may hold, when they are made and when they are read.

`Checked` refuses words and numbers when a record is made, `Record` what cannot be when one is read; what arrives from
another party is looked at by the functions on top.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import json
import math
import numbers
import types
from collections.abc import Callable, Mapping, Sequence
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

MOST = 2**64
"""Whole numbers that arrive as a size, a count or a divisor are smaller: no number of a model comes near."""

MOST_EXAMPLES = 2**32
"""Training examples of one client: nobody is believed to have more."""


def shown(value: Any) -> str:
    """A malformed value in a few words; never the value of an array."""
    if isinstance(value, np.ndarray | dict | list) or dataclasses.is_dataclass(value):
        return f"a {type(value).__name__}"
    if isinstance(value, int) and value.bit_length() > 64:  # Python writes no number of more than 4,300 digits
        return f"a whole number of {value.bit_length()} bits"
    return repr(value)[:40]


def one_line(text: str, most: int = 500) -> str:
    """What another party says, as one line without control characters, and no longer than `most`.

    Otherwise its author could clear the terminal or forge lines there, and fill a disk with one reason.
    """
    line = "".join(char if char.isprintable() else " " for char in text[: most + 1]).strip()
    return line if len(text) <= most else f"{line[: most - 3]}..."


def is_count(value: Any) -> bool:
    """Whether this is a whole number, 0 or more, that can count something."""
    return type(value) is int and 0 <= value < MOST


def is_number(value: Any) -> bool:
    """Whether this is a finite number, 0 or more."""
    return is_count(value) or (isinstance(value, float) and 0 <= value < math.inf)


def kind_of(value: Any) -> str:
    """The kind of a value, with its article: `a set`, `an object`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def at_least(least: float, default: Any = dataclasses.MISSING, *, nan: bool = False) -> Any:
    """A number of at least so much, or several; NaN only where that says that it is unknown."""
    rules = {"least": least, "nan": nan}
    return dataclasses.field(metadata=rules) if default is dataclasses.MISSING else dataclasses.field(
        default=default, metadata=rules
    )


def positive(default: Any = dataclasses.MISSING) -> Any:
    """A finite number above 0."""
    return dataclasses.field(default=default, metadata={"positive": True})


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, at_least, positive))
class Checked:
    """Refuses words outside the vocabulary, and numbers that cannot be: no guarantee follows from those. What inherits
    from it is a frozen dataclass.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        dataclasses.dataclass(frozen=True, **options)(cls)

    def __post_init__(self) -> None:
        """Raises ValueError, naming the field, the value and what it must be."""
        kind: type = type(self)
        for name, rule in _rules(kind):
            value = _own(getattr(self, name))
            object.__setattr__(self, name, value)
            if problem := rule(value):
                raise ValueError(f"{kind.__name__}({name}={value!r}): it must be {problem}")


def _own(value: Any) -> Any:
    """A number of numpy, or several, as Python's own: they are told from functions and from tuples by their type."""
    if type(value).__module__ == "numpy" and isinstance(value, numbers.Number):  # numpy need not be there
        return value.item()  # type: ignore[attr-defined]
    if isinstance(value, tuple):
        return tuple(map(_own, value))
    return {key: _own(each) for key, each in value.items()} if type(value) is dict else value


def shared(record: Any, kind: type) -> dict[str, Any]:
    """The fields that a record inherits from `kind`, for another record that inherits them."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(kind)}


@functools.cache
def _rules(kind: type) -> list[tuple[str, Callable[[Any], str]]]:
    """For each field whose type lists words, or is of plain kinds, what tells what is wrong with a value."""
    checks: list[tuple[str, Callable[[Any], str]]] = []
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, parts = hints[field.name], get_args(hints[field.name])
        several = get_origin(hint) is tuple and get_origin(parts[0]) is Literal
        kinds = parts[:1] if several else parts if get_origin(hint) in (types.UnionType, Union) else (hint,)
        words = [word for part in kinds if get_origin(part) is Literal for word in get_args(part)]
        if words:
            checks.append((field.name, functools.partial(_word_problem, words, several, type(None) in kinds)))
        elif plain := _plain_kinds(kinds):
            checks.append((field.name, functools.partial(kind_problem, plain, field.metadata)))
    return checks


_NUMBERS = (float, int)


def _plain_kinds(kinds: Sequence[Any]) -> list[Any]:
    """The kinds of value that a field may hold, where each of them can be looked at; otherwise none."""
    found: list[Any] = []
    for kind in kinds:
        origin, args = get_origin(kind) or kind, get_args(kind)
        several = (origin, args) in ((tuple, (float, ...)), (Mapping, (int, float)))
        if not several and origin not in (*_NUMBERS, bool, str, type(None), collections.abc.Callable):
            return []
        found.append(origin)
    return found


def kind_problem(kinds: Sequence[Any], rules: Mapping[str, Any], value: Any) -> str:
    """What a value should be; empty where it is.

    Args:
        kinds: that it may be: classes, and those of `collections.abc`.
        rules: of its numbers, as `at_least` and `positive` note them; empty: any number.
        value: to look at.
    """
    if any(_is_of(kind, rules, value) for kind in kinds):
        return ""
    if any(_is_of(kind, {}, value) for kind in kinds):  # of the right kind: its numbers are to blame
        kinds = [kind for kind in kinds if kind in _NUMBERS] or [float]
    asked = list(dict.fromkeys(_asked(kind, kinds, rules) for kind in kinds))
    return " or ".join(filter(None, [", ".join(asked[:-1]), asked[-1]]))


def _is_of(kind: Any, rules: Mapping[str, Any], value: Any) -> bool:
    if kind in _NUMBERS:
        of = type(value) is kind or isinstance(value, numbers.Integral if kind is int else numbers.Real)
        return of and _in_range(rules, float(value))
    if kind is collections.abc.Callable:
        return callable(value)
    if kind is bool:
        return type(value).__name__ in ("bool", "bool_")  # that of numpy too, which need not be there
    if not isinstance(value, kind):
        return False
    given = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return all(_is_of(float, rules, each) for each in given)


def _in_range(rules: Mapping[str, Any], value: float) -> bool:
    if rules.get("positive"):
        return 0 < value < math.inf
    if math.isnan(value):
        return not rules or bool(rules["nan"])
    return not rules or value >= rules["least"]


def _asked(kind: Any, kinds: Sequence[Any], rules: Mapping[str, Any]) -> str:
    """A kind in words."""
    if kind in _NUMBERS:
        which = "whole number" if kind is int else "finite number" if rules.get("positive") else "number"
        least = rules.get("least", -math.inf)
        bound = " > 0" if rules.get("positive") else f" >= {least:g}" if least > -math.inf else ""
        return f"a {which}{bound}"
    of = "of them" if any(each in _NUMBERS for each in kinds) else "of numbers"
    words = {
        collections.abc.Callable: "a function", bool: "True or False", str: "a text", tuple: f"a tuple {of}",
        Mapping: f"a dict {of} by client",
    }  # fmt: skip
    return words.get(kind, "None")


def _word_problem(words: Sequence[str], several: bool, may_lack: bool, value: Any) -> str:
    listed = ", ".join(map(repr, words))
    if several:
        return "" if isinstance(value, tuple) and all(one in words for one in value) else f"a tuple of {listed}"
    return "" if value in words or (may_lack and value is None) else f"one of {listed}"


def _spelt(value: Any) -> Any:
    return math.nan if value is None else _SPELT.get(value, value) if isinstance(value, str) else value


# Strict, so that a text is not a number and a float not a count. Keys of dictionaries are not: JSON has texts only.
_SPELT = {"inf": math.inf, "-inf": -math.inf}
Number = Annotated[float, BeforeValidator(_spelt), Field(strict=True)]
"""NaN and infinity included, since a diverged round has a loss of NaN; JSON has neither: null, and `inf` as a text."""
Amount = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(strict=True, ge=0, lt=MOST)]
Text = Annotated[str, Field(strict=True)]


@dataclass_transform()
class Record:
    """What inherits from it is a dataclass that can be written and read; `class Row(Record, frozen=True)`."""

    __pydantic_config__: ClassVar[ConfigDict] = {"extra": "forbid"}
    whole: ClassVar[bool] = False
    """Whether empty fields are written too."""

    def __init_subclass__(cls, **options: Any) -> None:
        dataclasses.dataclass(**options)(cls)

    def to_plain(self, for_json: bool = False) -> dict[str, Any]:
        """Dictionaries, lists, numbers and texts; inverse of `from_plain`.

        Args:
            for_json: write NaN as None, and infinite numbers as `inf` and `-inf`.
        """
        kind: Any = type(self)
        plain: dict[str, Any] = {}
        for name, optional in _fields(kind):
            value = getattr(self, name)
            if not (optional and _is_empty(value)):
                plain[name] = value if type(value) is float and not for_json else _plain(value, for_json)
        return plain

    def to_json(self, indent: int | None = None) -> str:
        """JSON on one line, or indented by this many blanks; inverse of `from_json`."""
        return json.dumps(self.to_plain(for_json=True), indent=indent)

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """Reads what `to_plain` gave.

        Raises:
            ValueError: names the first field that is wrong, its value and the rule.
        """
        return cls._read(lambda adapter: adapter.validate_python(plain))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` gave.

        Raises:
            ValueError: as `from_plain`; or the text is not JSON.
        """
        return cls._read(lambda adapter: adapter.validate_json(text))

    @classmethod
    def _read(cls, read: Any) -> Self:
        kind: Any = cls
        try:
            record: Self = read(_adapter(kind))
        except ValidationError as error:
            first = error.errors()[0]
            where = one_line(".".join(map(str, first["loc"])))  # keys are what somebody sent
            said = first["msg"].partition(" or an instance of")[0]
            rule = str(first["ctx"]["error"]) if first["type"] == "value_error" else said
            if first["type"] not in ("missing", "json_invalid", "value_error"):
                where = f"{where or 'it'} is {shown(first['input'])}"
            raise ValueError(": ".join(filter(None, [where, rule[:1].lower() + rule[1:]]))) from error
        return record


_adapter = functools.cache(TypeAdapter)


@functools.cache
def _fields(kind: Any) -> list[tuple[str, bool]]:
    """The name of each field of a record, and whether it may be left out: it has a default."""
    missing = dataclasses.MISSING
    fields = dataclasses.fields(kind)
    written = [kind.whole or field.default is field.default_factory is missing for field in fields]
    return [(field.name, not always) for field, always in zip(fields, written, strict=True)]


def _is_empty(value: Any) -> bool:
    return value is None or (not value and isinstance(value, dict | list | str))


_AS_THEY_ARE = {float, int, str}
_WITHOUT_NAN = {int, str}


def json_ready(value: Any) -> Any:
    """Plain data and records with `inf` and `-inf` as texts and NaN as None; tuples become lists."""
    return _plain(value, True)


def _plain(value: Any, for_json: bool) -> Any:
    if isinstance(value, Record):
        return value.to_plain(for_json)
    if isinstance(value, dict):
        if not for_json and {*map(type, value.values())} <= _AS_THEY_ARE:
            return dict(value)
        return {key: _plain(inner, for_json) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        if {*map(type, value)} <= _WITHOUT_NAN:  # a thousand clients, in each of their notes
            return list(value)
        return [_plain(inner, for_json) for inner in value]
    if for_json and isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value


def require_kind(call: str, name: str, value: Any, *kinds: Any) -> None:
    """Refuses an argument that has another name as a field, or that is left out of other noise."""
    if problem := kind_problem(kinds, {"least": 0, "nan": False}, value):
        raise ValueError(f"{call}({name}={value!r}): it must be {problem}")


def take_others(operation: Any, name: str, call: str) -> None:
    """Numbers by client come with one for all others; where they name nobody, that is everybody's."""
    value, others = getattr(operation, name), operation.others
    if isinstance(value, Mapping) != (others is not None):
        raise ValueError(f"{call}: numbers by client come with one for all others: {call}({{3: 0.5}}, others=1.0)")
    if strange := [key for key in named_clients(value) if type(key) is not int or key < 0]:
        raise ValueError(f"{call}: client {strange[0]!r} must be a whole number >= 0; clients are numbered from 0")
    if others is not None and not value:
        object.__setattr__(operation, name, others)
        object.__setattr__(operation, "others", None)


def named_clients(value: Any) -> frozenset[int]:
    return frozenset(value) if isinstance(value, Mapping) else frozenset()


def take_numbers(operation: Any, numbers: Any) -> None:
    """Range and step that are not stated are those of the numbers."""
    for name in ("range", "step"):
        if getattr(operation, name) is None:
            object.__setattr__(operation, name, float(getattr(numbers, name)))

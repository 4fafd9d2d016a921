"""Records as plain data and back: what a run writes as JSON, and what parties report with their replies.

A record is a dataclass whose annotations are checked where it is read: a field that is missing, unknown or not of its
type is refused by name. Empty fields that have a default are not written.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import Annotated, Any, ClassVar, Self, dataclass_transform

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from fedplug.api.typed import MOST, one_line, shown


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
        """JSON on one line, or indented by so many blanks; inverse of `from_json`."""
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
            rule = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
            if first["type"] not in ("missing", "json_invalid", "value_error"):
                where = f"{where or 'it'} is {shown(first['input'])}"
            raise ValueError(": ".join(filter(None, [where, rule[:1].lower() + rule[1:]]))) from error
        return record


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@functools.cache
def _fields(kind: Any) -> list[tuple[str, bool]]:
    """Of each field of a record its name, and whether it may be left out: it has a default."""
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

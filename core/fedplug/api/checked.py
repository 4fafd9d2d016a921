"""Records that refuse words and numbers which their fields cannot hold, when they are made."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal, Union, dataclass_transform, get_args, get_origin, get_type_hints


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
    """Refuses words outside the vocabulary, and numbers that cannot be: nothing is promised from those. What inherits
    from it is a frozen dataclass.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        dataclasses.dataclass(frozen=True, **options)(cls)

    def __post_init__(self) -> None:
        """Raises ValueError, naming the field, the value and what it must be."""
        kind: type = type(self)
        for name, rule in _rules(kind):
            value = getattr(self, name)
            if problem := rule(value):
                raise ValueError(f"{kind.__name__}({name}={value!r}): it must be {problem}")


def shared(record: Any, kind: type) -> dict[str, Any]:
    """What a record has of the fields of `kind`, which it inherits: for another record that inherits them."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(kind)}


@functools.cache
def _rules(kind: type) -> list[tuple[str, Callable[[Any], str]]]:
    """For each field whose type lists words, or that has a least value, what tells what is wrong with a value."""
    checks: list[tuple[str, Callable[[Any], str]]] = []
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint, parts = hints[field.name], get_args(hints[field.name])
        several = get_origin(hint) is tuple and get_origin(parts[0]) is Literal
        kinds = parts[:1] if several else parts if get_origin(hint) in (types.UnionType, Union) else (hint,)
        words = [word for part in kinds if get_origin(part) is Literal for word in get_args(part)]
        if words:
            checks.append((field.name, functools.partial(_word_problem, words, several, type(None) in kinds)))
        elif rules := field.metadata:
            least = "least" in rules and functools.partial(_number_problem, rules["least"], rules["nan"])
            checks.append((field.name, least or _not_positive))
    return checks


def _word_problem(words: Sequence[str], several: bool, may_lack: bool, value: Any) -> str:
    listed = ", ".join(map(repr, words))
    if several:
        return "" if isinstance(value, tuple) and all(one in words for one in value) else f"a tuple of {listed}"
    return "" if value in words or (may_lack and value is None) else f"one of {listed}"


def _number_problem(least: float, nan: bool, value: Any) -> str:
    given = value if isinstance(value, tuple) else () if value is None else (value,)
    if all(isinstance(n, numbers.Real) and (float(n) >= least or (nan and math.isnan(n))) for n in given):
        return ""
    return f"a number >= {least:g}"


def _not_positive(value: Any) -> str:
    fits = isinstance(value, numbers.Real) and 0 < float(value) < math.inf
    return "" if fits else "a finite number > 0"

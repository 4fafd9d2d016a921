"""The common properties of all components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fedplug
import numpy as np
import pytest
from fedplug.api.errors import ProtectionError


class Quiet(fedplug.Component):
    """Say nothing.

    At any length.
    """


class Loud(fedplug.Component):
    """Not the text that is shown."""

    class Options(fedplug.Options):
        rate: float = 0.30000000000000004
        word: str | None = None
        steps: int = 3


def test_a_component_says_nothing_unless_its_author_does() -> None:
    quiet = Quiet(Quiet.Options())
    assert quiet.cohort_secret is False
    assert list(quiet.check(None)) == []  # type: ignore[arg-type]
    assert list(quiet.reveals(None)) == []  # type: ignore[arg-type]


def test_the_plan_shows_options_that_are_given_or_else_the_first_line_of_the_docstring() -> None:
    assert Loud(Loud.Options()).describe() == "rate 0.3, steps 3"
    assert Loud(Loud.Options(word="x")).describe() == "rate 0.3, word x, steps 3"
    assert Quiet(Quiet.Options()).describe() == "Say nothing."


def test_a_role_is_one_by_keyword() -> None:
    from fedplug.api import roles as members

    before = list(members._ROLES)
    try:

        class Judge(fedplug.Component, role=True):
            def sentence(self, years: int) -> Mapping[str, float]:
                return {}

        assert members.roles_of(type("Odd", (Judge,), {})) == [Judge, fedplug.Component]
    finally:
        members._ROLES[:] = before


class Keeps(fedplug.Component):
    """Has a list, a dict and a set."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.order, self.places, self.seen = [2, 1], {"a": [1]}, {3}


def test_a_frozen_component_keeps_nothing_and_says_where_to_keep_it() -> None:
    """The clients of a process share it, and a restarted process recreates it."""
    part = Keeps(None)
    part.name = "toy.keeps"
    part.freeze()
    said = r"component toy\.keeps keeps residual on itself, .*; keep it in client\.memory\(self\), or in client\.cache"
    with pytest.raises(ProtectionError, match=said):
        part.residual = 1.0  # type: ignore[attr-defined]
    with pytest.raises(ProtectionError, match="keeps order on itself"):
        part.order = []
    for change in (lambda: part.order.append(3), lambda: part.places.update(b=2), lambda: part.seen.add(4)):
        with pytest.raises(AttributeError):
            change()
    assert (part.order, part.places["a"], part.seen) == ((2, 1), (1,), {3})


def test_an_array_of_a_frozen_component_cannot_be_written_to() -> None:
    part, table = Keeps(None), np.zeros(3)
    part.places["table"] = table  # type: ignore[assignment]
    part.freeze()
    table[0] = 1  # its creator still may
    kept: Any = part.places["table"]
    assert not kept.any()
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 1


def test_a_frozen_component_holds_no_generator() -> None:
    part = Keeps(None)
    part.stream = np.random.default_rng(0)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"stream is a generator of random numbers; draw from client\.rng\(self\)"):
        part.freeze()


def test_a_copy_with_other_options_is_as_frozen() -> None:
    part = Loud(Loud.Options())
    part.name = "toy.loud"
    part.freeze()
    other = part.varied(options=Loud.Options(steps=5))
    assert (part.options.steps, other.options.steps, other.name) == (3, 5, "toy.loud")
    with pytest.raises(ProtectionError, match="keeps rate on itself"):
        other.rate = 1.0  # type: ignore[attr-defined]

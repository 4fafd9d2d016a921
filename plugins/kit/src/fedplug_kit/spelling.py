"""Checks of the names of a class: misspelt members, other arguments, statements that describe another method."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator
from typing import Any

from fedplug.api import roles
from fedplug.api.roles import Component, roles_of
from fedplug_runs.members import RECORDS

_CLOSE = 0.8
"""How alike two names must be for one to be taken for the other, by difflib."""
_FREE = ("zone", "plan", "read", "ballot")
"""Names that helpers have everywhere, however close to a member."""
_MEANT = {
    "release": "ballots", "releases": "ballots", "side_channel": "reveals", "side_channels": "reveals",
    "zones": "plans", "own_zones": "plans", "needs_cohort_secret": "cohort_secret", "descends": "learns",
    "one_step": "learns",
}  # fmt: skip
"""Words that people reach for, and what says it here."""
_PROMISES = (
    "ballots", "learns", "plans", "reads", "reads_examples", "wants", "scoring", "public_scores", "client_weight",
    "round_release", "release_problem", "epsilon_of", "open_upload", "open_reply",
)  # fmt: skip
"""Members by which a role states or promises something. Others have everyday names, which are free in other roles."""
_SAID_IN = (
    ("score_parameters", "public_scores"), ("train", "round_release"), ("protect", "round_release"),
    ("round_release", "release_problem"), ("load", "declares"), ("build", "refuses"),
    ("build", "num_parameters"),
)  # fmt: skip
"""The member that describes the effect of each method."""
_ALL = [each for each in vars(roles).values() if isinstance(each, type) and issubclass(each, Component)]


def member_problems(cls: type) -> Iterator[str]:
    """The complaints about the public names of a component class, as half sentences.

    Names of its bases count as its own, whether these are components or plain classes: nobody else looks at those.
    """
    known = {name: each for role in reversed(roles_of(cls)) for name, each in _members(role).items()}
    seen: set[str] = set()
    for base in cls.__mro__:
        if base not in _ALL and base is not object:
            for name in sorted(_members(base, alone=True).keys() - seen):
                called = name if base is cls else f"{name} of {base.__qualname__}"
                if name in known:
                    yield from _shape_problems(cls, base, name, called, known[name])
                elif name not in _FREE:
                    yield from _name_problems(cls, name, called, known)
                seen.add(name)
    for method, statement in _SAID_IN:
        says = _home(cls, statement)
        if says is not None and _home(says, method) not in (None, _home(cls, method)):
            yield (
                f"overrides {method} of {says.__name__} and inherits its {statement}, which says what that one does; "
                f"define {statement} as well, or write {statement} = {says.__name__}.{statement} if all of it holds"
            )


def _members(cls: type, alone: bool = False) -> dict[str, Any]:
    """The public names of a class and its bases, or of it alone, with what the class itself has there."""
    bases = [cls] if alone else [base for base in reversed(cls.__mro__) if base is not object]
    names = (name for base in bases for name in (*vars(base).get("__annotations__", {}), *vars(base)))
    return {name: inspect.getattr_static(cls, name, None) for name in names if not name.startswith("_")}


def _name_problems(cls: type, name: str, called: str, known: dict[str, Any]) -> Iterator[str]:
    """A name that no role of the class has: it may mean a member, or be one of another role."""
    mine = [role.__name__ for role in roles_of(cls)[:-1]]
    close = next(iter(difflib.get_close_matches(name, {**known, **_MEANT}, n=1, cutoff=_CLOSE)), name)
    meant = _MEANT.get(close, close)
    if meant in known:
        yield f"{called} is not a member of a {' and '.join(mine) or 'component'}; did you mean {meant}?"
    elif name in _PROMISES and mine:  # a base without a role may be meant for any
        having = [role for role in _ALL if name in _members(role)]
        others = [role.__name__ for role in having if not any(base in having for base in role.__mro__[1:])]
        yield (
            f"{called} is a member of a {' and a '.join(others)}, which {cls.__name__} does not inherit from: nobody "
            f"asks for it; write class {cls.__name__}(fedplug.{others[0]}), or another name"
        )


def _shape_problems(cls: type, base: type, name: str, called: str, expected: Any) -> Iterator[str]:
    """A member that a role hides, a method with other arguments than the role's, or a record of another type."""
    first = next(each for each in cls.__mro__ if name in vars(each) or each is base)
    defined = vars(base).get(name)
    if first is not base:
        remedy = f"write {base.__name__} before it in class {cls.__name__}"
        yield f"{called} is hidden by that of {first.__name__}; {remedy}"
    elif inspect.isfunction(expected):
        wanted = list(inspect.signature(expected).parameters)
        if not inspect.isfunction(defined):
            yield f"{called} must be a method; did you mean def {name}({', '.join(wanted)})?"
            return
        given = inspect.signature(defined).parameters
        more = list(given.values())[len(wanted) :]
        if [*given][: len(wanted)] != wanted or any(each.default is each.empty for each in more):
            yield f"{called}({', '.join(given)}) has other arguments; did you mean {name}({', '.join(wanted)})?"
    elif name in RECORDS and defined is not None and not isinstance(defined, property | RECORDS[name]):
        yield f"{called} must be a {RECORDS[name].__name__}, not {type(defined).__name__}"


def _home(cls: type, name: str) -> type | None:
    """The class that defines a member; None where none below the roles does, or leaves it open."""
    home = next((base for base in cls.__mro__ if base not in _ALL and name in vars(base)), None)
    return None if home is None or name in getattr(home, "__abstractmethods__", ()) else home

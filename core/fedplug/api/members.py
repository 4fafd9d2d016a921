"""What members a role has, and that no component can misspell one.

A class with a public name close to one of its role's, or with another signature, is refused when it is imported, with
the nearest name, and so is one that has such a name from a plain base class: a misspelt statement must never count as a
statement that was not made. This is the only module of the core that looks members up by name.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, get_args

from fedplug.api.errors import cause_of
from fedplug.api.role_records import RECORDS, Site

if TYPE_CHECKING:
    from fedplug.api.base import Component

_CLOSE = 0.8
"""How alike two names must be for one to be taken for the other, by difflib."""
_MEANT = {
    "release": "ballots", "releases": "ballots", "side_channel": "reveals", "side_channels": "reveals",
    "reveal": "reveals", "zones": "plans", "own_zones": "plans", "needs_cohort_secret": "cohort_secret",
    "descends": "learns", "one_step": "learns",
}  # fmt: skip
"""Words that people reach for, and what says it here."""
_PROMISES = (
    "ballots", "learns", "plans", "reads", "wants", "scoring", "public_scores",
    "client_weight", "round_release", "release_problem", "epsilon_of", "add_blocks", "open_upload", "open_reply",
)  # fmt: skip
"""Members by which a role states or promises something. Other members have everyday names, such as a metric's `score`,
which are free in the roles that lack them."""

_ROLES: list[type] = []
"""Every role, in the order of definition."""


def add_role(role: type) -> None:
    """From here on, `role` is one: what its subclasses define is compared with its members."""
    _ROLES.append(role)


@functools.cache
def members(role: type) -> dict[str, Any]:
    """The public names of a role, with what the role itself has there."""
    named: dict[str, Any] = {}
    for base in reversed(role.__mro__):
        if base is object:
            continue
        for name in (*vars(base).get("__annotations__", {}), *vars(base)):
            if not name.startswith("_"):
                named[name] = inspect.getattr_static(base, name, None)
    return named


@functools.cache
def roles_of(cls: type) -> list[type]:
    """The roles that a class serves, `Component` the last of them."""
    return [base for base in cls.__mro__ if base in _ROLES]


def misspelt(cls: type) -> Iterable[str]:
    """What is wrong with the public names of a component class, as half sentences.

    Names of its bases count as its own, whether these are components or plain classes: nobody else looks at those.
    """
    known: dict[str, Any] = {}
    for role in reversed(roles_of(cls)):
        known |= members(role)
    seen: set[str] = set()
    for base in cls.__mro__:
        if base in _ROLES or base is object:
            continue
        own = {name for name in (*vars(base), *vars(base).get("__annotations__", {})) if not name.startswith("_")}
        for name in sorted(own - seen):
            yield from _misused(cls, base, name, known)
        seen |= own


def _misused(cls: type, base: type, name: str, known: dict[str, Any]) -> Iterable[str]:
    """What is wrong with one public name that a class has from `base`, which may be the class itself."""
    called = name if base is cls else f"{name} of {base.__qualname__}"
    if name in known:
        first = next(each for each in cls.__mro__ if name in vars(each) or each is base)
        if first is not base:  # a role's own member comes first: what is written here is never asked
            remedy = f"write {base.__name__} before it in class {cls.__name__}"
            yield f"{called} is hidden by that of {first.__name__}; {remedy}"
            return
        yield from _wrong_shape(vars(base).get(name), name, called, known[name])
        return
    close = next(iter(difflib.get_close_matches(name, {**known, **_MEANT}, n=1, cutoff=_CLOSE)), name)
    meant = _MEANT.get(close, close)
    if meant in known:
        of = " and ".join(role.__name__ for role in roles_of(cls)[:-1]) or "component"
        yield f"{called} is not a member of a {of}; did you mean {meant}?"
    elif name in _PROMISES and len(roles_of(cls)) > 1:  # a base without a role may be meant for any
        having = [role for role in _ROLES if name in members(role)]
        others = [role.__name__ for role in having if not any(base in having for base in role.__mro__[1:])]
        yield (
            f"{called} is a member of a {' and a '.join(others)}, which {cls.__name__} does not inherit from: nobody "
            f"asks for it; write class {cls.__name__}(fedplug.{others[0]}), or another name"
        )


def _wrong_shape(defined: Any, name: str, called: str, expected: Any) -> Iterable[str]:
    """A method with other arguments than the role's, or a record of another type."""
    if inspect.isfunction(expected):
        if not inspect.isfunction(defined):
            yield f"{called} must be a method; did you mean def {name}{_shown(expected)}?"
            return
        wanted, given = list(inspect.signature(expected).parameters), list(inspect.signature(defined).parameters)
        rest = list(inspect.signature(defined).parameters.values())[len(wanted):]
        if given[: len(wanted)] != wanted or any(p.default is p.empty for p in rest):
            yield f"{called}({', '.join(given)}) has other arguments; did you mean {name}({', '.join(wanted)})?"
    elif name in RECORDS and defined is not None and not isinstance(defined, property | RECORDS[name]):
        yield f"{called} must be a {RECORDS[name].__name__}, not {type(defined).__name__}"


def record_problems(component: Component) -> Iterable[str]:
    """What a built component declares that is not of its type, or fails, as half sentences."""
    known = {name for role in roles_of(type(component)) for name in members(role)}
    for name, kind in {**RECORDS, "site": str}.items():
        if name not in known:
            continue
        try:
            value = getattr(component, name)
        except Exception as error:
            yield f"fails to say its {name}: {cause_of(error)}"
            continue
        if name == "site" and value not in get_args(Site):
            yield f"has the site {value!r:.60}; it must be {', '.join(get_args(Site)[:-1])} or {get_args(Site)[-1]}"
        elif not isinstance(value, kind) and not (name == "reads" and value is None):
            yield f"has {value!r:.60} for its {name}; it must be a {kind.__name__}(...)"


def _shown(method: Callable[..., Any]) -> str:
    return f"({', '.join(inspect.signature(method).parameters)})"


_SAID_IN = (
    ("score_parameters", "public_scores"), ("train", "round_release"), ("protect", "round_release"),
    ("round_release", "release_problem"),
    ("load", "declares"), ("build", "refuses"),
)  # fmt: skip
"""Which member states what a method does."""


def stale_statements(cls: type) -> Iterable[str]:
    """Methods that a class overrides while it inherits what another class states of its own, as half sentences."""
    for method, statement in _SAID_IN:
        says = _home(cls, statement)
        if says is None or _home(says, method) in (None, _home(cls, method)):
            continue
        yield (
            f"overrides {method} of {says.__name__} and inherits its {statement}, which says what that one does; "
            f"define {statement} as well, or write {statement} = {says.__name__}.{statement} if all of it still holds"
        )


def _home(cls: type, name: str) -> type | None:
    """The class that defines a member; None where none below the roles does, or leaves it open."""
    mine = (base for base in cls.__mro__ if base not in _ROLES)
    home = next((base for base in mine if name in vars(base)), None)
    return None if home is None or name in getattr(home, "__abstractmethods__", ()) else home


def undecided(cls: type) -> list[tuple[type, str]]:
    """Members that a role leaves open and that a class does not give, with the role; methods with their arguments."""
    left_open = {}
    for role in reversed(roles_of(cls)):
        for name, expected in vars(role).items():
            if getattr(inspect.getattr_static(cls, name, None), "__isabstractmethod__", False):
                shown = _shown(expected).replace("self, ", "") if inspect.isfunction(expected) else ""
                left_open[name] = role, f"{name}{shown}"
    return list(left_open.values())

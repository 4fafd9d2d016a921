"""What is wrong with the members of a component: what a role leaves open and its class does not give, methods that
cannot be called as the role's are, hooks that an extension wraps wrongly, declarations of a wrong type.

The kernel asks, as the service `members`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args

from fedplug.api.errors import cause_of
from fedplug.api.roles import (
    ROLES,
    Account,
    Component,
    Declares,
    Extension,
    Finds,
    Measures,
    Plans,
    Reads,
    Scoring,
    Site,
    Wants,
    roles_of,
)
from fedplug.recipe.catalog import HOOK_GROUPS
from fedplug.recipe.composition import Hooks, wrapped_hooks

RECORDS: dict[str, type] = {
    "scoring": Scoring, "plans": Plans, "reads": Reads, "wants": Wants, "finds": Finds, "measures": Measures,
    "account": Account, "declares": Declares,
}  # fmt: skip
"""The declarations of a role, by the member that holds each."""


def of_class(component_class: type) -> list[str]:
    """All of it that shows before one is made, as half sentences; empty if nothing is wrong."""
    found = [f"has no {what}, which {_a(owner)} must have" for owner, what in undecided(component_class)]
    found += [
        f"has {given}, which {_a(owner)} has as {wanted}; take these arguments"
        for owner, given, wanted in strangely_called(component_class)
    ]
    return [*found, *(_wrapping_problems(component_class) if issubclass(component_class, Extension) else ())]


def of_part(part: Component) -> Iterator[str]:
    """The declarations of a built component that have a wrong type or fail, as half sentences."""
    known = {name for role in roles_of(type(part)) for name in dir(role)}
    for name, kind in {**RECORDS, "site": str}.items():
        if name not in known:
            continue
        try:
            value = getattr(part, name)
        except Exception as error:
            yield f"fails to say its {name}: {cause_of(error)}"
            continue
        if name == "site" and value not in get_args(Site):
            yield f"has the site {value!r:.60}; it must be {', '.join(get_args(Site)[:-1])} or {get_args(Site)[-1]}"
        elif not isinstance(value, kind) and not (name == "reads" and value is None):
            yield f"has {value!r:.60} for its {name}; it must be a {kind.__name__}(...)"


def _a(role: type) -> str:
    return f"{'an' if role.__name__[0] in 'AEIO' else 'a'} {role.__name__}"


def _shown(method: Callable[..., Any]) -> str:
    return f"({', '.join(inspect.signature(method).parameters)})"


def undecided(cls: type) -> list[tuple[type, str]]:
    """Members that a role leaves open and that a class does not give, with the role; methods with their arguments."""
    left_open, serves = {}, roles_of(cls)
    for role in reversed(serves):
        for name, expected in vars(role).items():
            if getattr(inspect.getattr_static(cls, name, None), "__isabstractmethod__", False):
                shown = _shown(expected).replace("self, ", "") if inspect.isfunction(expected) else ""
                left_open[name] = next(each for each in serves if issubclass(each, role)), f"{name}{shown}"
    return list(left_open.values())


def strangely_called(cls: type) -> Iterable[tuple[type, str, str]]:
    """Methods of a class that cannot be called as those of a role, with the role: as they are, as they should be."""
    known: set[str] = set()
    for role in roles_of(cls):
        for name, expected in vars(role).items():
            found = inspect.getattr_static(cls, name, None)
            if name.startswith("_") or name in known or not inspect.isfunction(expected):
                continue
            known.add(name)
            if found is expected or not inspect.isfunction(found):
                continue
            asked = [each for each in inspect.signature(expected).parameters.values() if each.default is each.empty]
            by_name = name in ROLES or any(each.kind is each.KEYWORD_ONLY for each in asked)  # as hooks are called
            try:
                if by_name:
                    inspect.signature(found).bind(None, **dict.fromkeys([each.name for each in asked[1:]]))
                else:
                    inspect.signature(found).bind(*asked)
            except TypeError:
                given, wanted = (_shown(each).replace("self, ", "").replace("self", "") for each in (found, expected))
                yield role, f"{name}{given}", f"{name}{wanted}"


def _wrapping_problems(extension: type[Extension]) -> Iterator[str]:
    """What is wrong with the hooks that an extension wraps."""
    wrapped = wrapped_hooks(extension)
    for hook, options in wrapped.items():
        if hook not in HOOK_GROUPS:
            yield f"marks {hook} with @hookimpl, but there is no such hook; there is {', '.join(HOOK_GROUPS)}"
            continue
        wanted = list(inspect.signature(vars(Hooks)[hook]).parameters)[1:]
        given = list(inspect.signature(getattr(extension, hook)).parameters.values())[1:]
        shown = f"{hook}({', '.join(wanted)})"
        if wrong := [p.name for p in given if p.name not in wanted]:
            yield f"wraps {hook} with the argument {', '.join(wrong)}; the hook is {shown}"
        # pluggy never passes an argument to a parameter that has a default.
        if fixed := [p.name for p in given if p.name in wanted and p.default is not p.empty]:
            yield f"wraps {hook} with a default for {', '.join(fixed)}, which then never gets a value"
        if not (options.get("wrapper") or options.get("hookwrapper")):
            yield f"implements {hook}, which an extension must wrap: @hookimpl(wrapper=True)"
    if not wrapped and extension.observe is Extension.observe:
        yield "hears nothing and wraps no hook; define observe, or mark a method @hookimpl(wrapper=True)"

"""The hooks that a class implements, what is wrong with it as a member of an entry-point group, and what it gives."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import pickle
from collections.abc import Generator
from typing import Any

import numpy as np
import pluggy

from fedplug.api.component import hookimpl
from fedplug.api.members import stale_statements, undecided
from fedplug.api.outer_roles import Extension
from fedplug.api.role_table import ROLES
from fedplug.recipe.catalog import HOOK_GROUPS


class Hooks:
    """The six hooks as pluggy wants to see them: each is the method of its name in its role."""


for _hook in HOOK_GROUPS:
    setattr(Hooks, _hook, pluggy.HookspecMarker("fedplug")(vars(ROLES[_hook])[_hook], firstresult=True))


@functools.cache
def hook_problems(component_class: type, group: str) -> list[str]:
    """What is wrong with a class as a member of an entry-point group, as half sentences; empty if nothing."""
    role = ROLES.get(group)
    if role is None:  # engines are not components
        return []
    if not issubclass(component_class, role):
        return [f"is not {_a(role)}; write class {component_class.__name__}(fedplug.{role.__name__})"]
    problems = [f"has no {what}, which {_a(owner)} must have" for owner, what in undecided(component_class)]
    hooks = implemented_hooks(component_class)
    for hook, options in hooks.items():
        if hook not in HOOK_GROUPS:
            there_is = ", ".join(HOOK_GROUPS)
            problems.append(f"marks {hook} with @hookimpl, but there is no such hook; there is {there_is}")
            continue
        wanted = list(inspect.signature(vars(Hooks)[hook]).parameters)[1:]
        given = list(inspect.signature(vars_of(component_class)[hook]).parameters.values())[1:]
        shown = f"{hook}({', '.join(wanted)})"
        if wrong := [p.name for p in given if p.name not in wanted]:
            problems.append(f"implements {hook} with the argument {', '.join(wrong)}; the hook is {shown}")
        # pluggy never passes an argument to a parameter that has a default.
        if fixed := [p.name for p in given if p.name in wanted and p.default is not p.empty]:
            problems.append(f"implements {hook} with a default for {', '.join(fixed)}, which then never gets a value")
        if (group == "extension") != bool(options.get("wrapper") or options.get("hookwrapper")):
            rule = "must be" if group == "extension" else "must not be"
            problems.append(f"implements {hook}, which in the group {group} {rule} a wrapper: @hookimpl(wrapper=True)")
    problems += stale_statements(component_class)
    if group in HOOK_GROUPS and group not in hooks and not problems:
        problems.append(f"does not implement {group}; mark a method of that name with @hookimpl")
    elif group == "extension" and not hooks and vars_of(component_class)["observe"] is Extension.observe:
        problems.append("hears nothing and wraps no hook; define observe, or mark a method @hookimpl(wrapper=True)")
    return problems


def _a(role: type) -> str:
    return f"{'an' if role.__name__[0] in 'AEIO' else 'a'} {role.__name__}"


def vars_of(component_class: type) -> dict[str, Any]:
    """What a class and its bases have under each name."""
    bases = [base for base in reversed(component_class.__mro__) if base is not object]
    return {name: value for base in bases for name, value in vars(base).items()}


@functools.cache
def implemented_hooks(component_class: type) -> dict[str, dict[str, Any]]:
    """The hooks for which a class has a method marked `@hookimpl`, with the marker's options."""
    marked = marked_methods(component_class)
    return {options.get("specname") or name: options for name, options in marked.items()}


@functools.cache
def marked_methods(component_class: type) -> dict[str, dict[str, Any]]:
    """The methods marked `@hookimpl`, with the marker's options."""
    options = {name: getattr(method, "fedplug_impl", None) for name, method in vars_of(component_class).items()}
    return {name: given for name, given in options.items() if isinstance(given, dict)}


class Witness:
    """The innermost wrapper: notes what a component gave, before any extension can change it."""

    HOOKS = ("score_parameters", "protect", "aggregate", "postprocess", "attack")

    def __init__(self) -> None:
        self._given: Any = None
        self._digest = b""

    def gave(self, result: Any) -> bool:
        """Whether this is what the component gave, unchanged."""
        return result is self._given and self._digest == _digest(result)

    def _note(self) -> Generator[None, Any, Any]:
        result = yield
        self._given, self._digest = result, _digest(result)
        return result

    @hookimpl(wrapper=True)
    def score_parameters(self) -> Generator[None, Any, Any]:
        """The scores."""
        return (yield from self._note())

    @hookimpl(wrapper=True)
    def protect(self) -> Generator[None, Any, Any]:
        """The operations on an upload."""
        return (yield from self._note())

    @hookimpl(wrapper=True)
    def attack(self) -> Generator[None, Any, Any]:
        """Its report."""
        return (yield from self._note())

    @hookimpl(wrapper=True)
    def aggregate(self) -> Generator[None, Any, Any]:
        """How uploads become one."""
        return (yield from self._note())

    @hookimpl(wrapper=True)
    def postprocess(self) -> Generator[None, Any, Any]:
        """The operations on a sum."""
        return (yield from self._note())


def _digest(given: Any) -> bytes:
    """Of what can be changed in place: arrays, and reports of attacks. Operations are frozen."""
    if isinstance(given, np.ndarray):
        return hashlib.blake2b(np.ascontiguousarray(given).data, digest_size=16).digest()
    if dataclasses.is_dataclass(given):  # never travels
        with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
            return hashlib.blake2b(pickle.dumps(given), digest_size=16).digest()
    return b""

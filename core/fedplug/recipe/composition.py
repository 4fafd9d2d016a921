"""A recipe's components at work: one object each, called one at a time, and the links of its zones, which call them.

The core calls exactly one component per hook call. Extensions wrap hooks through pluggy: they see every call.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pluggy

from fedplug.api.blocks import RETAINED
from fedplug.api.errors import PluginError, of_component
from fedplug.api.facts import Facts
from fedplug.api.links import Link, ballot_states, ballots_of
from fedplug.api.operations import Operations
from fedplug.api.roles import (
    ROLES,
    AccountKeeper,
    Aggregator,
    Ballots,
    Component,
    Extension,
    Negotiation,
    Opener,
    Plans,
    Protector,
    Trainer,
)
from fedplug.recipe.catalog import DISPLAY, EXAMINE, HOOK_GROUPS, RULES, SECTION, SERVICE, Entry, installed, service
from fedplug.recipe.parts import Use
from fedplug.recipe.sections import Resolved


class Hooks:
    """The six hooks as pluggy wants to see them: each is the method of its name in its role."""


for _hook in HOOK_GROUPS:
    setattr(Hooks, _hook, pluggy.HookspecMarker("fedplug")(vars(ROLES[_hook])[_hook], firstresult=True))


@functools.lru_cache(maxsize=1024)
def hook_problems(component_class: type, group: str) -> tuple[str, ...]:
    """What is wrong with a class as a member of an entry-point group, as half sentences; empty if nothing. The service
    `members` looks at its members.
    """
    role = ROLES.get(group)
    if role is None:  # engines are not components
        return ()
    if not issubclass(component_class, role):
        a = "an" if role.__name__[0] in "AEIO" else "a"
        return (f"is not {a} {role.__name__}; write class {component_class.__name__}(fedplug.{role.__name__})",)
    members = service("members")
    return () if members is None else tuple(members.of_class(component_class))


def wrapped_hooks(extension: type) -> dict[str, dict[str, Any]]:
    """The hooks that an extension wraps with a method marked `@hookimpl`, with the marker's options."""
    marked = {name: getattr(getattr(extension, name, None), "fedplug_impl", None) for name in dir(extension)}
    return {options.get("specname") or name: options for name, options in marked.items() if options is not None}


R = TypeVar("R", bound=Component)
_UNCHANGEABLE = (str, int, float, type(None))


class Composition:
    """The components of one recipe. A run builds a fresh one at every party.

    Attributes:
        recipe: the recipe.
        components: every component instance by name; extensions included.
        links: for each zone that is sent, the links that its values pass, in order: the one list that the protocol
            executes and that every claim is read from.
        retained: the links that a client's own values of the zone `retained` pass, after the global model has moved.
        makers: by name, what builds the component anew from its options; without extensions.
        memo: what all facts of this composition share.
    """

    def __init__(self, recipe: Resolved, around: Iterable[str] = ()) -> None:
        """Builds every component.

        Args:
            recipe: the recipe.
            around: what else runs it, or hears it, and is not of fedplug itself; see `strange`.

        Raises:
            PluginError: a component cannot be built or registered.
        """
        self.recipe = recipe
        self.components: dict[str, Component] = {}
        self.makers: dict[str, Callable[[], Component]] = {}
        self.memo: dict[Any, Any] = {}
        self._around = tuple(around)
        self._looking_on: pluggy.PluginManager | None = None
        # Of several extensions, pluggy makes the one registered last the outermost.
        for use in recipe.components.values():
            component = self.components[use.name] = instantiate(use)
            if not isinstance(component, Extension):
                self.makers[use.name] = functools.partial(instantiate, use)
            elif wrapped_hooks(type(component)):
                self._looking_on = self._looking_on or new_manager()
                register(self._looking_on, component, use.name)
        call = self.call if self._looking_on else None
        self.links: dict[str, tuple[Link, ...]] = chains(
            recipe.protect, recipe.aggregate, recipe.postprocess, self.components, call
        )
        self.retained = tuple(
            Link(RETAINED, "postprocess", use.name, self.components[use.name], "client", use.path, call)
            for use in recipe.postprocess.get(RETAINED, ())
        )

    def part(self, name: str, role: type[R]) -> R:
        """The component of that name, in one of its roles.

        Raises:
            PluginError: it has another role.
        """
        component = self.components[name]
        if not isinstance(component, role):
            raise PluginError(f"component {name} does not have the role {role.__name__}")
        return component

    def shipped(self, name: str) -> bool:
        """Whether a component is of fedplug itself; what is said of others rests on their word. See `shipped`."""
        use = self.recipe.components.get(name)
        return use is not None and shipped(use)

    @property
    def strangers(self) -> list[str]:
        """What else is not of fedplug itself, and sees the whole run from inside: sections, services, rules, displays,
        and what is around the run.
        """
        known = {key for key, entry in installed(SECTION).items() if entry.distribution in _shipped()}
        sections = [f"section {key}" for key in self.recipe.sections if key not in known]
        others = [entry for group in (SERVICE, EXAMINE, RULES, DISPLAY) for entry in installed(group).values()]
        return [*sections, *strange(others), *self._around]

    @property
    def trainer(self) -> Trainer:
        """The recipe's trainer."""
        return self.part(self.recipe.train.name, Trainer)

    @property
    def negotiation(self) -> Negotiation:
        """The recipe's negotiation."""
        return self.part(self.recipe.negotiate_mask.name, Negotiation)

    @functools.cached_property
    def plans(self) -> Plans:
        """What the plans of the negotiation can be."""
        return self.negotiation.plans

    @property
    def aggregator(self) -> Aggregator:
        """The recipe's aggregator."""
        return self.part(self.recipe.aggregate.name, Aggregator)

    @property
    def keepers(self) -> dict[str, AccountKeeper]:
        """The components that keep an account of another level, by level."""
        keepers = (part for part in self.components.values() if isinstance(part, AccountKeeper))
        return {keeper.account.level: keeper for keeper in keepers}

    def ballots(self, facts: Facts) -> list[tuple[str, Operations]]:
        """Who asks clients for ballots with noise in the round of `facts`, with the operations on them."""
        named = (name for name, part in self.components.items() if isinstance(part, Ballots))
        return [(name, ballot_states(name, given, facts)[0]) for name in named if (given := ballots_of(name, facts))]

    def add(self, component: Any, name: str) -> None:
        """One more component, such as an attack in another form."""
        self.components[name] = component.varied(name=name)

    def one(self, hook: str, name: str, **arguments: Any) -> Any:
        """What a component's hook gives, with all extensions looking on.

        Raises:
            PluginError: it gave None where the hook must give a value, or raised an error other than `FedplugError`;
                the message names the component and the hook.
        """
        with of_component(name, f"hook {hook}"):
            result = self.call(hook, self.components[name], **arguments)
        if result is None and hook != "negotiate_mask":
            raise PluginError(f"component {name}, hook {hook}: it gave nothing; the hook must return a value")
        return result

    def call(self, hook: str, component: Any, **arguments: Any) -> Any:
        """The same of a component in hand. Extensions look on: what one makes of the result reaches nobody."""
        method = getattr(component, hook)
        if self._looking_on is None:
            return method(**arguments)
        given: list[Any] = []

        # Of what can be changed in place, an extension sees a copy.
        @functools.wraps(method)
        def noted(*_: Any) -> Any:
            given.append(method(**arguments))
            return given[0] if isinstance(given[0], tuple | None) else copy.deepcopy(given[0])

        getattr(self._looking_on.hook, hook).call_extra([noted], arguments)
        return given[0] if given else method(**arguments)


def shipped(use: Use) -> bool:
    """Whether a component, with all that is within it, is of the core, or of a distribution that the core's extra `all`
    brings; never one of the user's own files, or of another distribution under the same name.
    """
    return all(each.distribution in _shipped() for each in use.nested)


def strange(entries: Iterable[Entry]) -> list[str]:
    """The titles of the offers that are not of fedplug itself."""
    return [entry.title for entry in entries if entry.distribution not in _shipped()]


@functools.cache
def _shipped() -> frozenset[str]:
    """The core, and the distributions of its extra `all`, as its own metadata say."""
    from importlib_metadata import PackageNotFoundError, requires

    with contextlib.suppress(PackageNotFoundError):
        brought = r"""([\w.-]+).*;.*\bextra\s*==\s*["']all["']"""
        found = (re.match(brought, requirement) for requirement in requires("fedplug") or ())
        return frozenset({"fedplug", *(each[1] for each in found if each)})
    return frozenset()


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the six hooks and nobody who wraps one."""
    manager = pluggy.PluginManager("fedplug")
    manager.add_hookspecs(Hooks)
    return manager


def instantiate(use: Use) -> Any:
    """Calls the constructor of a component with its options, and gives the instance its name and what is within it.

    Raises:
        PluginError: the constructor raises, or the instance takes no name.
    """
    component_class: Any = use.made_of
    try:
        component = component_class(_apart(use.options))
        component.name = use.name
        for key, within in use.inner:
            setattr(component, key, instantiate(within))
        if isinstance(component, Component) and not isinstance(component, Extension):
            component.freeze()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise PluginError(f"component {use.name} ({use.use}) cannot be built: {cause}") from error
    return component


def _apart(options: Any) -> Any:
    """Options for one component: what is changed in one reaches no other."""
    unchangeable = all(isinstance(value, _UNCHANGEABLE) for value in vars(options).values())
    return copy.copy(options) if unchangeable else copy.deepcopy(options)


def register(manager: pluggy.PluginManager, component: Any, name: str) -> None:
    """Registers a component under its name; what it implements was looked at when the recipe was checked.

    Raises:
        PluginError: pluggy cannot keep it.
    """
    try:
        manager.register(component, name)
    except (TypeError, ValueError) as error:
        # pluggy keeps components in sets; a dataclass with eq=True has no hash, and equals its twin.
        raise PluginError(f"component {name} must be hashable and equal to nothing but itself: {error}") from error


def chains(
    protect: Mapping[str, Iterable[Use]],
    aggregate: Use | None,
    postprocess: Mapping[str, Iterable[Use]],
    components: Mapping[str, Component],
    call: Callable[..., Any] | None = None,
) -> dict[str, tuple[Link, ...]]:
    """The links of every zone that is sent, in the order in which its values pass them; components that are missing, or
    of another role, are left out (a check says so).
    """

    def links(zone: str) -> Iterator[Link]:
        for use in protect[zone]:
            if isinstance(part := components.get(use.name), Protector):
                yield Link(zone, "protect", use.name, part, "client", use.path, call)
        if aggregate is not None and isinstance(part := components.get(aggregate.name), Aggregator):
            yield Link(zone, "aggregate", aggregate.name, part, "server", aggregate.path, call)
        for use in postprocess.get(zone, ()):
            if isinstance(opener := components.get(use.name), Opener):
                yield Link(zone, "postprocess", use.name, opener, opener.site, use.path, call)

    return {zone: tuple(links(zone)) for zone in protect if zone != RETAINED}

"""A recipe's components at work: one object each, registered with pluggy, and called one at a time; and the links of
its zones, which call them.

The core calls exactly one component per hook call, so a wrapper (an extension) sees every call and one value.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import pickle
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pluggy

from fedplug.api.blocks import RETAINED
from fedplug.api.component import hookimpl
from fedplug.api.errors import FedplugError, PluginError, cause_of
from fedplug.api.links import Link, Step, ballot_states, released
from fedplug.api.operations import Combine, Map, Noise, Post
from fedplug.api.roles import (
    ROLES,
    AccountKeeper,
    Aggregator,
    Component,
    Extension,
    Groups,
    Negotiation,
    Opener,
    Protector,
    Site,
    Trainer,
    stale_statements,
    undecided,
)
from fedplug.recipe.catalog import HOOK_GROUPS

if TYPE_CHECKING:
    from fedplug.api.operations import Operations
    from fedplug.api.parties import Facts
    from fedplug.recipe.parts import Sampling, Use
    from fedplug.recipe.recipe import Recipe


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


R = TypeVar("R", bound=Component)


class Composition:
    """The components of one recipe. A run builds a fresh one at every party.

    Attributes:
        recipe: the recipe.
        components: every component instance by name; extensions included.
        links: for each zone that is sent, the links that its values pass, in order: the one list that the protocol
            executes and that every claim is read from.
        retained: the links that a client's own values of the zone `retained` pass, after the global model has moved.
    """

    def __init__(self, recipe: Recipe) -> None:
        """Builds every component.

        Raises:
            PluginError: a component cannot be built or registered.
        """
        self.recipe = recipe
        self.components: dict[str, Component] = {}
        self._manager = new_manager()
        self._callers: dict[tuple[str, str], Any] = {}
        uses = recipe.components
        self._extensions = {name for name, use in uses.items() if use.group == "extension"}
        self._witness = Witness()
        if self._extensions:
            self._manager.register(self._witness)
        # Extensions last: of several wrappers, pluggy makes the one registered last the outermost.
        for use in sorted(uses.values(), key=lambda use: use.group == "extension"):
            component = instantiate(use)
            self.components[use.name] = component
            register(self._manager, component, use.name)
        call = self.one if self._extensions else None  # which look on
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

    @property
    def trainer(self) -> Trainer:
        """The recipe's trainer."""
        return self.part(self.recipe.train.name, Trainer)

    @property
    def negotiation(self) -> Negotiation:
        """The recipe's negotiation."""
        return self.part(self.recipe.negotiate_mask.name, Negotiation)

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
        asking = []
        for use in (self.recipe.groups, self.recipe.negotiate_mask):
            part = self.components[use.name] if use else None
            if isinstance(part, Groups | Negotiation) and (given := part.ballots(facts.round, facts)):
                asking.append((part.name, ballot_states(part.name, given, facts)[0]))
        return asking

    def add(self, component: Any, name: str) -> None:
        """One more component, such as an attack in another form; before any of its hooks is called.

        Raises:
            PluginError: it cannot be registered.
        """
        component = component.varied(name=name)
        self.components[name] = component
        register(self._manager, component, name)
        self._callers.clear()

    def one(self, hook: str, name: str, **arguments: Any) -> Any:
        """Calls one component's implementation of a hook, inside the wrappers of all extensions.

        Raises:
            PluginError: it gave None where the hook must give a value, or raised an error other than `FedplugError`;
                the message names the component and the hook. Or an extension changed what the component was handed or
                gave: what runs would not be what the links state.
        """
        caller = self._callers.get((hook, name))
        if caller is None:
            target = self.components[name]
            others = [c for n, c in self.components.items() if c is not target and n not in self._extensions]
            caller = self._callers[hook, name] = self._manager.subset_hook_caller(hook, others)
        try:
            result = caller(**arguments)
        except FedplugError:
            raise
        # A component that calls sys.exit() fails as any other does; it must not end the program without a word.
        except (Exception, SystemExit) as error:
            raise PluginError(f"{_place(name, hook, arguments)}: {cause_of(error)}") from error
        if result is None and hook != "negotiate_mask":
            raise PluginError(f"{_place(name, hook, arguments)}: it gave nothing; the hook must return a value")
        seen = self._witness
        if self._extensions and hook in seen.HOOKS and not seen.gave(result):
            raise PluginError(
                f"an extension ({', '.join(sorted(self._extensions))}) changed what {name} gave in its hook {hook}; "
                "extensions look on. What changes values is a link of a chain: write it as a protector, an aggregator "
                "or an opener"
            )
        return result


def _place(name: str, hook: str, arguments: Mapping[str, Any]) -> str:
    """Which component failed, in which hook, and on the values of which zone, where it was handed some."""
    blocks = [arguments["block"]] if "block" in arguments else [*arguments.get("blocks", {}).values()][:1]
    return f"component {name}, hook {hook}" + "".join(f", zone {block.zone}" for block in blocks)


class _Manager(pluggy.PluginManager):
    """Looks for marked methods once for each class; pluggy looks through every attribute of every object, 6 ms each."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        """The marker's options of a method, or None."""
        component_class: type = type(plugin)
        options = marked_methods(component_class).get(name)
        return options and dict(options)


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the six hooks and no component."""
    manager = _Manager("fedplug")
    manager.add_hookspecs(Hooks)
    return manager


def instantiate(use: Use) -> Any:
    """Calls the constructor of a component with its options, and gives the instance its name and what is within it.

    Raises:
        PluginError: the constructor raises, or the instance takes no name.
    """
    component_class: Any = use.made_of
    try:
        component = component_class(use.options)
        component.name = use.name
        for key, within in use.inner:
            setattr(component, key, instantiate(within))
        if isinstance(component, Component) and not isinstance(component, Extension):
            component.freeze()
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise PluginError(f"component {use.name} ({use.use}) cannot be built: {cause}") from error
    return component


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


def amplified(sampling: Sampling | None, facts: Facts) -> set[str]:
    """The zones whose noise is added to the sum of a Poisson sample, which hides who takes part.

    None where a function of the sum comes before the noise: what it remembers of the clients of one round would be in
    the releases of others, and sampling a round hides nobody then. Nor where noise is correlated over rounds: what is
    released of one round has the clients of others in it.
    """
    if sampling is None or sampling.scheme != "poisson":
        return set()
    return {zone for zone, first in _central(facts).items() if first} - correlated(facts, "server", "key_server")


def correlated(facts: Facts, *sites: Site) -> set[str]:
    """The zones in which a party of these adds noise that takes back some of that of earlier rounds."""
    return {
        zone for zone in facts.links for step in facts.steps(zone) for each in step.operations
        if isinstance(each, Noise) and each.takes_back is not None and step.link.site in sites
    }  # fmt: skip


def remembered(facts: Facts) -> set[str]:
    """The zones in which a function of the sum comes before the noise of the server: who was in the sum of one round
    may be in the releases of all that follow, and pays for these too.
    """
    return {zone for zone, first in _central(facts).items() if not first}


def _central(facts: Facts) -> dict[str, bool]:
    """By zone with noise at the server, whether that is added before a function of a plugin gets the sum."""
    folded = {zone: facts.steps(zone) for zone in facts.links}
    behind = {zone: released(steps) for zone, steps in folded.items()}
    return {
        zone: _noised_first(folded[zone]) for zone, known in behind.items()
        if known and any(each.trust == "central" for each in known.releases)
    }  # fmt: skip


def _noised_first(steps: Iterable[Step]) -> bool:
    """Whether noise is added to the sum before a function of a plugin gets it."""
    for step in steps:
        for operation, known in zip(step.operations, step.states, strict=False):
            if isinstance(operation, Combine) or (isinstance(operation, Post | Map) and known.summed):
                return False
            if isinstance(operation, Noise) and known.summed:
                return True
    return True

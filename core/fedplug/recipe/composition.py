"""A recipe's components at work: one object each, registered with pluggy, and called one at a time; and the links of
its zones, which call them.

The core calls exactly one component per hook call, so a wrapper (an extension) sees every call and one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from fedplug.api.base import Component
from fedplug.api.errors import FedplugError, PluginError, cause_of
from fedplug.api.folded import released
from fedplug.api.links import Link, ballot_states
from fedplug.api.outer_roles import Extension
from fedplug.api.roles import AccountKeeper, Aggregator, Groups, Negotiation, Opener, Protector, Trainer
from fedplug.api.types import RETAINED
from fedplug.recipe.implementations import Hooks, Witness, marked_methods

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.api.operations import Operations
    from fedplug.recipe.parts import Sampling, Use
    from fedplug.recipe.recipe import Recipe


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
        """The components that keep an account of a level of their own, by level."""
        keepers = (part for part in self.components.values() if isinstance(part, AccountKeeper))
        return {keeper.account.level: keeper for keeper in keepers}

    def ballots(self, ctx: Context) -> list[tuple[str, Operations]]:
        """Who asks clients for ballots with noise in the round of `ctx`, with what is done to them."""
        asking = []
        for use in (self.recipe.groups, self.recipe.negotiate_mask):
            part = self.components[use.name] if use else None
            if isinstance(part, Groups | Negotiation) and (given := part.ballots(ctx.round, ctx)):
                asking.append((part.name, ballot_states(part.name, given, ctx)[0]))
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
    """Calls the constructor of a component with its options, and gives the instance its name.

    Raises:
        PluginError: the constructor raises, or the instance takes no name.
    """
    component_class: Any = use.made_of
    try:
        component = component_class(use.options)
        component.name = use.name
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


def amplified(sampling: Sampling | None, ctx: Context) -> set[str]:
    """The zones whose noise is added to the sum of a Poisson sample, which hides who takes part."""
    if sampling is None or sampling.scheme != "poisson":
        return set()
    behind = {zone: released(ctx.steps(zone)) for zone in ctx.links}
    return {zone for zone, known in behind.items() if known and any(r.trust == "central" for r in known.releases)}

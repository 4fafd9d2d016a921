"""A recipe's components at work: one object each, registered with pluggy, and called one at a time.

The core calls exactly one component per hook call, so a wrapper (an extension) sees every call and one value.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pluggy

from fedplug import hookspecs, model, truth
from fedplug.catalog import HOOK_GROUPS, Catalog
from fedplug.errors import PluginError

if TYPE_CHECKING:
    from fedplug.recipe import Recipe, Use
    from fedplug.types import Block

PROTOCOLS: dict[str, type] = {
    "model": model.ModelComponent,
    "trainer": model.TrainerComponent,
    "dataset": model.DatasetComponent,
    "partition": model.PartitionComponent,
    "accountant": model.AccountantComponent,
    "groups": model.GroupsComponent,
    "metric": truth.MetricComponent,
}
"""Groups that are no hooks: a component there has the one method that the protocol shows."""


class Composition:
    """The components of one recipe. A run builds a fresh one at every party.

    Attributes:
        recipe: the recipe.
        components: every component instance by name; extensions included.
    """

    def __init__(self, recipe: Recipe, catalog: Catalog | None = None) -> None:
        """Imports and builds every component.

        Args:
            recipe: the recipe.
            catalog: where the classes come from; by default the installed plugins.

        Raises:
            PluginError: a component cannot be imported, built or registered.
        """
        catalog = catalog or Catalog.discover()
        self.recipe = recipe
        self.components: dict[str, Any] = {}
        self._manager = new_manager()
        self._callers: dict[tuple[str, str], Any] = {}
        uses = recipe.components
        # Extensions last: of several wrappers, pluggy makes the one registered last the outermost.
        for use in sorted(uses.values(), key=lambda use: use.group == "extension"):
            component = build(use, catalog)
            self.components[use.name] = component
            register(self._manager, component, use.name)
        self._extensions = {name for name, use in uses.items() if use.group == "extension"}

    def add(self, component: Any, name: str) -> None:
        """One more component, such as an attack in another form; before any of its hooks is called.

        Raises:
            PluginError: it cannot be registered.
        """
        component.name = name
        self.components[name] = component
        register(self._manager, component, name)
        self._callers.clear()

    def one(self, hook: str, name: str, **arguments: Any) -> Any:
        """Calls one component's implementation of a hook, inside the wrappers of all extensions.

        Raises:
            PluginError: it gave None where the hook must give a value.
        """
        caller = self._callers.get((hook, name))
        if caller is None:
            target = self.components[name]
            others = [c for n, c in self.components.items() if c is not target and n not in self._extensions]
            caller = self._callers[hook, name] = self._manager.subset_hook_caller(hook, others)
        result = caller(**arguments)
        if result is None and hook != "negotiate_mask":
            raise PluginError(f"component {name} gave nothing from its hook {hook}; the hook must return a value")
        return result

    def chain(self, hook: str, names: Iterable[str], block: Block, **arguments: Any) -> Block:
        """Hands a block from one component to the next; gives what the last one gave."""
        for name in names:
            block = self.one(hook, name, block=block, **arguments)
        return block


def new_manager() -> pluggy.PluginManager:
    """A plugin manager that knows the six hooks and no component."""
    manager = pluggy.PluginManager("fedplug")
    manager.add_hookspecs(hookspecs)
    return manager


def build(use: Use, catalog: Catalog) -> Any:
    """One component instance, with its `name`.

    Raises:
        PluginError: it is not installed, or its constructor raises.
    """
    entry = catalog.get(use.group, use.use)
    if entry is None:
        raise PluginError(f"{use.group} component {use.use} is not installed; {catalog.suggest(use.group, use.use)}")
    return instantiate(entry.load(), use)


def instantiate(component_class: type, use: Use) -> Any:
    """Calls the constructor with the options, and gives the instance its name.

    Raises:
        PluginError: the constructor raises, or the instance takes no name.
    """
    try:
        component = component_class(use.options)
        component.name = use.name
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise PluginError(f"component {use.name} ({use.use}) cannot be built: {cause}") from error
    return component


def register(manager: pluggy.PluginManager, component: Any, name: str) -> None:
    """Registers a component under its name.

    Raises:
        PluginError: it implements a hook that does not exist, or with arguments that the hook does not have.
    """
    try:
        manager.register(component, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        # pluggy names the plugin object, which would be printed with its address; the rest shows the hook's signature.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise PluginError(f"component {name}: {'; '.join(lines[1:] or lines)}") from error
    except (TypeError, ValueError) as error:
        # pluggy keeps components in sets; a dataclass with eq=True has no hash, and equals its twin.
        raise PluginError(f"component {name} must be hashable and equal to nothing but itself: {error}") from error


def hook_problems(component_class: type, group: str) -> list[str]:
    """What is wrong with a class as a member of an entry-point group, as half sentences; empty if nothing."""
    hooks = implemented_hooks(component_class)
    problems = []
    for hook, options in hooks.items():
        spec = getattr(hookspecs, hook, None)
        if spec is None:
            there_is = ", ".join(HOOK_GROUPS)
            problems.append(f"marks {hook} with @hookimpl, but there is no such hook; there is {there_is}")
            continue
        wanted = list(inspect.signature(spec).parameters)
        given = list(inspect.signature(getattr(component_class, hook)).parameters.values())[1:]
        shown = f"{hook}({', '.join(wanted)})"
        if wrong := [p.name for p in given if p.name not in wanted]:
            problems.append(f"implements {hook} with the argument {', '.join(wrong)}; the hook is {shown}")
        # pluggy never passes an argument to a parameter that has a default.
        if fixed := [p.name for p in given if p.name in wanted and p.default is not p.empty]:
            problems.append(f"implements {hook} with a default for {', '.join(fixed)}, which then never gets a value")
        if (group == "extension") != bool(options.get("wrapper") or options.get("hookwrapper")):
            rule = "must be" if group == "extension" else "must not be"
            problems.append(f"implements {hook}, which in the group {group} {rule} a wrapper: @hookimpl(wrapper=True)")
    if group in HOOK_GROUPS and group not in hooks:
        problems.append(f"does not implement {group}; mark a method of that name with @hookimpl")
    elif group == "extension" and not hooks:
        problems.append("wraps no hook; mark a method with @hookimpl(wrapper=True)")
    elif group in PROTOCOLS:
        problems += _method_problems(component_class, group)
    return problems


def implemented_hooks(component_class: type) -> dict[str, dict[str, Any]]:
    """The methods marked `@hookimpl`, with the marker's options."""
    marked = {}
    for name in dir(component_class):
        options = getattr(inspect.getattr_static(component_class, name), "fedplug_impl", None)
        if isinstance(options, dict):
            marked[options.get("specname") or name] = options
    return marked


def _method_problems(component_class: type, group: str) -> list[str]:
    method = next(name for name in vars(PROTOCOLS[group]) if not name.startswith("_"))
    wanted = list(inspect.signature(getattr(PROTOCOLS[group], method)).parameters)[1:]
    shown = f"{method}({', '.join(wanted)})"
    found = getattr(component_class, method, None)
    if not callable(found):
        return [f"has no method {shown}, which the group {group} asks for"]
    given = [p.name for p in list(inspect.signature(found).parameters.values())[1:] if p.default is p.empty]
    return [] if given == wanted else [f"has {method}({', '.join(given)}) where the group {group} asks for {shown}"]

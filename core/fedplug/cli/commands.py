"""The commands of plugins: listed with the first line of their docstring, imported when they are called."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from fedplug.api.errors import PluginError
from fedplug.recipe.catalog import COMMAND
from fedplug.recipe.summaries import summary_of

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

OFFERED = {
    "fedplug-attacks": ("attack",),
    "fedplug-flower": ("federation-app", "federation-relay", "federation-try"),
    "fedplug-lab": ("compare", "new", "report", "schema", "sites", "sweep"),
    "fedplug-party": ("party",),
    "fedplug-search": ("search",),
}
"""Commands of this project's own plugins, by distribution: one that is not installed cannot say what it would offer."""


@functools.cache
def found() -> dict[str, EntryPoint]:
    """The entry points by the name of the command.

    Raises:
        PluginError: two plugins offer one command.
    """
    from importlib_metadata import entry_points

    points: dict[str, Any] = {}
    for point in sorted(entry_points(group=f"fedplug.{COMMAND}"), key=lambda point: point.name):
        other = points.setdefault(point.name, point)
        if other.value != point.value:
            raise PluginError(
                f"the command {point.name} is offered twice, by {other.value} and by {point.value}; uninstall one"
            )
    return points


class Commands(TyperGroup):
    """The core's own commands, and those of plugins beside them."""

    # The types of contexts and commands are those of click, which newer releases of typer hold inside themselves.

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(name for name in found() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in found():
            return own
        point = found()[cmd_name]
        return TyperCommand(cmd_name, help=summary_of(point.module, point.attr))  # for the list, which imports nothing

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if not ctx.resilient_parsing and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}; {self._remedy(ctx, args[0])}")
        name, command, rest = super().resolve_command(ctx, args)
        if name in found() and name not in self.commands:
            command = _loaded(found()[name])
        return name, command, rest

    def _remedy(self, ctx: Any, name: str) -> str:
        """What to install for a command, or which was meant."""
        from fedplug.recipe.option_errors import closest

        for distribution, names in OFFERED.items():
            if name in names:
                return f"it comes with {distribution}, which is not installed: pip install {distribution}"
        known = self.list_commands(ctx) + [each for names in OFFERED.values() for each in names]
        return closest(name, dict.fromkeys(known))


def _loaded(point: EntryPoint) -> Any:
    try:
        function = point.load()
    except (Exception, SystemExit) as error:
        owner = point.dist.name if point.dist else "unknown"
        cause = f"{type(error).__name__}: {error}"
        raise PluginError(f"plugin {owner}: the command {point.name} cannot be imported: {cause}") from error
    app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]},
                      pretty_exceptions_enable=False)  # fmt: skip
    app.command(point.name, **getattr(function, "__fedplug_command__", {}))(function)
    return typer.main.get_command(app)

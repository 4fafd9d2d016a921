"""The commands of plugins: listed with the first line of their docstring, imported when they are called."""

from __future__ import annotations

import functools
from typing import Any

import typer
from fedplug.recipe.catalog import COMMAND, Entry, installed
from fedplug_runs.docstrings import decorator_text, summary
from fedplug_runs.installing import install
from typer.core import TyperCommand, TyperGroup

OFFERED = {
    "fedplug-analytics": ("ask",),
    "fedplug-attacks": ("attack",),
    "fedplug-audit": ("audit",),
    "fedplug-deployed": ("import",),
    "fedplug-evidence": ("evidence", "verify"),
    "fedplug-flower": ("federation-app", "federation-relay", "federation-try"),
    "fedplug-lab": ("compare", "data", "new", "report", "schema", "sites", "sweep"),
    "fedplug-nvflare": ("nvflare-job",),
    "fedplug-party": ("party",),
    "fedplug-policy": ("budget",),
    "fedplug-search": ("search",),
}
"""Commands of this project's own plugins, by distribution: one that is not installed cannot say what it would offer."""


RUN, INSPECT, COMPARE, FEDERATE, DEVELOP, OTHER = "Run", "Inspect", "Compare", "Federate", "Develop", "Other plugins"
PANELS = (RUN, INSPECT, COMPARE, FEDERATE, DEVELOP)
"""Groups of commands in `fedplug --help`, in this order; then groups that plugins name, and `OTHER` for the rest."""


@functools.cache
def offered() -> dict[str, Entry]:
    """The commands of plugins, by name."""
    return installed(COMMAND)


def panel(entry: Entry) -> str:
    """The group that a plugin's command names: `@command(group="Compare")`."""
    module, _, function = entry.value.partition(":")
    return decorator_text(module.strip(), function.partition("[")[0].strip(), "group") or OTHER


class Commands(TyperGroup):
    """The core's commands and those of plugins, by group."""

    # The types of contexts and commands are those of click, which newer releases of typer hold inside themselves.

    def list_commands(self, ctx: Any) -> list[str]:
        """Names by group: typer shows groups in the order of their first commands."""
        own = {name: str(getattr(command, "rich_help_panel", OTHER)) for name, command in self.commands.items()}
        panels = own | {name: panel(entry) for name, entry in offered().items() if name not in own}
        order = dict.fromkeys((*PANELS, *sorted({*panels.values()} - {OTHER}), OTHER))
        return [name for group in order for name, its in panels.items() if its == group]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in offered():
            return own
        # For the list, which imports nothing.
        entry = offered()[cmd_name]
        return TyperCommand(cmd_name, help=summary(entry), rich_help_panel=panel(entry))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if not ctx.resilient_parsing and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"No such command {args[0]!r}; {self._remedy(ctx, args[0])}")
        name, command, rest = super().resolve_command(ctx, args)
        if name in offered() and name not in self.commands:
            command = _loaded(offered()[name])
        return name, command, rest

    def _remedy(self, ctx: Any, name: str) -> str:
        """What to install for a command, or which was meant."""
        from fedplug.recipe.source import closest

        for distribution, names in OFFERED.items():
            if name in names:
                return f"it comes with {distribution}, which is not installed: {install(distribution)}"
        known = self.list_commands(ctx) + [each for names in OFFERED.values() for each in names]
        return closest(name, dict.fromkeys(known))


def _loaded(entry: Entry) -> Any:
    function = entry.imported()
    app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]},
                      pretty_exceptions_enable=False)  # fmt: skip
    app.command(entry.name, **getattr(function, "__fedplug_command__", {}))(function)
    return typer.main.get_command(app)

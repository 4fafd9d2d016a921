"""Options that several commands share, and how plugins add commands.

An entry point of the group `fedplug.command` names the command and the function that is it, annotated as typer wants,
and perhaps marked with `command`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

F = TypeVar("F", bound=Callable[..., Any])

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.", show_default=False)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the recipe: --set protect.noised.0.norm=0.5"),
]
Engine = Annotated[str | None, typer.Option(help="What runs the parties: local, processes, or a plugin's engine.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes, for engines that have them.")]
Resident = Annotated[
    int | None, typer.Option(metavar="N", help="Clients in memory at a time; the others are on disk. Default: all.")
]
Timeout = Annotated[
    int | None,
    typer.Option(
        metavar="SECONDS",
        help="Leave a client that is silent for longer out of the round. Default: 1800; 0: wait for ever.",
    ),
]
Device = Annotated[str | None, typer.Option(help="auto (CUDA if there is any), cpu, cuda, cuda:1, ...")]
Output = Annotated[Path | None, typer.Option(help="Folder in which the run gets its own folder.")]
Data = Annotated[Path | None, typer.Option(help="Folder of data sets; else FEDPLUG_DATA or the config file.")]
RecordWire = Annotated[bool | None, typer.Option("--record-wire/--no-record-wire", help="Keep every message.")]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME", help="An extension that hears it: NAME, or '{use: NAME, option: value}'"),
]
Without = Annotated[
    list[str] | None, typer.Option("--without", metavar="NAME", help="An extension that is not to hear it.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings, and what it came to at the end.")]


def settings_of(**changes: Any) -> Any:
    """The user's settings with what the command line says of them; what it leaves out is None.

    Raises:
        SetupError: a value that cannot be.
    """
    from fedplug.api.errors import SetupError
    from fedplug.runs.settings import OF_PROCESSES, Settings

    settings = Settings.load()
    for key in ("listeners", "muted"):  # beside those of the config file
        if changes.get(key) is not None:
            changes[key] = (*getattr(settings, key), *changes[key])
    settings = settings.replace(changes)
    for key in OF_PROCESSES if settings.engine == "local" else ():
        if changes.get(key) is not None:
            raise SetupError(f"--{key} {changes[key]} changes nothing with --engine local; add --engine processes")
    return settings


def command(**keywords: Any) -> Callable[[F], F]:
    """Marks a function with what typer's `command` takes besides the name: `epilog`, `cls`."""

    def mark(function: F) -> F:
        function.__fedplug_command__ = keywords  # type: ignore[attr-defined]
        return function

    return mark

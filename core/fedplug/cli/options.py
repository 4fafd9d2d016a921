"""Options that several commands share, and how plugins add commands.

An entry point of the group `fedplug.command` names the command and the function that is it, annotated as typer wants,
and perhaps marked with `command`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand

from fedplug.cli import completion

F = TypeVar("F", bound=Callable[..., Any])

RecipeFile = Annotated[Path, typer.Argument(
    metavar="RECIPE", help="The recipe, a YAML file.", show_default=False, autocompletion=completion.recipes)]
RunFolder = Annotated[Path, typer.Argument(
    metavar="RUN", help="The folder of a run.", show_default=False, autocompletion=completion.runs)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the recipe: --set protect.noised.0.norm=0.5",
                 autocompletion=completion.values),
]
Engine = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        autocompletion=completion.engines,
        help="What runs the parties: local, processes, or a plugin's, whose own options fedplug show NAME lists.",
    ),
]
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
Device = Annotated[str | None, typer.Option(
    help="auto (CUDA if there is any), cpu, cuda, cuda:1, ...", autocompletion=completion.devices)]
Output = Annotated[Path | None, typer.Option(help="Folder in which the run gets its own folder.")]
Data = Annotated[Path | None, typer.Option(help="Folder of data sets; else FEDPLUG_DATA or the config file.")]
RecordWire = Annotated[bool | None, typer.Option("--record-wire/--no-record-wire", help="Keep every message.")]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin", metavar="FILE", help="A Python file whose components count as installed: X of my.py is my.X."
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="NAME", help="An extension that hears it: NAME, or '{use: NAME, option: value}'",
                 autocompletion=completion.extensions),
]
Without = Annotated[
    list[str] | None, typer.Option("--without", metavar="NAME", help="An extension that is not to hear it.",
                                     autocompletion=completion.extensions)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings, and what it came to at the end.")]


class WithEngine(TyperCommand):
    """Lets `--engine NAME --option value` stand for `--engine '{use: NAME, option: value}'`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:  # a shell completes a line that is not whole yet
            return super().parse_args(ctx, args)
        known = {option for param in self.params for option in (*param.opts, *param.secondary_opts)}
        return super().parse_args(ctx, _gathered(args, {*known, "--help"}))


def _gathered(words: list[str], known: set[str]) -> list[str]:
    """The words of a command with the options of its engine in one of them.

    Args:
        words: of the command.
        known: options that the command itself has.

    Raises:
        SetupError: an option that neither the command nor the engine has, or one without a value.
    """
    strange = [word for word in words if word.startswith("--") and word != "--" and word.partition("=")[0] not in known]
    if not strange:
        return words
    from fedplug.api.errors import SetupError
    from fedplug.engines.choice import engine_entry, options_class
    from fedplug.recipe.option_errors import closest
    from fedplug.runs.settings import Settings, engine_use

    chosen = [after for word, after in pairwise([*words, ""]) if word == "--engine"]
    chosen += [word.partition("=")[2] for word in words if word.startswith("--engine=")]
    name, given = engine_use(chosen[-1]) if chosen else (Settings.load().engine, {})
    kind = options_class(engine_entry(name).load())
    if kind is None:
        _require_no_keys(strange)
        return words
    names = {f"--{field.replace('_', '-')}": field for field in kind.model_fields}
    rest, left = [], iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        if word not in strange:
            rest.append(word)
        elif option not in names:
            hint = closest(option, [*names, *sorted(known)])
            raise SetupError(f"neither the command nor engine {name} has an option {option}; {hint}")
        else:
            text = value if equals else next(left, None)
            if text is None:
                raise SetupError(f"{option} needs a value; fedplug show {name} says which")
            given[names[option]] = text
    return [*rest, "--engine", json.dumps({"use": name, **given})]


def _require_no_keys(strange: list[str]) -> None:
    """Refuses options that are keys of a recipe, with what they are written as; typer says the rest."""
    from fedplug.api.errors import SetupError
    from fedplug.recipe.parts import General

    for word in strange:
        option, _, value = word.partition("=")
        if (key := option.removeprefix("--")) in General.model_fields:
            raise SetupError(f"{option} is a value of the recipe; write --set {key}={value or 'VALUE'}")


def settings_of(**changes: Any) -> Any:
    """The user's settings with what the command line says of them; what it leaves out is None.

    Raises:
        SetupError: a value that cannot be.
    """
    from fedplug.api.errors import SetupError
    from fedplug.runs.settings import OF_PROCESSES, Settings

    settings = Settings.load()
    for key in ("listeners", "muted", "plugins"):  # beside those of the config file
        if changes.get(key) is not None:
            changes[key] = (*getattr(settings, key), *map(str, changes[key]))
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

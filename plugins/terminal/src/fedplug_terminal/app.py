"""The core's commands of `fedplug`, as a typer application. Everything heavy is imported inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug_runs.onward import settings_of
from fedplug_runs.settings import Settings

from fedplug_terminal import completion
from fedplug_terminal.commands import INSPECT, RUN, Commands
from fedplug_terminal.options import (
    Json,
    Plugins,
    RecipeFile,
    RecipeFiles,
    RunFolder,
    Sets,
    Trust,
    WithEngine,
    WithEngineOfRun,
    takes,
)  # fmt: skip

completion.answer_zsh_at_once()
app = typer.Typer(
    name="fedplug",
    cls=Commands,
    help="Compose, run, attack and compare privacy protocols for federated learning.",
    epilog="Example: fedplug run paraaegis-dynamic --set rounds=5",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib_metadata import version

        typer.echo(f"fedplug {version('fedplug')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _common(version: Version = False) -> None:
    """Options before the command's name."""


@app.command(
    "run", cls=WithEngine, rich_help_panel=RUN,
    epilog="Example: fedplug run recipe.yaml --set rounds=5 --engine processes --workers 2",
)  # fmt: skip
@takes("plugins", "engine", "workers", "max_clients_in_memory", "threads", "timeout", "device", "output", "data",
       "record_wire", "listeners", "muted", "allow_outside", "quiet")  # fmt: skip
def run_recipe(
    recipe: RecipeFile,
    settings: Settings,
    sets: Sets = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check, and estimate time, bytes, memory and epsilon by a round in memory."),
    ] = False,
) -> None:
    """Run a recipe and write the results to a new folder."""
    from fedplug_runs import functions

    if dry_run:
        from fedplug_terminal.dry import dry_run as estimated

        raise typer.Exit(estimated(recipe, sets, settings))
    raise typer.Exit(functions.run(recipe, sets, settings=settings, display="terminal").exit_code)


@app.command(
    cls=WithEngineOfRun, rich_help_panel=RUN,
    epilog="Example: fedplug resume runs/paraaegis-dynamic-20260101-120000 --round 5",
)
@takes("engine", "workers", "max_clients_in_memory", "threads", "timeout", "device", "data", "record_wire",
       "plugins", "listeners", "muted", "allow_outside", "trust", "quiet",
       begun=lambda run, **_: settings_of(run))  # fmt: skip
def resume(
    run: RunFolder,
    settings: Settings,
    round: Annotated[
        int | None, typer.Option(min=0, help="Go back to the checkpoint after this many rounds; default: the last.")
    ] = None,
) -> None:
    """Continue an interrupted run from its last checkpoint, on the engine and with the data folder that it had."""
    from fedplug_runs import functions

    raise typer.Exit(functions.resume(run, round, settings=settings, display="terminal").exit_code)


@app.command(
    "runs", rich_help_panel=INSPECT, epilog="Example: fedplug runs, or fedplug runs runs/sweep-fedavg-norms --json",
)
def runs_command(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[FOLDER]", help="Where to look. Default: the folder of runs.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """List runs: date, recipe, rounds done, the figure that leads, the verdict, and whether they can be resumed."""
    from fedplug_terminal.runs import list_runs

    raise typer.Exit(list_runs(folder or Settings.load().output, as_json))


@app.command(
    "list", rich_help_panel=INSPECT,
    epilog="Example: fedplug list protect std, or fedplug list --json | jq -r '.[].name'",
)
def list_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...", help="Filters: a hook, a plugin, a part of a name, or a word of the documentation.",
            autocompletion=completion.words, show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Import every component too; exit 1 if any fails.")] = False,
    plugins: Plugins = None,
    trust: Trust = False,
) -> None:
    """List the installed components by hook. Words filter the list: a component has to match all of them."""
    from fedplug_runs.own_files import with_files
    from fedplug_runs.trust import Consent

    from fedplug_terminal.catalog import list_components

    raise typer.Exit(list_components(with_files(None, plugins, Consent(trust)), as_json, verify, words or []))


@app.command(rich_help_panel=INSPECT, epilog="Example: fedplug show std.gaussian")
def show(
    component: Annotated[
        str,
        typer.Argument(
            metavar="COMPONENT", help="Its name, as fedplug list shows it, or FILE.py:CLASS.",
            autocompletion=completion.components,
        ),
    ],
    as_json: Json = False,
    plugins: Plugins = None,
    trust: Trust = False,
) -> None:
    """Show a component: its documentation, its options, and its source."""
    from fedplug_runs.own_files import with_files
    from fedplug_runs.trust import Consent

    from fedplug_terminal.catalog import show_component

    raise typer.Exit(show_component(with_files(None, plugins, Consent(trust)), component, as_json))


@app.command(
    "recipes", rich_help_panel=RUN,
    epilog="Example: fedplug recipes, or fedplug recipes paraaegis-dynamic --copy",
)
def recipes_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A recipe to print, or a part of the names to list.",
                       autocompletion=completion.recipes, show_default=False),
    ] = None,
    copy: Annotated[bool, typer.Option("--copy", help="Copy the recipe to a file in the working directory.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --copy: the file to write. It must not exist.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="List comparisons and grids too.")] = False,
) -> None:
    """List the installed recipes, print one, or copy one to edit it."""
    from fedplug_terminal.shelf import copy_recipe, list_recipes

    if copy:
        typer.echo(copy_recipe(name or "", out))
    else:
        typer.echo("\n".join(list_recipes(name or "", every)))


@app.command(rich_help_panel=RUN, epilog="Example: fedplug check recipes/*.yaml")
def check(
    recipes: RecipeFiles,
    sets: Sets = None,
    as_json: Json = False,
    plugins: Plugins = None,
    trust: Trust = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Folder of data sets: load them, and try two rounds with a few examples."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Policy of a site: say what of it a recipe breaks.")
    ] = None,
) -> None:
    """Check recipes without running them, and print every problem with file, line and column. With --data, try two
    rounds with a few examples of each client.
    """
    from fedplug_runs.own_files import with_files
    from fedplug_runs.trust import Consent

    from fedplug_terminal.catalog import check_recipes

    consent = Consent(trust, ask=not as_json)
    raise typer.Exit(check_recipes(recipes, sets, with_files(None, plugins, consent), data, as_json, policy))

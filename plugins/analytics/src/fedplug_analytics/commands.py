"""The command `fedplug ask`. Everything heavy is imported inside it."""

from __future__ import annotations

import typer
from fedplug import Settings
from fedplug_terminal.options import Json, RecipeFile, Sets, WithEngine, command, takes


@command(group="Run", cls=WithEngine, epilog="Example: fedplug ask statistics/statistics --json")
@takes("plugins", "engine", "workers", "timeout", "output", "data", "trust")
def ask(recipe: RecipeFile, settings: Settings, sets: Sets = None, as_json: Json = False) -> None:
    """Run a recipe of statistics, and print the answers and what they cost."""
    from fedplug_analytics.asking import ask as asked

    raise typer.Exit(asked(recipe, sets or [], settings, as_json))

"""The command `fedplug search`. Everything heavy is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug_lab.commands import DryRun, Jobs, Seeds, WithSeeds
from fedplug_runs.settings import Settings
from fedplug_terminal.options import RecipeFile, Sets, command, takes

QUESTION = "Question"
"""The group of options that say what to look for."""


@command(
    group="Compare",
    cls=WithSeeds,
    epilog=(
        "Example: fedplug search recipes/paraaegis-static.yaml --over negotiate_mask.ratio=0.05..0.5 "
        "--min accuracy=0.9 --max bytes=100MB --trials 30. More: docs/searching.md"
    ),
)
@takes("engine", "workers", "device", "data", "plugins", "trust", "quiet")
def search(
    recipe: RecipeFile,
    settings: Settings,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=RANGE", rich_help_panel=QUESTION,
            help="Values to search: negotiate_mask.ratio=0.05..0.5, train.lr=1e-3..1e-1:log, rounds=[10, 20]",
        ),
    ] = None,
    least: Annotated[
        list[str] | None,
        typer.Option("--min", metavar="MEASURE=BOUND", rich_help_panel=QUESTION, help="A constraint: accuracy=0.9"),
    ] = None,
    most: Annotated[
        list[str] | None,
        typer.Option("--max", metavar="MEASURE=BOUND", rich_help_panel=QUESTION,
                     help="A constraint: epsilon=8, bytes=100MB"),
    ] = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MEASURE", rich_help_panel=QUESTION,
            help="A measure to optimise, with =min or =max. Default: accuracy, and the measures of constraints."
        ),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=QUESTION, help="A YAML file with over, min, max and objectives."),
    ] = None,
    seeds: Seeds = None,
    sets: Sets = None,
    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of trials in all. A larger number continues a search.")
    ] = 20,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin no trial after this time: 90s, 30min, 2h.")
    ] = None,
    prune: Annotated[
        str,
        typer.Option(metavar="RULE", help="End trials early: all (every rule), certain (not if only hopeless), none."),
    ] = "all",
    search_seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the choices.")] = 0,
    private: Annotated[
        str,
        typer.Option(
            metavar="LAW", rich_help_panel=QUESTION,
            help="A private choice: the number of trials is drawn, with mean --trials: geometric, logarithmic, "
            "poisson, or an eta. The chosen model then costs little more than one run.",
        ),
    ] = "",
    jobs: Jobs = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the search. Default: search-RECIPE in the folder of runs.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Search for options with which a recipe meets constraints. The same command continues an interrupted search."""
    from fedplug_search import searching
    from fedplug_search.question import Asked

    folder = output or settings.output / f"search-{recipe.stem}"
    asked = Asked(
        over or (), least or (), most or (), objective or (), sets or (), seeds or (), space, trials, jobs, search_seed,
        prune, None if timeout is None else _seconds(timeout), dry_run, private,
    )  # fmt: skip
    raise typer.Exit(searching.search(recipe, settings.replace({"output": folder}), asked))


def _seconds(text: str) -> float:
    """A time as people write it.

    Raises:
        SetupError: it is none.
    """
    from fedplug.api.errors import SetupError

    from fedplug_search.measures import MEASURES

    try:
        return MEASURES["seconds"].read(text)
    except ValueError as error:
        raise SetupError(f"--timeout: {error}") from error

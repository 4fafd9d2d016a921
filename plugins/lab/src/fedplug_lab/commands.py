"""The commands of the lab: `fedplug sweep`, `compare`, `new`, `report`, `schema`, `sites`. Heavy imports are inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from fedplug_runs.settings import Settings
from fedplug_terminal.options import Compared, GridFile, RecipeFile, RunFolder, Sets, WithEngine, command, takes


class WithSeeds(WithEngine):
    """Reads `--seeds 1 2 3` as `--seeds 1 --seeds 2 --seeds 3`."""

    def parse_args(self, facts: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        for word in args:
            follows = len(spread) > 1 and spread[-2] == "--seeds" and spread[-1].isdigit() and word.isdigit()
            spread += ["--seeds", word] if follows else [word]
        return super().parse_args(facts, spread)


Seeds = Annotated[list[int] | None, typer.Option(min=0, help="Run each with each seed: --seeds 1 2 3")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check all and list what would run.")]
Jobs = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Runs at a time. Default: one a core. Parallel runs take longer each."),
]


@command(
    group="Compare", cls=WithSeeds,
    epilog="Example: fedplug sweep recipe.yaml grid.yaml --seeds 1 2 3 --output runs/grid",
)
@takes("plugins", "engine", "workers", "device", "data", "trust", "quiet")
def sweep(
    recipe: RecipeFile,
    settings: Settings,
    grid: GridFile,
    seeds: Seeds = None,
    sets: Sets = None,
    jobs: Jobs = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the sweep. Default: sweep-RECIPE-GRID in the folder of runs.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Run a recipe with every combination of a grid of values. The same command continues an interrupted sweep."""
    from fedplug_lab import sweep as sweeps

    folder = output or settings.output / f"sweep-{recipe.stem}-{grid.stem}"
    settings = settings.replace({"output": folder})
    raise typer.Exit(sweeps.sweep(recipe, grid, settings, sets or [], seeds or [], dry_run, jobs=jobs))


@command(
    group="Compare", cls=WithSeeds,
    epilog="Example: fedplug compare recipes/fedavg.yaml recipes/fas.yaml --seeds 1 2 3",
)
@takes("plugins", "engine", "workers", "device", "data", "trust", "quiet")
def compare(
    settings: Settings,
    what: Compared,
    seeds: Seeds = None,
    sets: Sets = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="The protocol that others are compared with. Default: the first.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="Print only the table, as csv, json, latex or markdown.")
    ] = None,
    jobs: Jobs = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of runs. Complete runs in it are used. New runs and the page go there.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all, list what would run, and estimate time, bytes and epsilon.")
    ] = False,
) -> None:
    """Run the recipes that have no run yet, and compare all runs. The same command continues after an interruption."""
    from fedplug_lab import compare as comparing

    asked = comparing.Asked(baseline or "", seeds or (), sets or (), jobs, dry_run, format or "")
    raise typer.Exit(comparing.compare(what, settings.replace({"output": output}), asked))


@command(group="Develop", epilog="Example: fedplug schema > recipe.schema.json")
def schema() -> None:
    """Print the JSON schema of recipes, with the options of all installed components."""
    import json

    from fedplug.recipe.catalog import Catalog

    from fedplug_lab.schema import recipe_schema

    result, failures = recipe_schema(Catalog.discover())
    typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    for failure in failures:
        typer.echo(f"left out: {failure}", err=True)
    raise typer.Exit(1 if failures else 0)


@command(group="Federate", epilog="Example: fedplug sites recipes/fedavg.yaml --out trial")
@takes("data", "plugins", "trust")
def sites(
    recipe: RecipeFile,
    settings: Settings,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for client-0, client-1, ..., empty or new.")],
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="DATA", help="The data set to split if the recipe has its data at sites."),
    ] = None,
    sets: Sets = None,
) -> None:
    """Split a data set into a folder for each client. Recipes with data at sites then run on one machine."""
    from fedplug_lab.sites import write_sites

    for line in write_sites(recipe, out, source, sets or [], settings):
        typer.echo(line)


_ROLES = (
    "aggregate", "attack", "dataset", "model", "negotiate_mask", "postprocess", "protect", "public_plan",
    "score_parameters", "sealer",
)  # fmt: skip
"""Those of which there is an example: what `new.roles` finds, which is not looked for before anybody asks."""


@command(group="Develop", epilog="Example: fedplug new my_rounding --role protect")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the plugin: lower-case letters, digits and _.")],
    role: Annotated[str, typer.Option(
        metavar="ROLE", help=f"Role of its component: {', '.join(_ROLES)}.", autocompletion=lambda: [*_ROLES])],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write, empty or new. Default: fedplug-NAME.")
    ] = None,
) -> None:
    """Create a plugin that installs and runs: a component, its recipe, and its test."""
    from fedplug_lab.new import write

    folder = write(name, role, out)
    typer.echo(f"{folder} has the plugin; go on there: pip install -e '.[test]' && pytest")


@command(group="Inspect", epilog="Example: fedplug report runs/fedavg-20260101-120000")
def report(run: RunFolder) -> None:
    """Draw the report of a run again from the files in its folder."""
    from fedplug_lab.report import rewrite_report

    typer.echo(rewrite_report(run))

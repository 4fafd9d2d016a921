"""The commands `fedplug sweep` and `fedplug report`. Everything heavy is imported inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from fedplug.cli.options import (
    Data,
    Device,
    Engine,
    Quiet,
    RecipeFile,
    RunFolder,
    Sets,
    Workers,
    command,
    settings_of,
)
from typer.core import TyperCommand


class _Sweep(TyperCommand):
    """Lets `--seeds 1 2 3` stand for `--seeds 1 --seeds 2 --seeds 3`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        for word in args:
            follows = len(spread) > 1 and spread[-2] == "--seeds" and spread[-1].isdigit() and word.isdigit()
            spread += ["--seeds", word] if follows else [word]
        return super().parse_args(ctx, spread)


@command(cls=_Sweep, epilog="Example: fedplug sweep recipe.yaml grid.yaml --seeds 1 2 3 --output runs/grid")
def sweep(
    recipe: RecipeFile,
    grid: Annotated[
        Path, typer.Argument(metavar="GRID", help="Values to try, a YAML file: parameters, cases.", show_default=False)
    ],
    seeds: Annotated[
        list[int] | None, typer.Option(min=0, help="Run each combination with each seed: --seeds 1 2 3")
    ] = None,
    sets: Sets = None,
    engine: Engine = None,
    workers: Workers = None,
    device: Device = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the sweep; default: sweep-RECIPE-GRID in the folder of runs.")
    ] = None,
    data: Data = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all combinations and list them; run none.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run a recipe with every combination of a grid of values; the same command continues an interrupted sweep."""
    settings = settings_of(engine=engine, workers=workers, device=device, data=data, quiet=quiet)
    from fedplug_lab import sweep as sweeps

    folder = output or settings.output / f"sweep-{recipe.stem}-{grid.stem}"
    raise typer.Exit(sweeps.sweep(recipe, grid, settings.replace({"output": folder}), sets or [], seeds or [], dry_run))


@command(epilog="Example: fedplug report runs/fedavg-20260101-120000")
def report(run: RunFolder) -> None:
    """Draw the report of a run again, from the files in its folder."""
    from fedplug_lab.report import rewrite_report

    typer.echo(rewrite_report(run))

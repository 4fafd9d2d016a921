"""The commands of `fedplug`, as a typer application. Everything heavy is imported inside the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

app = typer.Typer(
    name="fedplug",
    help="Compose, run, attack and compare privacy protocols for federated learning.",
    epilog="Example: fedplug run recipes/paraaegis-dynamic.yaml --set rounds=5",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file.", show_default=False)]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change one value of the recipe: --set protect.noised.0.norm=0.5"),
]
Engine = Annotated[str | None, typer.Option(help="What runs the parties: local, processes, or a plugin's engine.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes, for engines that have them.")]
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


def _version(wanted: bool) -> None:
    if wanted:
        from importlib_metadata import version

        typer.echo(f"fedplug {version('fedplug')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


@app.callback()
def _common(version: Version = False) -> None:
    """Options before the command's name."""


@app.command("run", epilog="Example: fedplug run recipe.yaml --set rounds=5 --engine processes --workers 2")
def run_recipe(
    recipe: RecipeFile,
    sets: Sets = None,
    engine: Engine = None,
    workers: Workers = None,
    device: Device = None,
    output: Output = None,
    data: Data = None,
    record_wire: RecordWire = None,
    listeners: With = None,
    muted: Without = None,
    quiet: Quiet = False,
) -> None:
    """Run a protocol and write what happened to a new folder."""
    settings = _settings(
        engine=engine, workers=workers, device=device, output=output, data=data, record_wire=record_wire, quiet=quiet,
        listeners=listeners, muted=muted,
    )  # fmt: skip
    from fedplug import run_command

    raise typer.Exit(run_command.run(recipe, sets or [], settings))


@app.command(epilog="Example: fedplug resume runs/paraaegis-dynamic-20260101-120000 --round 5")
def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.", show_default=False)],
    round: Annotated[
        int | None, typer.Option(min=0, help="Go back to the checkpoint after this many rounds; default: the last.")
    ] = None,
    engine: Engine = None,
    workers: Workers = None,
    device: Device = None,
    data: Data = None,
    record_wire: RecordWire = None,
    listeners: With = None,
    muted: Without = None,
    quiet: Quiet = False,
) -> None:
    """Continue a run that was interrupted, from its last checkpoint."""
    settings = _settings(
        engine=engine, workers=workers, device=device, data=data, record_wire=record_wire, quiet=quiet,
        listeners=listeners, muted=muted,
    )  # fmt: skip
    from fedplug import run_command

    raise typer.Exit(run_command.resume(run, settings, round))


def _settings(**changes: Any) -> Any:
    from fedplug.errors import SetupError
    from fedplug.settings import Settings

    settings = Settings.load()
    for key in ("listeners", "muted"):  # beside those of the config file
        if changes.get(key) is not None:
            changes[key] = (*getattr(settings, key), *changes[key])
    settings = settings.replace(changes)
    if changes["workers"] is not None and settings.engine == "local":
        raise SetupError(f"--workers {changes['workers']} changes nothing with --engine local; add --engine processes")
    return settings


class _Sweep(TyperCommand):
    """Lets `--seeds 1 2 3` stand for `--seeds 1 --seeds 2 --seeds 3`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        for word in args:
            follows = len(spread) > 1 and spread[-2] == "--seeds" and spread[-1].isdigit() and word.isdigit()
            spread += ["--seeds", word] if follows else [word]
        return super().parse_args(ctx, spread)


@app.command(cls=_Sweep, epilog="Example: fedplug sweep recipe.yaml grid.yaml --seeds 1 2 3 --output runs/grid")
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
    settings = _settings(engine=engine, workers=workers, device=device, data=data, quiet=quiet)
    from fedplug_lab import sweep as sweeps

    folder = output or settings.output / f"sweep-{recipe.stem}-{grid.stem}"
    raise typer.Exit(sweeps.sweep(recipe, grid, settings.replace({"output": folder}), sets or [], seeds or [], dry_run))


@app.command(epilog="Example: fedplug attack runs/fas-20260101-120000 --attack ilrg --adversary server --probe 30")
def attack(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.", show_default=False)],
    attacks: Annotated[
        list[str] | None, typer.Option("--attack", help="An attack, as fedplug list shows it; again for more.")
    ] = None,
    adversaries: Annotated[
        list[str] | None,
        typer.Option(
            "--adversary", help="server, eavesdropper, client, key_server, released; server+client for several."
        ),
    ] = None,
    targets: Annotated[list[int] | None, typer.Option("--target", min=0, help="A client to attack.")] = None,
    rounds: Annotated[list[int] | None, typer.Option("--round", min=1, help="A round to attack, from 1.")] = None,
    probe: Annotated[
        int | None, typer.Option(min=1, metavar="SIZE", help="Attack single batches of this size instead of updates.")
    ] = None,
    batches: Annotated[int | None, typer.Option(min=1, help="How many batches to probe each target for.")] = None,
    metrics: Annotated[list[str] | None, typer.Option("--metric", help="A metric; default: all usual ones.")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Set one value: --set attack.attacks.0.restarts=3"),
    ] = None,
    device: Device = None,
    data: Data = None,
    quiet: Quiet = False,
) -> None:
    """Attack what crossed the wire in a finished run; finished targets are kept and not attacked again."""
    from fedplug import attack_command

    settings = _settings(workers=None, device=device, data=data, quiet=quiet)
    lists = {"adversaries": adversaries, "targets": targets, "rounds": rounds}
    scope: dict[str, Any] = {key: value for key, value in lists.items() if value}
    if probe is not None or batches is not None:
        scope["probe"] = {"batch_size": probe, "batches": batches}
    found = attack_command.attack(run, settings, attacks or [], metrics or [], scope, sets or [])
    raise typer.Exit(found)


@app.command("list", epilog="Example: fedplug list --json | jq -r '.[].name'")
def list_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Import every component too; exit 1 if any fails.")] = False,
) -> None:
    """List the installed components, grouped by hook."""
    from fedplug.catalog import Catalog
    from fedplug.cli_catalog import list_components

    raise typer.Exit(list_components(Catalog.discover(), as_json, verify))


@app.command(epilog="Example: fedplug show std.gaussian")
def show(
    component: Annotated[str, typer.Argument(metavar="COMPONENT", help="Its name, as fedplug list shows it.")],
) -> None:
    """Show what a component does, its options and where it comes from."""
    from fedplug.catalog import Catalog
    from fedplug.cli_catalog import show_component

    raise typer.Exit(show_component(Catalog.discover(), component))


@app.command(epilog="Example: fedplug check recipes/*.yaml")
def check(
    recipes: Annotated[list[Path], typer.Argument(metavar="RECIPE...", help="YAML files.", show_default=False)],
    sets: Sets = None,
) -> None:
    """Check recipes without running them; print every problem with file, line and column."""
    from fedplug.catalog import Catalog
    from fedplug.errors import RecipeError
    from fedplug.recipe import load_recipe

    catalog = Catalog.discover()
    problems = 0
    for path in recipes:
        try:
            typer.echo(f"{path}: ok ({load_recipe(path, sets or [], catalog).digest[:12]})")
        except RecipeError as error:
            problems += len(error.problems)
            typer.echo("\n".join(error.problems))
    if problems:
        typer.echo(f"{problems} problem{'s' if problems > 1 else ''}", err=True)
    raise typer.Exit(1 if problems else 0)


@app.command(epilog="Example: fedplug schema > recipe.schema.json")
def schema() -> None:
    """Print the JSON schema of recipes, with the options of all installed components."""
    import json

    from fedplug.catalog import Catalog
    from fedplug.schema import recipe_schema

    result, failures = recipe_schema(Catalog.discover())
    typer.echo(json.dumps(result, indent=2, ensure_ascii=False))
    for failure in failures:
        typer.echo(f"left out: {failure}", err=True)
    raise typer.Exit(1 if failures else 0)

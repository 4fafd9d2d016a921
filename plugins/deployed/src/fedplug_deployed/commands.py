"""The command `fedplug import`. Everything heavy is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from fedplug_terminal.options import Trust, command


@command(group="Compare", epilog="Example: fedplug import nvflare jobs/hello-pt --to hello.yaml")
def import_(
    framework: Annotated[Literal["nvflare", "flower"], typer.Argument(help="What the job is written for.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A job of NVFlare, or an app of Flower.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The recipe. Default: NAME.yaml in the working directory.")
    ] = None,
    dataset: Annotated[
        str, typer.Option(metavar="NAME", help="Data set that stands in for that of the job.")
    ] = "std.digits",
    sites: Annotated[
        list[Path] | None,
        typer.Option(
            "--site", metavar="FOLDER",
            help="A site of NVFlare, with local/privacy.json, whose filters come before the job's. May be repeated.",
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Write a recipe of another framework's job, with a line for what it has in another way, or not at all. None of the
    job's code runs without --trust.
    """
    from fedplug.api.errors import SetupError

    from fedplug_deployed.draft import written
    from fedplug_deployed.flower_app import read_app
    from fedplug_deployed.nvflare_job import read_job

    if not folder.is_dir():
        raise SetupError(f"{folder} is no folder; name that of a job of NVFlare or of an app of Flower")
    base = to.parent if to else Path()
    if sites and framework != "nvflare":
        raise SetupError(f"--site {sites[0]} is a site of NVFlare, and the app is of Flower; leave it out")
    draft = read_job(folder, base, sites or ()) if framework == "nvflare" else read_app(folder, base)
    path = to or Path(f"{draft.name}.yaml")
    for line in written(draft, path, dataset, trust):
        typer.echo(f"note: {line}")
    typer.echo(f"recipe: {path}; to run it: fedplug run {path}")

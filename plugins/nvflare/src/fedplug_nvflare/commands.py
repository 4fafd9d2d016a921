"""The command `fedplug nvflare-job`. Everything heavy is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug_terminal.options import Plugins, RecipeFile, Sets, Trust, command

SITES = """Each site has a fedplug party, and an NVFlare client named client-0, client-1, ... or key-server.
Its local/fedplug.json names the party: {"state": "FOLDER"}
Its local/resources.json allows the executor: "class_allow_list": ["fedplug_nvflare.relay.PartyRelay"]
NVFlare's server allows fedplug_nvflare.controller.FedplugController there."""


@command(
    group="Federate", epilog="Example: fedplug nvflare-job recipes/bfv-fedavg.yaml job && nvflare job submit -j job"
)  # fmt: skip
def nvflare_job(
    recipe: RecipeFile,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Job folder to write: empty, or not there yet.", show_default=False)
    ],
    output: Annotated[str, typer.Option(metavar="DIR", help="Folder of runs at NVFlare's server.")] = "",
    resume: Annotated[str, typer.Option(metavar="RUN", help="A run there that the job continues.")] = "",
    round: Annotated[int, typer.Option(min=0, help="Its checkpoint to go back to; 0: the last one.")] = 0,
    sets: Sets = None,
    plugins: Plugins = None,
    trust: Trust = False,
) -> None:
    """Write the folder of an NVFlare job, which runs a recipe in an NVFlare federation."""
    from fedplug_runs import functions
    from fedplug_runs.own_files import with_files
    from fedplug_runs.trust import Consent

    from fedplug_nvflare.job_folder import write_job

    checked = functions.check(recipe, sets, catalog=with_files(None, plugins, Consent(trust, ask=True)))
    said = {"output": output, "resume": resume, "round": round}
    write_job(checked, folder, {name: value for name, value in said.items() if value})
    submit = f"nvflare job submit -j {folder}"
    typer.echo(f"wrote {folder} with recipe {checked.name}, digest {checked.digest}; submit it: {submit}")
    typer.echo(SITES)

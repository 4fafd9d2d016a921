"""The commands `fedplug federation-app`, `-relay` and `-try`. Everything heavy is imported inside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug_runs.settings import Settings
from fedplug_terminal.options import Plugins, RecipeFile, Sets, Trust, command, takes

Clients = Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of clients; default: as in the recipe.")]


@command(
    group="Federate",
    epilog="Example: fedplug federation-app recipes/bfv-fedavg.yaml app && flwr run app my-federation --stream",
)
def federation_app(
    recipe: RecipeFile,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="App folder to write: empty, or not there yet.", show_default=False)
    ],
    sets: Sets = None,
    plugins: Plugins = None,
    trust: Trust = False,
) -> None:
    """Write the app folder for `flwr run`, which runs a recipe in a Flower federation."""
    from fedplug_runs import functions
    from fedplug_runs.own_files import with_files
    from fedplug_runs.trust import Consent

    from fedplug_flower.app_folder import write_app

    checked = functions.check(recipe, sets, catalog=with_files(None, plugins, Consent(trust, ask=True)))
    write_app(checked, folder)
    typer.echo(f"wrote {folder} with recipe {checked.name}, digest {checked.digest}; run: flwr run {folder} --stream")


@command(
    group="Federate",
    epilog="Example: fedplug federation-relay --state /srv/fedplug/client-0 --secret /srv/fedplug/relay.secret",
)
def federation_relay(
    secret: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The file given to the SuperNode as --superexec-auth-secret-file."),
    ],
    state: Annotated[Path, typer.Option(metavar="DIR", help="The party's --state folder.")],
    port: Annotated[int, typer.Option(help="The SuperNode's --port on this machine.")] = 9094,
) -> None:
    """Pass messages from a SuperNode (--isolation process) to a party on this machine. Loads no code of the server."""
    from fedplug_flower.worker import work

    work(f"127.0.0.1:{port}", secret, state)


@command(group="Federate", epilog="Example: fedplug federation-try recipes/bfv-fedavg.yaml --clients 2 --set rounds=2")
@takes("timeout", "output", "data", "record_wire", "plugins", engine="flower")
def federation_try(
    recipe: RecipeFile,
    settings: Settings,
    clients: Clients = None,
    sets: Sets = None,
    folder: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep keys, logs and the parties' states in this folder.")
    ] = None,
) -> None:
    """Start a whole Flower federation on this machine, run a recipe in it, then stop everything."""
    from fedplug_runs import functions

    from fedplug_flower.server import CONFIG
    from fedplug_flower.trial import try_federation

    changes = [*(sets or []), *([f"data.clients={clients}"] if clients else [])]
    checked = functions.check(recipe, changes, plugins=settings.plugins, trust=True)
    where = settings.data and settings.data.absolute()
    config = {
        "output": str(settings.output.absolute()),
        "data": str(where) if where and checked.data.at == "here" else "",
        "timeout": CONFIG["timeout"] if settings.timeout is None else settings.timeout,
        "record-wire": settings.record_wire,
    }
    try_federation(checked, config, where, folder, lambda line: print(line, flush=True))

"""The command `fedplug party`. Everything heavy is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug.cli.options import MaybeRecipeFile, Sets, command, takes
from fedplug.runs.settings import Settings

REPEATS = 3
"""How many answers in rounds that were answered before a site allows, unless its owner says otherwise: a server that
crashes has a round run again, and each time costs the clients what a round costs."""


@command(group="Federate", epilog="Example: fedplug party recipe.yaml --client 3 --data /srv/images --state /srv/party")
@takes("data", "plugins", "device")
def party(
    settings: Settings,
    recipe: MaybeRecipeFile = None,
    client: Annotated[int | None, typer.Option(min=0, metavar="N", help="Be this client.")] = None,
    key_server: Annotated[bool, typer.Option("--key-server", help="Be the key server.")] = False,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for keys, state and socket, for its owner alone.")
    ] = None,
    sets: Sets = None,
    repeats: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Answers in rounds that were answered before, at most, in the whole run."
        ),
    ] = REPEATS,
    signing_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Private key to sign with, where the recipe lists clients' public ones."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Join without asking.")] = False,
    status: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Say what the party with this state is at, and do no more.")
    ] = None,
) -> None:
    """Be one party of a run: hold its data, keys and state, and answer a server that has the same recipe."""
    from fedplug.api.errors import SetupError

    if status is not None:
        from fedplug_party.program import show_status

        raise typer.Exit(show_status(status))
    if recipe is None or state is None or (client is None) == (not key_server):
        raise SetupError(
            "say which party it is to be: fedplug party RECIPE --client N --data DIR --state DIR, or --key-server "
            "--state DIR; --status DIR alone says what one is at"
        )
    from fedplug_party.program import be_party

    address = "key_server" if client is None else f"client:{client}"
    raise typer.Exit(be_party(recipe, sets, address, state, settings, repeats, yes, signing_key))

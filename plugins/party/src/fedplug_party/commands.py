"""The command `fedplug party`. Everything heavy is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from fedplug_runs.settings import Settings
from fedplug_terminal.options import MaybeRecipeFile, Sets, command, takes

REPEATS = 3
"""How many repeated rounds a site allows by default. A server that crashes runs its round again. Each repetition costs
the clients as much privacy as one round."""


@command(group="Federate", epilog="Example: fedplug party recipe.yaml --client 3 --data /srv/images --state /srv/party")
@takes("data", "plugins", "device", "trust")
def party(
    settings: Settings,
    recipe: MaybeRecipeFile = None,
    client: Annotated[int | None, typer.Option(min=0, metavar="N", help="Run as this client.")] = None,
    key_server: Annotated[bool, typer.Option("--key-server", help="Run as the key server.")] = False,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for keys, state and socket. Only its owner can read it.")
    ] = None,
    sets: Sets = None,
    repeats: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="How many repeated rounds this party answers in the whole run, at most."),
    ] = REPEATS,
    signing_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Private signing key. Needed if the recipe lists the clients' public keys."),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The site's policy and budget: what is refused, and when.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Join without asking.")] = False,
    attack: Annotated[
        bool,
        typer.Option("--attack", help="After a run: attack this client's uploads here, and sign the figures."),
    ] = False,
    status: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Show the status of the party with this state folder, and exit.")
    ] = None,
) -> None:
    """Run one party: hold its data, keys and state, and answer a server that has the same recipe."""
    from fedplug.api.errors import SetupError

    if status is not None:
        from fedplug_party.program import show_status

        raise typer.Exit(show_status(status))
    if recipe is None or state is None or (client is None) == (not key_server):
        raise SetupError(
            "say which party to run: fedplug party RECIPE --client N --data DIR --state DIR, or fedplug party RECIPE "
            "--key-server --state DIR; for the status of a running party: fedplug party --status DIR"
        )
    from fedplug_party.program import be_party

    address = "key_server" if client is None else f"client:{client}"
    raise typer.Exit(be_party(recipe, sets, address, state, settings, repeats, yes, signing_key, attack, policy))

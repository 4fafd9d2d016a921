"""The command `fedplug attack`. Everything heavy is imported inside it."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from fedplug_runs.settings import Settings
from fedplug_terminal import completion
from fedplug_terminal.options import RunFolder, command, takes


@command(
    group="Inspect",
    epilog="Example: fedplug attack runs/fas-20260101-120000 --attack ilrg --adversary server --probe 30",
)
@takes("device", "data", "plugins", "trust", "quiet")
def attack(
    run: RunFolder,
    settings: Settings,
    attacks: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            help="An attack, as in fedplug list; repeatable. Default: the set of docs/attacking.md.",
            autocompletion=completion.attacks,
        ),
    ] = None,
    adversaries: Annotated[
        list[str] | None,
        typer.Option(
            "--adversary", help="server, eavesdropper, client, key_server, released; server+client: both collude.",
            autocompletion=lambda: ["server", "eavesdropper", "client", "key_server", "released", "server+client"],
        ),
    ] = None,
    targets: Annotated[list[int] | None, typer.Option("--target", min=0, help="A client to attack.")] = None,
    rounds: Annotated[list[int] | None, typer.Option("--round", min=1, help="A round to attack, from 1.")] = None,
    probe: Annotated[
        int | None, typer.Option(min=1, metavar="SIZE", help="Attack single batches of this size instead of updates.")
    ] = None,
    batches: Annotated[int | None, typer.Option(min=1, help="Number of batches to probe each target for.")] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", help="A metric; default: all usual ones.", autocompletion=completion.metrics),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The default set without searches, in seconds.")
    ] = False,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, max=10_000, help="Time for the default set; default: 2.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Set one value: --set attack.attacks.0.restarts=3",
                     autocompletion=completion.attack_values),
    ] = None,
) -> None:
    """Attack a finished run, by a default set of attacks or those you name; finished targets are not attacked again."""
    from fedplug_attacks.workshop import command as attack_command

    lists = {"adversaries": adversaries, "targets": targets, "rounds": rounds}
    scope: dict[str, Any] = {key: value for key, value in lists.items() if value}
    if probe is not None or batches is not None:
        scope["probe"] = {"batch_size": probe, "batches": batches}
    found = attack_command.attack(run, settings, attacks or [], metrics or [], scope, sets or [], None, quick, minutes)
    raise typer.Exit(found)

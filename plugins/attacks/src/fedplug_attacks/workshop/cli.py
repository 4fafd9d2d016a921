"""The command `fedplug attack`. Everything heavy is imported inside it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from fedplug.api.errors import SetupError
from fedplug_runs.settings import Settings
from fedplug_terminal import completion
from fedplug_terminal.options import command, takes

_LOGGED = "Updates that another framework's server logged, in place of a run"


@command(
    group="Inspect",
    epilog="Example: fedplug attack runs/fas-20260101-120000 --attack ilrg --adversary server --probe 30",
)
@takes("device", "data", "plugins", "trust", "quiet")
def attack(
    settings: Settings,
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]", help="The folder of a run.", show_default=False, autocompletion=completion.runs
        ),
    ] = None,
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
    update: Annotated[
        Path | None, typer.Option(
            metavar="FILE", help="A client's model, its update or a gradient: .npz, .safetensors, a torch state dict; "
            "or a folder of one for each round.", rich_help_panel=_LOGGED)
    ] = None,
    start: Annotated[
        Path | None, typer.Option(
            "--global", metavar="FILE", help="The global model that it was made from.", rich_help_panel=_LOGGED)
    ] = None,
    model: Annotated[
        str | None, typer.Option(
            metavar="USE", help="The model, as in a recipe: my.py:Net, std.lenet5, {use: std.mlp, hidden: [64]}.",
            rich_help_panel=_LOGGED)
    ] = None,
    facts: Annotated[
        list[str] | None, typer.Option(
            "--fact", metavar="NAME=VALUE", help="A public fact, such as shape=[1, 28, 28], examples=8, lr=0.1, "
            "epochs=1, batch_size=8, mean=[0.5], std=[0.25]. A name that is none lists them.", rich_help_panel=_LOGGED)
    ] = None,
    secret: Annotated[
        list[str] | None, typer.Option(
            metavar="NAME", help="A parameter that the server could not read; conv*: all that begin so.",
            rich_help_panel=_LOGGED)
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(
            metavar="FILE", help="The client's images (or inputs) and labels, .npz, to say what is right.",
            rich_help_panel=_LOGGED)
    ] = None,
    public: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Public examples, .npz.", rich_help_panel=_LOGGED)
    ] = None,
    out: Annotated[
        Path | None, typer.Option(
            metavar="DIR", help="Where to write what is found; default: attack-NAME.", rich_help_panel=_LOGGED)
    ] = None,
) -> None:
    """Attack a finished run, by a default set of attacks or those you name; finished targets are not attacked again.

    With --update the attacks are made on what the server of another framework logged.
    """
    if (run is None) == (update is None):
        raise SetupError(
            "give the folder of a run, or --update FILE --global FILE --model USE of another framework's server"
            + (", not both" if run is not None else "")
        )
    if update is not None:
        if start is None or model is None:
            raise SetupError(f"--update {update} needs --global FILE and --model USE: what it was made from, and how")
        if given := [name for name, value in (
            ("--adversary", adversaries), ("--target", targets), ("--round", rounds), ("--probe", probe),
            ("--batches", batches), ("--metric", metrics),
        ) if value]:  # fmt: skip
            raise SetupError(f"{', '.join(given)}: only for a run; leave it out, or give a run and no --update")
        from fedplug_attacks.workshop.logged import Logged, attack_logged

        logged = Logged(update, start, model, facts or (), secret or (), truth, public, out)
        raise typer.Exit(attack_logged(logged, settings, attacks or [], sets or [], quick, minutes))
    assert run is not None
    others = (start, model, facts, secret, truth, public, out)
    if any(value is not None for value in others):
        raise SetupError("--global, --model, --fact, --secret, --truth, --public and --out belong to --update; add it")
    from fedplug_attacks.workshop import command as attack_command

    lists = {"adversaries": adversaries, "targets": targets, "rounds": rounds}
    scope: dict[str, Any] = {key: value for key, value in lists.items() if value}
    if probe is not None or batches is not None:
        scope["probe"] = {"batch_size": probe, "batches": batches}
    found = attack_command.attack(run, settings, attacks or [], metrics or [], scope, sets or [], None, quick, minutes)
    raise typer.Exit(found)

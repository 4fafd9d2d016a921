"""The command `fedplug audit`. Everything heavy is imported inside it."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer
from fedplug_runs.settings import Settings
from fedplug_terminal.as_json import document
from fedplug_terminal.options import Audited, Json, Sets, command, takes


@command(group="Inspect", epilog="Example: fedplug audit recipes/secagg-digits.yaml --runs 2. More: docs/auditing.md")
@takes("plugins", "device", "output", "data", "threads", "trust", "quiet")
def audit(
    recipe: Audited,
    settings: Settings,
    sets: Sets = None,
    canaries: Annotated[
        int | None, typer.Option(metavar="M", help="Number of canary clients, from the last one down; default: all.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(metavar="M", help="Canary training examples instead of canary clients; for DP-SGD.")
    ] = None,
    runs: Annotated[int, typer.Option(metavar="N", help="Runs, each with fresh coins, counted together.")] = 1,
    replay: Annotated[
        bool, typer.Option("--replay", help="Also run each without canaries; finds noise that follows from a seed.")
    ] = False,
    confidence: Annotated[float, typer.Option(help="Confidence of each party's lower bounds.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Measure a lower bound of epsilon with canary clients, and compare it with what the ledger claims."""
    from fedplug_runs.result import Run

    from fedplug_audit.auditing import FILE, audit

    # With JSON, nothing else goes to the standard output.
    with contextlib.redirect_stdout(sys.stderr if as_json else sys.stdout):
        found, folder = audit(
            recipe, sets, canaries=canaries, records=records, runs=runs, replay=replay, confidence=confidence,
            settings=settings, watch="terminal",
        )
    if as_json:
        verdict, wrong = Run(folder, settings).ledger.verdict, found.words()
        problems = [wrong[shown.party] for shown in found.refuted]
        typer.echo(document("audit", problems, folder=str(folder), file=str(folder / FILE), audit=found,
                            verdict=verdict))  # fmt: skip
        raise typer.Exit(1 if found.refuted else 0)
    for line in [*Run(folder, settings).ledger.verdict.text(found.words()), "", *found.text()]:
        typer.echo(line)
    typer.echo(f"audit: {folder / FILE}")
    raise typer.Exit(1 if found.refuted else 0)

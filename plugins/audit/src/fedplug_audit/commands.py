"""The command `fedplug audit`. Everything heavy is imported inside it."""

from __future__ import annotations

from typing import Annotated

import typer
from fedplug_runs.settings import Settings
from fedplug_terminal.options import Audited, Sets, command, takes


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
) -> None:
    """Measure a lower bound of epsilon with canary clients, and compare it with what the ledger claims."""
    from fedplug_runs.result import Run

    from fedplug_audit.auditing import FILE, audit

    found, folder = audit(
        recipe, sets, canaries=canaries, records=records, runs=runs, replay=replay, confidence=confidence,
        settings=settings, watch="terminal",
    )
    for line in [*Run(folder, settings).ledger.verdict.text(found.words()), "", *found.text()]:
        typer.echo(line)
    typer.echo(f"audit: {folder / FILE}")
    raise typer.Exit(1 if found.refuted else 0)

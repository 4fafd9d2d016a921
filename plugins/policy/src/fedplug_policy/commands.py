"""The command `fedplug budget`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer
from fedplug_terminal.options import Json, command


@command(group="Federate", epilog="Example: fedplug budget site.yaml")
def budget(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="The policy of this site.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show what studies have spent of a site's privacy budget, and what is left."""
    from fedplug.api.errors import SetupError
    from fedplug_terminal.lines import aligned

    from fedplug_policy.budget import party_words, spent, touching
    from fedplug_policy.guard import SitePolicy

    site = SitePolicy(policy)
    kept, unit = site.policy.budget, site.policy.unit
    account = site.budget
    if kept is None or account is None:
        raise SetupError(f"{policy} has no budget; write budget: {{epsilon: 10, delta: 1.0e-5}}")
    charges = account.charges()
    if as_json:
        typer.echo(json.dumps([charge.to_plain(for_json=True) for charge in charges], indent=1))
        return
    shared = "all studies" if kept.shared_by == "all studies" else "studies of the same files"
    typer.echo(f"budget: epsilon {kept.epsilon:g} at delta {kept.delta:g} for a {unit}, shared by {shared}")
    if not charges:
        typer.echo("nothing is spent")
        return
    titles = ["study", "run", "rounds", "last charge"]
    for party in kept.toward:
        titles += [f"epsilon toward {party_words(party)}", "with others on its data", "left"]
    rows = []
    for charge in charges:
        rows.append([charge.study, charge.run[:12], str(len(charge.rounds)), charge.time])
        for party in kept.toward:
            own = spent([charge], party, unit, charge.delta)
            together = spent(touching(charges, charge.data, kept.shared_by == "all studies"), party, unit, kept.delta)
            rows[-1] += [_number(own), _number(together), f"{max(0.0, kept.epsilon - together):.3g}"]
    typer.echo("\n".join(aligned(titles, rows, None)))


def _number(epsilon: float) -> str:
    return "no guarantee" if math.isinf(epsilon) else f"{epsilon:.3g}"

"""Everything that a tracker receives: the numbers of rounds, the recipe, and the ledger's result at the end.

A tracker never receives updates, ballots, keys, models, examples, or the numbers of a single client. It receives means
over the clients, and for the accuracy at the clients also the worst value.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fedplug
from fedplug.api.errors import FedplugError
from fedplug_runs.rows import Row

FILES = ("recipe.yaml",)
"""The files of the run folder that are always sent at the end of a run."""
REPORT = "report.html"
"""The file that is also sent, unless the user switches it off."""


def flat(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested plain data as paths and values. Paths are as in `--set`: `protect.noised.0.norm`, 1.0.

    An empty list or mapping is a value.
    """
    if isinstance(plain, Mapping) and plain:
        for key, value in plain.items():
            yield from flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(plain, list | tuple) and plain:
        for place, value in enumerate(plain):
            yield from flat(value, f"{path}.{place}" if path else str(place))
    else:
        yield path, plain


def word(value: Any) -> str:
    """A value as written in a recipe: `null`, `true`, `0.5`, plain text."""
    return value if isinstance(value, str) else json.dumps(value)


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a round by name, without those that the round does not have.

    Groups of names share the part before the slash. Shares of zones and accuracies are from 0 to 1. Losses are in nats.
    """
    found: dict[str, float | None] = {
        "accuracy": row.accuracy,
        "loss": row.loss,
        "train_loss": row.train_loss,
        "epsilon": row.epsilon,
        "mask_churn": row.mask_churn,
        "messages": row.messages,
        "clients/asked": row.clients.asked,
        "clients/answered": row.clients.answered,
        "bytes/up": row.bytes.up.total,
        "bytes/down": row.bytes.down.total,
        "bytes/key_server": row.bytes.key_server.total,
        "seconds/wall": row.wall_seconds,
    }
    for title, values in (
        ("epsilon", {**row.view_epsilons, **{f"level_{level}": value for level, value in row.level_epsilons.items()}}),
        ("figures", row.figures), ("zones", row.zones), ("seconds", row.seconds), ("log", row.log),
    ):  # fmt: skip
        found |= {f"{title}/{name}": value for name, value in values.items()}
    worst = min if row.leads.better == "higher" else max
    for title, by_client in (
        ("client", row.of_clients), ("personal", row.of_personal), ("fine_tuned", row.tuned),
    ):  # fmt: skip
        if by_client:
            each = by_client.values()
            named = f"{title}_{row.leads.name.replace(' ', '_')}"
            found |= {f"{named}/mean": sum(each) / len(each), f"{named}/worst": worst(each)}
    found |= {f"clusters/{cluster}": value for cluster, value in row.clusters.items()}
    for group, result in row.groups.items():
        found |= {f"groups/{group}/accuracy": result.accuracy, f"groups/{group}/loss": result.loss}
        found |= {f"groups/{group}/figures/{name}": value for name, value in result.figures.items()}
    if row.simulated_seconds is not None:
        found["seconds/simulated"] = row.simulated_seconds
    return {name: float(value) for name, value in found.items() if value is not None}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of a run's ledger at the end.

    Attributes:
        verdict: one paragraph; empty if the run stopped before there was a ledger.
        epsilons: by party with a guarantee, the epsilon for the unit of the guarantee.
        reasons: the line of each party.
    """

    verdict: str = ""
    epsilons: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)


def outcome_of(folder: Path) -> Outcome:
    """The result in `ledger.json` of a run folder; empty if the file is missing or cannot be read."""
    try:
        ledger = fedplug.open_run(folder).ledger
    except FedplugError:
        return Outcome()
    guaranteed = {name: view.value for name, view in ledger.views.items() if view.state == "guaranteed"}
    return Outcome(
        str(ledger.verdict),
        {name: value for name, value in guaranteed.items() if value is not None},
        {name: str(view) for name, view in ledger.views.items()},
    )


def files_of(folder: Path, report: bool) -> list[Path]:
    """The existing files of a run folder that are sent."""
    return [folder / name for name in (*FILES, *([REPORT] if report else [])) if (folder / name).is_file()]

"""What a tracker is sent: numbers of rounds, the recipe, what the ledger says in the end. Everything is here.

Never updates, ballots, keys, models, examples, or numbers of a single client; means over the clients, and of the
accuracy at the clients the worst one.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import fedplug
from fedplug.api.errors import FedplugError
from fedplug.api.rows import Row

FILES = ("recipe.yaml",)
"""What is sent of the run folder in any case, once the run has ended."""
REPORT = "report.html"
"""What is sent beside it, unless the user says no."""


def flat(plain: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested plain data as paths and values, as `--set` writes paths: `protect.noised.0.norm`, 1.0.

    An empty list or mapping stays one.
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
    """A value as a recipe writes it: `null`, `true`, `0.5`, plain text."""
    return value if isinstance(value, str) else json.dumps(value)


def numbers(row: Row) -> dict[str, float]:
    """The numbers of a round, by name; what the round does not have is left out.

    Groups of names share the part before the slash. Shares of zones and accuracies are from 0 to 1, losses in nats.
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
    """What the ledger of a run says in the end.

    Attributes:
        verdict: in a paragraph; empty where the run stopped before anything could be said.
        epsilons: by party, where one is guaranteed, of its unit.
        reasons: the line of each party.
    """

    verdict: str = ""
    epsilons: Mapping[str, float] = dataclasses.field(default_factory=dict)
    reasons: Mapping[str, str] = dataclasses.field(default_factory=dict)


def outcome_of(folder: Path) -> Outcome:
    """What `ledger.json` of a run folder says; nothing where it is not there or cannot be read."""
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
    """The files of a run folder that are sent, as far as they are there."""
    return [folder / name for name in (*FILES, *([REPORT] if report else [])) if (folder / name).is_file()]

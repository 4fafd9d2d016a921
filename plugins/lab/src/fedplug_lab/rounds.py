"""The tables of the report that say what happened in each round."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from fedplug_runs import units
from fedplug_runs.row_text import best_of
from fedplug_runs.rows import Row, Sent

from fedplug_lab.canvas import curves_of
from fedplug_lab.figures import DIRECTIONS, zone_shares
from fedplug_lab.tables import table, text, zone_label
from fedplug_lab.words import VIEWS

_MOST_ROWS = 200
"""Of a table; nobody reads more."""


def _shown(rows: Sequence[Row]) -> list[int]:
    """Which rounds have a row: of many, the first, the last, the best one and some at equal distances."""
    if len(rows) <= _MOST_ROWS:
        return list(range(len(rows)))
    step = math.ceil(len(rows) / (_MOST_ROWS - 2))
    best = [*rows].index(best_of(rows))
    return sorted({*range(0, len(rows), step), best, len(rows) - 1})


def rounds_tables(rows: Sequence[Row]) -> str:
    """Every round as a row of a table, and what the rounds add up to, as HTML."""
    if not rows:
        return "<p>No round is complete.</p>"
    number, grouped = units.number, any(row.of_groups for row in rows)
    figures = dict.fromkeys(title for row in rows for title in row.figures)
    leading = rows[-1].leads.name
    leads = [title for title in figures if title == leading]
    columns: list[tuple[str, Callable[[Row], str]]] = [
        (f"{leading} in groups", lambda row: number(_mean(row.of_groups))),
        *((title, lambda row, title=title: number(row.figures.get(title))) for title in leads),
        ("accuracy on all classes" if grouped else "accuracy", lambda row: number(row.accuracy)),
        ("loss", lambda row: number(row.loss)),
        ("train loss", lambda row: number(row.train_loss)),
        (f"client {leading}", lambda row: _spread(row.of_clients)),
        ("personal models", lambda row: _mean_and_spread(row.of_personal)),
        ("personal, common set", lambda row: _mean_and_spread(row.of_personal_public)),
        ("fine-tuned", lambda row: _mean_and_spread(row.tuned)),
        ("fine-tuned, common set", lambda row: _mean_and_spread(row.tuned_public)),
        *((f"cluster {name}", lambda row, name=name: number(row.clusters.get(name)))
          for name in dict.fromkeys(name for row in rows for name in row.clusters)),
        *((title, lambda row, title=title: number(row.figures.get(title))) for title in figures if title not in leads),
        ("clients", lambda row: f"{row.clients.answered}/{row.clients.asked}"),
        *((zone, lambda row, zone=zone: units.percent(row.zones.get(zone))) for zone in zone_shares(rows)),
        ("up", lambda row: units.size(row.bytes.up.total)),
        ("down", lambda row: units.size(row.bytes.down.total)),
        ("key server", lambda row: units.size(row.bytes.key_server.total)),
        ("messages", lambda row: str(row.messages)),
        ("wall", lambda row: units.duration(row.wall_seconds)),
        ("simulated", lambda row: units.duration(row.simulated_seconds)),
        *((f"ε {title}", lambda row, party=party: number(row.view_epsilons.get(party)))
          for party, title in VIEWS.items() if any(party in row.view_epsilons for row in rows)),
        *((f"epsilon of a {level}", lambda row, level=level: number(row.level_epsilons.get(level)))
          for level in dict.fromkeys(level for row in rows for level in row.level_epsilons)),
        ("mask churn", lambda row: units.percent(row.mask_churn)),
    ]
    filled = {title: [cell(row) for row in rows] for title, cell in columns}
    # A column that says nothing in any round (no key server, no noise) only takes room.
    filled = {title: cells for title, cells in filled.items() if not {*cells} <= {units.NOTHING, "0 B"}}
    body = [[str(rows[i].round), *(text(cells[i]) for cells in filled.values())] for i in _shown(rows)]
    caption = f"Some of {len(rows)} rounds; metrics.jsonl has all. " if len(body) < len(rows) else ""
    if any(row.of_clients for row in rows):
        caption += f"Client {leading}: lowest and highest. "
    caption += "Clients: answered/asked. Zones: mean share over clients."
    if grouped:
        title = f"{leading[:1].upper()}{leading[1:]}"
        caption += f" {title} in groups: mean over the groups' models, each on test data like its clients'."
    if "personal models" in filled or "personal, common set" in filled:
        caption += " Personal models: mean over clients (lowest and highest), on test data of each client's class mix."
    if "fine-tuned" in filled:
        caption += " Fine-tuned: the same of the global model after each client has trained it on its own examples."
    parts = [table(caption, ["round", *filled], body, numeric=True)]
    parts.append(_byte_totals(rows))
    dropped = [
        [str(row.round), str(client), text(reason)] for row in rows for client, reason in row.clients.dropped.items()
    ]
    caption = "Clients that dropped out of a round."
    if len(dropped) > _MOST_ROWS:
        caption += f" The first {_MOST_ROWS} of {len(dropped)}; metrics.jsonl has all."
    parts.append(table(caption, ["round", "client", "reason"], dropped[:_MOST_ROWS]))
    logged = curves_of(rows, lambda row: row.log)
    body = [[text(name), *(text(f(units.finite(of))) for f in _STATISTICS.values())] for name, of in logged.items()]
    caption = "Numbers that components logged, over the rounds."
    parts.append(table(caption, ["name", *_STATISTICS], body, numeric=True))
    return "".join(parts)


_STATISTICS: dict[str, Callable[[list[float]], str]] = {
    "first": lambda values: units.number(values[0] if values else None, 4),
    "last": lambda values: units.number(values[-1] if values else None, 4),
    "lowest": lambda values: units.number(min(values, default=None), 4),
    "highest": lambda values: units.number(max(values, default=None), 4),
}


def _mean(by_group: Mapping[str, float]) -> float | None:
    return math.fsum(by_group.values()) / len(by_group) if by_group else None


def _spread(by_client: Mapping[int, float]) -> str:
    found = units.spread(by_client)
    return f"{found[0]:.3f}–{found[2]:.3f}" if found else units.NOTHING


def _mean_and_spread(by_client: Mapping[int, float]) -> str:
    found = units.spread(by_client)
    return f"{found[1]:.3f} ({found[0]:.3f}–{found[2]:.3f})" if found else units.NOTHING


def _byte_totals(rows: Sequence[Row]) -> str:
    body: list[list[str]] = []
    for label, of in DIRECTIONS.values():
        sent = sum((of(row.bytes) for row in rows), Sent())
        for kind, split in (("zone", sent.zones), ("phase", sent.phases)):
            for name, amount in split.items():
                what = zone_label(name) if kind == "zone" else text(name)
                body.append([text(label), kind, what, units.size(amount), units.percent(amount / sent.total)])
    return table("Bytes over the whole run, split by zone and, the same bytes, by phase.",
                  ["direction", "split by", "", "bytes", "of this direction"], body, numeric=3)  # fmt: skip

"""The report of a run: one HTML file that opens offline, in light and dark, on paper, and with a screen reader.

It loads nothing (a content security policy in the page says so to the browser as well) and runs no script. Everything
that came from a recipe, a plugin or the ledger is escaped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from fedplug.api import units
from fedplug.runs.files import read_ledger, read_pictures, read_rows, read_summary

from fedplug_lab.accuracy import OWN, PUBLIC
from fedplug_lab.canvas import Chart
from fedplug_lab.extra import DRAWN, assessments_table, groups_table, picture_charts
from fedplug_lab.figures import DIRECTIONS, charts
from fedplug_lab.sections import sections_of_plugins
from fedplug_lab.tables import render, table, text, title_of, zone_label

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
# In this order; what the ledger holds besides follows, its log last and folded away.
_LEDGER_CAPTIONS = {
    "epsilon": "Epsilon of the zones with noise, for both adjacencies.",
    "views": "What each adversary may learn, and why.",
    "zones": "How each zone of the model was protected.",
    "layers": "Budget and noise of each layer.",
    "encryption": "Who can open which zone.",
    "noise": "Where the noise came from.",
    "sampling": "Which clients take part, and whether that lowers epsilon.",
    "reveals": "What else depends on the data and is visible to somebody.",
}
_LOG = "log"
_SHOWN_ELSEWHERE = {"name", "digest", "recipe", "plan", "versions", "class_distribution", "command", "assessments"}


def write_report(
    run_dir: Path,
    rows: list[dict[str, Any]],
    ledger: dict[str, Any],
    summary: dict[str, Any],
    pictures: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Writes `report.html` into the run folder, whole or not at all.

    Args:
        run_dir: the folder of the run; must exist.
        rows: the metrics, one mapping a round; fewer than planned (or none) after an interruption. Any number may be
            missing, None, NaN or infinite.
        ledger: the privacy ledger as plain data; `verdict` is shown on top, `warnings` as a list, the rest as tables.
        summary: what ran: name, digest, recipe, plan of (hook, component, description), versions, engine, device,
            seconds_total, class_distribution, command, assessments; further entries are listed as they are.
        pictures: what components drew, by name; see `fedplug.api.pictures`.

    Returns:
        The path of the report.
    """
    recipe = summary.get("recipe") or {}
    added = [(section.key, section.title, section.html(Path(run_dir))) for section in sections_of_plugins()]
    headlines = [found for section in sections_of_plugins() if (found := section.headline(Path(run_dir)))]
    name = str(summary.get("name") or recipe.get("name") or "run")
    sections = [
        ("figures", "Figures", _figures(charts(rows, summary.get("class_distribution")))),
        ("pictures", "Pictures of components", _pictures(pictures or {})),
        ("protocol", "Protocol", _protocol(summary)),
        ("rounds", "Rounds", _rounds(rows)),
        ("groups", "Groups", groups_table(rows)),
        ("assessments", "Assessments", assessments_table(summary)),
        *added,
        ("ledger", "Privacy ledger", _ledger(ledger)),
        ("run", "What ran", _what_ran(summary, recipe)),
    ]
    links = "".join(f'<a href="#{key}">{text(title)}</a>' for key, title, body in sections if body)
    page = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{text(name)} · fedplug report</title>",
        f"<style>{files('fedplug_lab').joinpath('report.css').read_text('utf-8')}</style>\n</head>\n<body>\n<header>",
        f'<p class="eyebrow">fedplug report</p><h1>{text(name)}</h1>{_byline(summary, rows)}',
        f'<nav aria-label="Sections">{links}</nav></header>\n<main>',
        _banner(rows, recipe),
        '<section class="verdict" aria-labelledby="verdict"><h2 id="verdict">Privacy verdict</h2>',
        f"<p>{text(ledger.get('verdict') or 'No verdict: the ledger of this run holds none.')}</p>",
        *(f"<p><strong>{text(label)}:</strong> {text(sentence)}</p>" for label, sentence in headlines),
        "</section>",
        _key_numbers(rows, recipe, summary),
        *(f'<section id="{key}"><h2>{text(title)}</h2>\n{body}</section>' for key, title, body in sections if body),
        "</main>\n<footer>Written by fedplug. This file is complete in itself: it loads nothing and runs no script."
        "</footer>\n</body>\n</html>\n",
    ]
    path = Path(run_dir) / "report.html"
    draft = path.with_suffix(".html.new")
    draft.write_text("\n".join(page), encoding="utf-8", errors="replace")
    os.replace(draft, path)
    return path


def rewrite_report(run_dir: Path) -> Path:
    """Writes `report.html` of a run from the files in its folder, with what plugins know of it by now.

    Returns:
        The path of the report.

    Raises:
        CheckpointError: a file that the report is made from is missing or damaged; the old report stays.
    """
    run_dir = Path(run_dir)
    rows, ledger, summary = read_rows(run_dir), read_ledger(run_dir), read_summary(run_dir)
    return write_report(run_dir, rows, ledger, summary, read_pictures(run_dir))


# ---- the top of the page


def _byline(summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"{len(rows)} round{'' if len(rows) == 1 else 's'}"]
    parts += [f"{key} {text(summary[key])}" for key in ("engine", "device") if summary.get(key)]
    if digest := str(summary.get("digest") or ""):
        parts.append(f'digest <code title="{text(digest)}">{text(digest[:16])}</code>')
    return f'<p class="byline">{" · ".join(parts)}</p>'


def _banner(rows: Sequence[Mapping[str, Any]], recipe: Mapping[str, Any]) -> str:
    planned = units.as_float(recipe.get("rounds"))
    if not math.isfinite(planned) or len(rows) >= planned:
        return ""
    return ('<p class="banner"><strong>Partial run.</strong> '
            f"{len(rows)} of {planned:.0f} planned rounds are recorded: the run was interrupted or is still going on. "
            "<code>fedplug resume</code> continues it.</p>")  # fmt: skip


def _key_numbers(rows: Sequence[Mapping[str, Any]], recipe: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    if not rows:
        return ""
    measured = [(units.read(row, "accuracy"), row.get("round")) for row in rows]
    measured = [(accuracy, when) for accuracy, when in measured if math.isfinite(accuracy)]
    best, when = max(measured, key=lambda pair: pair[0], default=(math.nan, None))
    spent = {phase: units.total(rows, "seconds", phase) for phase in units.names(rows, "seconds") if phase != "wall"}
    work = sum(spent.values())
    wall = units.as_float(summary.get("seconds_total"))
    wall = wall if math.isfinite(wall) else units.total(rows, "seconds", "wall")
    asked, answered = units.total(rows, "clients", "asked"), units.total(rows, "clients", "answered")
    planned = recipe.get("rounds") or len(rows)
    first = units.percent(units.read(rows[0], "zones", "encrypted"))
    encrypted = units.percent(units.last(rows, "zones", "encrypted"))
    missed = f"{asked - answered:.0f} missed" if asked > answered else "no client dropped out"
    items = [
        ("Accuracy", units.number(units.last(rows, "accuracy")) if measured else "–",
         (f"best {units.number(best)} after round {when}" if measured else "not measured") + _personal_note(rows)),
        ("HE share", encrypted, f"of the model in the last round; {first} in the first"),
        ("Epsilon so far", units.number(_last_or_none(rows, "epsilon")), _prices(rows)),
        ("Sent by clients", units.size(units.total(rows, "bytes", "up", "total")), "all clients, all rounds"),
        ("Sent to clients", units.size(units.total(rows, "bytes", "down", "total")), "all clients, all rounds"),
        ("Wall clock", units.duration(wall),
         f"training is {units.percent(spent.get('train', 0.0) / work)} of the work" if work else ""),
        ("Rounds", f"{len(rows)} of {planned}", "resumed from a checkpoint" if summary.get("resumed") else ""),
        ("Answers", f"{answered:.0f} of {asked:.0f}", missed),
    ]  # fmt: skip
    cells = "".join(
        f"<div><dt>{text(label)}</dt><dd>{text(value)}<small>{text(note)}</small></dd></div>"
        for label, value, note in items
    )
    return f'<dl class="numbers">{cells}</dl>'


def _personal_note(rows: Sequence[Mapping[str, Any]]) -> str:
    known = [found for row in rows if (found := units.spread(row, OWN))]
    return f"; personal models {units.number(known[-1][1])} on average" if known else ""


def _prices(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the last epsilon prices."""
    part = rows[-1].get("epsilon_prices") if rows else None
    return f"of the {part} zone alone; see the verdict" if part else "see the verdict and the ledger"


def _last_or_none(rows: Sequence[Mapping[str, Any]], key: str) -> float | None:
    value = units.last(rows, key)
    return None if math.isnan(value) else value


# ---- sections


def _figures(drawn: Sequence[Chart]) -> str:
    return f'<div class="figures">{"".join(map(_figure, drawn))}</div>' if drawn else ""


def _pictures(pictures: Mapping[str, Mapping[str, Any]]) -> str:
    more = len(pictures) - DRAWN
    rest = f"<p>{more} more pictures are in figures.json.</p>" if more > 0 else ""
    return _figures(picture_charts(pictures)) + rest


def _figure(chart: Chart) -> str:
    keys = "".join(
        f'<li><span class="key {kind}" style="--c:{colour}"></span>{text(label)}</li>'
        for label, colour, kind in chart.legend
    )
    return (f'<figure id="figure-{chart.key}"{" class=wide" if chart.wide else ""}><h3>{text(chart.title)}</h3>'
            f'<ul class="legend">{keys}</ul>{chart.svg}'
            f"<figcaption>{text(chart.alt)} {text(chart.note)}</figcaption></figure>\n")  # fmt: skip


def _protocol(summary: Mapping[str, Any]) -> str:
    plan = [[*map(text, step)] for step in summary.get("plan") or []]
    body = [[f"<code>{hook}</code>", f"<code>{component}</code>", *rest] for hook, component, *rest in plan]
    return table("What a round does, hook by hook, in order.", ["hook", "component", "what it does here"], body)


def _rounds(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "<p>No round is complete.</p>"
    number, read, zones = units.number, units.read, _used_zones(rows)
    columns: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("accuracy", lambda row: number(row.get("accuracy"))),
        ("loss", lambda row: number(row.get("loss"))),
        ("train loss", lambda row: number(row.get("train_loss"))),
        ("client accuracy", _spread),
        ("personal models", lambda row: _mean_and_spread(row, OWN)),
        ("personal, public set", lambda row: _mean_and_spread(row, PUBLIC)),
        *((name, lambda row, key=key: number(units.mapping(row, "segmentation").get(key)))
          for name, key in units.SEGMENTATION),
        ("clients", lambda row: f"{read(row, 'clients', 'answered'):.0f}/{read(row, 'clients', 'asked'):.0f}"),
        *((zone, lambda row, zone=zone: units.percent(read(row, "zones", zone))) for zone in zones),
        ("up", lambda row: units.size(read(row, "bytes", "up", "total"))),
        ("down", lambda row: units.size(read(row, "bytes", "down", "total"))),
        ("key server", lambda row: units.size(read(row, "bytes", "key_server", "total"))),
        ("messages", lambda row: str(row.get("messages", units.NOTHING))),
        ("wall", lambda row: units.duration(read(row, "seconds", "wall"))),
        ("simulated", lambda row: units.duration(read(row, "simulated", "seconds"))),
        ("epsilon", lambda row: number(row.get("epsilon"))),
        ("epsilon of a record", lambda row: number(row.get("record_epsilon"))),
        ("mask churn", lambda row: units.percent(row.get("mask_churn"))),
    ]
    filled = {title: [cell(row) for row in rows] for title, cell in columns}
    # A column that says nothing in any round (no key server, no noise) only takes room.
    filled = {title: cells for title, cells in filled.items() if not {*cells} <= {units.NOTHING, "0 B"}}
    labels = [text(row.get("round", "?")) for row in rows]
    body = [[label, *(text(cells[i]) for cells in filled.values())] for i, label in enumerate(labels)]
    caption = "Client accuracy: lowest and highest. Clients: answered/asked. Zones: mean share over clients."
    if "personal models" in filled or "personal, public set" in filled:
        caption += " Personal models: mean over clients (lowest and highest), on test data of each client's class mix."
    parts = [table(caption, ["round", *filled], body, numeric=True)]
    parts.append(_byte_totals(rows))
    dropped = [
        [text(row.get("round", "?")), text(client), text(reason)]
        for row in rows for client, reason in units.mapping(units.mapping(row, "clients"), "dropped").items()
    ]  # fmt: skip
    parts.append(table("Clients that dropped out of a round.", ["round", "client", "reason"], dropped))
    logged = [[text(name), *(text(f(_finite(rows, "log", name))) for f in _STATISTICS.values())]
              for name in units.names(rows, "log")]  # fmt: skip
    caption = "Numbers that components logged, over the rounds."
    parts.append(table(caption, ["name", *_STATISTICS], logged, numeric=True))
    return "".join(parts)


_STATISTICS: dict[str, Callable[[list[float]], str]] = {
    "first": lambda values: units.number(values[0] if values else None, 4),
    "last": lambda values: units.number(values[-1] if values else None, 4),
    "lowest": lambda values: units.number(min(values, default=None), 4),
    "highest": lambda values: units.number(max(values, default=None), 4),
}


def _used_zones(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [zone for zone in units.names(rows, "zones") if units.total(rows, "zones", zone) > 0]


def _finite(rows: Sequence[Mapping[str, Any]], *path: str) -> list[float]:
    return [value for value in (units.read(row, *path) for row in rows) if math.isfinite(value)]


def _spread(row: Mapping[str, Any]) -> str:
    found = units.spread(row, "client_accuracy")
    return f"{found[0]:.3f}–{found[2]:.3f}" if found else units.NOTHING


def _mean_and_spread(row: Mapping[str, Any], key: str) -> str:
    found = units.spread(row, key)
    return f"{found[1]:.3f} ({found[0]:.3f}–{found[2]:.3f})" if found else units.NOTHING


def _byte_totals(rows: Sequence[Mapping[str, Any]]) -> str:
    body: list[list[str]] = []
    for way, label in DIRECTIONS.items():
        whole = units.total(rows, "bytes", way, "total")
        for kind, split in (("zone", "zones"), ("phase", "phases")):
            for name in units.names(rows, "bytes", way, split):
                amount = units.total(rows, "bytes", way, split, name)
                if amount:
                    what = zone_label(name) if kind == "zone" else text(name)
                    body.append([text(label), kind, what, units.size(amount), units.percent(amount / (whole or 1))])
    return table("Bytes over the whole run, split by zone and, the same bytes, by phase.",
                  ["direction", "split by", "", "bytes", "of this direction"], body, numeric=3)  # fmt: skip


def _ledger(ledger: Mapping[str, Any]) -> str:
    parts = []
    warnings = ledger.get("warnings") or []
    warnings = [warnings] if isinstance(warnings, str) else warnings
    if warnings:
        items = "".join(f"<li>{render(warning)}</li>" for warning in warnings)
        parts.append(f'<h3>Warnings</h3><ul class="warnings">{items}</ul>')
    rest = {key: value for key, value in ledger.items() if key not in ("verdict", "warnings", _LOG)}
    simple = {key: value for key, value in rest.items() if not isinstance(value, Mapping | list | tuple)}
    if simple:
        parts.append(render(simple))
    ordered = dict.fromkeys([*(key for key in _LEDGER_CAPTIONS if key in rest), *rest])
    for key in ordered:
        if key not in simple and rest[key] not in ([], (), {}):
            parts.append(f"<h3>{text(title_of(key))}</h3>{render(rest[key], _LEDGER_CAPTIONS.get(key, ''))}")
    if log := ledger.get(_LOG):
        entries = render(log, "What each round released. Everything above can be recomputed from it.")
        parts.append(f"<details class=log><summary>Log, {len(log)} entries</summary>{entries}</details>")
    return "".join(parts)


def _what_ran(summary: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    parts = []
    if summary.get("command"):
        parts.append(f"<h3>Run it again</h3><pre><code>{text(summary['command'])}</code></pre>")
    facts = {key: value for key, value in summary.items() if key not in _SHOWN_ELSEWHERE}
    if "seconds_total" in facts:
        facts["seconds_total"] = units.duration(facts["seconds_total"])
    parts.append(render({"recipe digest": summary.get("digest"), **facts}))
    versions = units.mapping(summary, "versions")
    body = [[f"<code>{text(name)}</code>", text(version)] for name, version in versions.items()]
    parts.append(table("Versions of the core and of every plugin used.", ["distribution", "version"], body))
    if recipe:
        written = yaml.safe_dump(dict(recipe), sort_keys=False, allow_unicode=True, width=100)
        parts.append(f"<details><summary>Resolved recipe</summary><pre><code>{text(written)}</code></pre></details>")
    return "".join(parts)

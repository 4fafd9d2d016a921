"""The report of a run: one HTML file that opens offline, in light and dark, on paper, and with a screen reader.

It loads nothing (a content security policy in the page says so to the browser as well) and runs no script. Everything
that came from a recipe, a plugin or the ledger is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from fedplug.api.blocks import CLEAR, NOISED
from fedplug.api.data import ACCURACY
from fedplug_ledger.ledger_record import LedgerReport
from fedplug_ledger.verdict import Line, Verdict
from fedplug_ledger.verdict_words import BRIEF, named, number
from fedplug_runs import units
from fedplug_runs.folder import Summary, read_ledger, read_rows, read_summary
from fedplug_runs.row_text import best_of
from fedplug_runs.rows import Row, Sent

from fedplug_lab.canvas import Rows, curves_of
from fedplug_lab.figures import DIRECTIONS, DRAWN, charts, picture_charts, zone_shares
from fedplug_lab.guess import BALANCED, guess_words
from fedplug_lab.page import figures, glossary, verdict_glance, verdict_lines, write_page
from fedplug_lab.pictures import read_pictures
from fedplug_lab.records import as_sent, bare
from fedplug_lab.sections import sections_of_plugins
from fedplug_lab.tables import again, bullets, render, sentence, table, text, title_of, zone_label
from fedplug_lab.words import capital, in_words, of_sites

# In this order. The rest of the ledger follows, its log last and folded away.
_LEDGER_CAPTIONS = {
    "epsilons": "Epsilon of the zones with noise, for both adjacencies.",
    "zones": "How each zone of the model was protected.",
    "encryption": "Who can open which zone.",
    "noise": "Where the noise came from.",
    "sampling": "Which clients take part, and whether that lowers epsilon.",
    "reveals": "Other values that depend on the data and that somebody sees.",
}
_LOG = "log"
_BARE = (
    '<p class="note">The recipe adds nothing to the zone that it calls noised: in the figures and tables of rounds it '
    "counts as clear. The ledger keeps the recipe's name.</p>"
)


def write_report(
    run_dir: Path,
    rows: Sequence[Row],
    ledger: LedgerReport,
    summary: Summary,
    pictures: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Writes `report.html` into the run folder, whole or not at all.

    Args:
        run_dir: the folder of the run; must exist.
        rows: of the metrics; fewer than planned, or none, after an interruption.
        ledger: the privacy account; the verdict is shown on top, `warnings` as a list, the rest as tables.
        summary: what ran.
        pictures: what components drew, by name; see `fedplug_lab.pictures`.

    Returns:
        The path of the report.
    """
    rows, planned, run_dir = as_sent(rows, summary.recipe), int(summary.recipe["rounds"]), Path(run_dir)
    added = [(section.key, section.title, section.html(run_dir)) for section in sections_of_plugins()]
    measured = {who: said for section in sections_of_plugins() for who, said in section.measured(run_dir).items()}
    headlines = [found for section in sections_of_plugins() if (found := section.headline(run_dir))]
    sections = [
        ("figures", "Figures", figures(charts(rows, summary.class_distribution))),
        ("pictures", "Pictures of components", _pictures(pictures or {})),
        ("protocol", "Protocol", _protocol(summary)),
        ("rounds", "Rounds", rounds_tables(rows)),
        ("groups", "Groups", groups_table(rows)),
        ("assessments", "Assessments", assessments_table(summary.assessments)),
        *added,
        ("ledger", "Privacy ledger", _ledger(ledger)),
        ("run", "What ran", _what_ran(summary)),
    ]
    if _at_sites(summary):
        sections = [(key, title, of_sites(body)) for key, title, body in sections]
    top = [
        _banner(rows, planned),
        verdict_glance(ledger.verdict),
        _leading_numbers(rows, ledger.verdict, summary),
        _doubts(summary),
        '<section class="verdict" aria-labelledby="why"><h2 id="why">What each party sees, and why</h2>',
        *(f"<p><strong>{text(label)}:</strong> {sentence(said)}</p>" for label, said in headlines),
        verdict_lines(ledger.verdict, _clients(summary), measured),
        _warnings(ledger),
        f"{_BARE if bare(summary.recipe) else ''}{glossary()}</section>",
        _more_numbers(rows, planned, summary),
    ]
    return write_page(run_dir / "report.html", "report", summary.name, _byline(summary, rows), top, sections)


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


def _byline(summary: Summary, rows: Sequence[Row]) -> str:
    parts = [units.many(len(rows), "round")]
    parts += [units.many(count, "client")] if (count := _clients(summary)) else []
    parts += [f"engine {text(summary.engine)}", f"device {text(summary.device)}"]
    digest = f'digest <code title="{text(summary.digest)}">{text(summary.digest[:16])}</code>'
    return f'<p class="byline">{" · ".join(parts)}<span class="digest"> · {digest}</span></p>'


def _doubts(summary: Summary) -> str:
    """What is odd about the results, such as a model that is no better than a guess."""
    listed = bullets([*map(sentence, getattr(summary, "doubts", ()))])
    return f'<div class="banner"><strong>Look twice.</strong>{listed}</div>' if listed else ""


def _banner(rows: Sequence[Row], planned: int) -> str:
    if len(rows) >= planned:
        return ""
    return ('<p class="banner"><strong>Partial run.</strong> '
            f"{len(rows)} of {planned} planned rounds are recorded: the run was interrupted or is still going on. "
            "<code>fedplug resume</code> continues it.</p>")  # fmt: skip


Item = tuple[str, str, str]
"""A number of the page: what it is of, the number, and a few words on it."""


def _numbers(items: Sequence[Item], kind: str) -> str:
    cells = "".join(
        f"<div><dt>{text(label)}</dt><dd>{text(value)}<small>{sentence(note)}</small></dd></div>"
        for label, value, note in items
    )
    return f'<dl class="numbers {kind}">{cells}</dl>'


def _leading_numbers(rows: Sequence[Row], verdict: Verdict, summary: Summary) -> str:
    """What must be seen at once: how good the model is and what a guess gets, epsilon, bytes and time."""
    if not rows:
        return ""
    work = sum(units.total(row.seconds.values()) for row in rows)
    training = units.percent(units.total(row.seconds.get("train") for row in rows) / work) if work else ""
    up, down = sum(row.bytes.up.total for row in rows), sum(row.bytes.down.total for row in rows)
    items = [
        *_judged(rows, summary),
        ("Epsilon spent", *epsilon_spent(verdict)),
        ("Sent by clients", units.size(up), f"all clients, all rounds; {units.size(down)} to them"),
        ("Wall clock", units.duration(units.total(row.wall_seconds for row in rows)),
         f"training is {training} of the work" if training else ""),
    ]  # fmt: skip
    return _numbers(items, "lead")


def _judged(rows: Sequence[Row], summary: Summary) -> list[Item]:
    """The figure that leads, with what a guess gets; balanced accuracy too, where it does not lead."""
    measured = [row for row in rows if row.leading is not None and math.isfinite(row.leading)]
    grouped = next((row for row in reversed(rows) if row.of_groups), None)
    personal = [found for row in rows if (found := units.spread(row.of_personal))]
    models = f"; personal models {units.number(personal[-1][1])} on average" if personal else ""
    if tuned := [found for row in rows if (found := units.spread(row.tuned))]:
        models += f"; fine-tuned at each client {units.number(tuned[-1][1])} on average"
    final, leads = units.number(measured[-1].leading) if measured else units.NOTHING, rows[-1].leads
    best = best_of(measured) if measured else None
    note = f"best {units.number(best.leading)} after round {best.round}" if best else "not measured"
    title = f"{capital(leads.name)}{f' ({leads.unit})' if leads.unit else ''}"
    guessed = guess_words(rows[-1], getattr(summary, "common", ""))
    accuracy = (title, final, "; ".join(filter(None, [guessed, note])) + models)
    if grouped is not None:
        low, mean, high = map(units.number, units.spread(dict(enumerate(grouped.of_groups.values()))) or ())
        each = f"{len(grouped.of_groups)} models, {low} to {high}, each on test data like its clients'"
        on_all = "on all classes" if leads == ACCURACY else "on the common test set"
        said = f"{each}; {', '.join(filter(None, [f'{on_all} {final}', guess_words(rows[-1])]))}{models}"
        accuracy = (f"{title} in groups", mean, of_sites(said) if _at_sites(summary) else said)
    other = rows[-1].figures.get(BALANCED)
    if other is None or leads.name == BALANCED:
        return [accuracy]
    return [accuracy, (capital(BALANCED), units.number(other), guess_words(rows[-1], "", BALANCED))]


def epsilon_spent(verdict: Verdict) -> tuple[str, str]:
    """The largest epsilon that is guaranteed, or toward how many parties nothing is; and toward whom it holds."""
    there = [line for line in verdict.lines if line.state != "absent"]
    open_to = [line for line in there if line.state != "guaranteed"]
    stated = sorted(
        ((line.value or 0.0, line) for line in there if line.state == "guaranteed" and not line.nothing),
        key=lambda one: -one[0],
    )
    by_value: dict[tuple[str, str], list[str]] = {}
    for value, line in stated:
        unit = "" if line.unit == "client" else f" for each {line.unit}"
        by_value.setdefault((number(value), unit), []).append(BRIEF.get(line.party, line.party))
    said = [f"{value}{unit} toward {named(who)}" for (value, unit), who in by_value.items()]
    if open_to:
        many = f"no limit toward {len(open_to)} of {len(there)}"
        return many, "; ".join(said) or ("for the others nothing is to be learned" if len(open_to) < len(there) else "")
    if not stated:
        return ("0", "nothing of the updates can be read") if there else (units.NOTHING, "no round was recorded")
    value, worst = stated[0]
    replaced = ""
    if worst.largest is not None and worst.largest > value:
        replaced = f"; replace-one {number(worst.largest)}"
    said[0] = said[0].removeprefix(number(value)).strip()
    return number(value), f"{'; '.join(said)}{replaced}; delta {worst.delta:g}"


def _more_numbers(rows: Sequence[Row], planned: int, summary: Summary) -> str:
    """The rest of what sums up the rounds."""
    if not rows:
        return ""
    asked, answered = sum(row.clients.asked for row in rows), sum(row.clients.answered for row in rows)
    zone = NOISED if any(row.zones.get(NOISED) for row in rows) else CLEAR
    shares, what = [row.zones.get(zone) for row in rows], f"{capital(zone)} share"
    if any(row.sealed_share for row in rows):
        shares, what = [row.sealed_share for row in rows], "Sealed share"
    first, share = units.percent(shares[0]), units.percent(units.last(shares))
    items = [
        (what, share, f"of the model in the last round; {first} in the first"),
        ("Sent to clients", units.size(sum(row.bytes.down.total for row in rows)), "all clients, all rounds"),
        ("Rounds", f"{len(rows)} of {planned}", "resumed from a checkpoint" if summary.resumed else ""),
        ("Client replies", f"{answered} of {asked}",
         f"{asked - answered} missed" if asked > answered else "no client dropped out"),
    ]  # fmt: skip
    return _numbers(items, "more")


# ---- sections


def _pictures(pictures: Mapping[str, Mapping[str, Any]]) -> str:
    more = len(pictures) - DRAWN
    rest = f"<p>{more} more pictures are in figures.json.</p>" if more > 0 else ""
    return figures(picture_charts(pictures)) + rest


def _protocol(summary: Summary) -> str:
    plan = [[*map(text, step)] for step in summary.plan]
    body = [[f"<code>{hook}</code>", f"<code>{component}</code>", *rest] for hook, component, *rest in plan]
    return table("One round, hook by hook, in order.", ["hook", "component", "what it does here"], body)


def _ledger(ledger: LedgerReport) -> str:
    parts = []
    parts.append(_details(ledger.verdict))
    plain = ledger.to_plain(for_json=True)
    rest = {key: value for key, value in plain.items() if key not in ("verdict", "warnings", _LOG)}
    simple = {key: value for key, value in rest.items() if not isinstance(value, Mapping | list)}
    parts.append(render(simple))
    for key in dict.fromkeys([*(key for key in _LEDGER_CAPTIONS if key in rest), *rest]):
        if key not in simple and rest[key]:
            parts.append(f"<h3>{text(title_of(key))}</h3>{render(rest[key], _LEDGER_CAPTIONS.get(key, ''))}")
    if ledger.log:
        entries = render(plain[_LOG], "What each round released. Everything above can be recomputed from it.")
        parts.append(f"<details class=log><summary>Log, {len(ledger.log)} entries</summary>{entries}</details>")
    return "".join(parts)


def _warnings(ledger: LedgerReport) -> str:
    """What a reader of the verdict should know, below it."""
    count = units.many(len(ledger.warnings), "warning")
    listed = bullets([*map(text, ledger.warnings)])
    return f"<details open><summary>{count}</summary>{listed}</details>" if listed else ""


def _at_sites(summary: Summary) -> bool:
    """Whether each site judges the model on its own examples, since there is no common test set."""
    return bool((summary.recipe.get("data") or {}).get("at") == "sites")


def _clients(summary: Summary) -> int | None:
    found = (summary.recipe.get("data") or {}).get("clients")
    return found if isinstance(found, int) else None


def _details(verdict: Verdict) -> str:
    """Why each party has its line, in whole sentences, with every method and adjacency."""
    body = [
        [f"<b>{text(line.who)}</b>", text(line.guarantee), sentence(line.detail), render(_stated(line)) or "not stated"]
        for line in verdict.lines
    ]
    return table("The verdict in detail: epsilon of the worst client.", ["who", "guarantee", "why", "epsilon"], body)


def _stated(line: Line) -> Mapping[str, float] | str:
    """Every epsilon of a line, each with its adjacency and method in words."""
    found = dict(line.stated)
    for opening, epsilons in (("", line.epsilons), ("nominal, ", line.nominal)):
        for adjacency in ("zero_out", "replace_one") if epsilons else ():
            methods = getattr(epsilons, adjacency)
            found |= {f"{opening}{in_words(adjacency)}, {in_words(how)}": value for how, value in methods.items()}
    return found or ""


def _what_ran(summary: Summary) -> str:
    parts = [again(summary.command)]
    facts = {
        "recipe digest": summary.digest, "engine": summary.engine, "device": summary.device,
        "resumed": summary.resumed, "parameters": summary.parameters,
    }  # fmt: skip
    parts.append(render(facts))
    body = [[f"<code>{text(name)}</code>", text(version)] for name, version in summary.versions.items()]
    parts.append(table("Versions of the core and of every plugin used.", ["distribution", "version"], body))
    written = yaml.safe_dump(summary.recipe, sort_keys=False, allow_unicode=True, width=100)
    parts.append(f"<details><summary>Resolved recipe</summary><pre><code>{text(written)}</code></pre></details>")
    return "".join(parts)


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
    grouped = any(row.of_groups for row in rows)
    figures = dict.fromkeys(title for row in rows for title in row.figures)
    leading = rows[-1].leads.name
    leads = [title for title in figures if title == leading]
    columns: list[tuple[str, Callable[[Row], str]]] = [
        (f"{leading} in groups", lambda row: units.number(_mean(row.of_groups))),
        *((title, lambda row, title=title: units.number(row.figures.get(title))) for title in leads),
        ("accuracy on all classes" if grouped else "accuracy", lambda row: units.number(row.accuracy)),
        ("loss", lambda row: units.number(row.loss)),
        ("train loss", lambda row: units.number(row.train_loss)),
        (f"client {leading}", lambda row: _spread(row.of_clients)),
        ("personal models", lambda row: _mean_and_spread(row.of_personal)),
        ("personal, common set", lambda row: _mean_and_spread(row.of_personal_public)),
        ("fine-tuned", lambda row: _mean_and_spread(row.tuned)),
        ("fine-tuned, common set", lambda row: _mean_and_spread(row.tuned_public)),
        *((f"cluster {name}", lambda row, name=name: units.number(row.clusters.get(name)))
          for name in dict.fromkeys(name for row in rows for name in row.clusters)),
        *((title, lambda row, title=title: units.number(row.figures.get(title)))
          for title in figures if title not in leads),
        ("clients", lambda row: f"{row.clients.answered}/{row.clients.asked}"),
        *((zone, lambda row, zone=zone: units.percent(row.zones.get(zone))) for zone in zone_shares(rows)),
        ("up", lambda row: units.size(row.bytes.up.total)),
        ("down", lambda row: units.size(row.bytes.down.total)),
        ("key server", lambda row: units.size(row.bytes.key_server.total)),
        ("messages", lambda row: str(row.messages)),
        ("wall", lambda row: units.duration(row.wall_seconds)),
        ("simulated", lambda row: units.duration(row.simulated_seconds)),
        *((f"ε {title}", lambda row, party=party: units.number(row.view_epsilons.get(party)))
          for party, title in BRIEF.items() if any(party in row.view_epsilons for row in rows)),
        *((f"epsilon of a {level}", lambda row, level=level: units.number(row.level_epsilons.get(level)))
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
        caption += f" {capital(leading)} in groups: mean over the groups' models, each on test data like its clients'."
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


def groups_table(rows: Rows) -> str:
    """Each group of the last round that had several: its clients, and how its model does."""
    known = [row for row in rows if len(row.group_members) > 1]
    if not known:
        return ""
    row, body = known[-1], []
    own, leads = row.of_groups, row.leads
    for group, ids in row.group_members.items():
        measured = [each.groups[group].leading(leads) for each in rows if group in each.groups]
        result, best = row.groups.get(group), max if leads.better == "higher" else min
        body.append([
            text(group), str(len(ids)), text(", ".join(map(str, ids))), units.number(own.get(group)),
            *(units.number(value) for value in ((result.leading(leads), result.loss) if result else (None, None))),
            units.number(best(units.finite(measured), default=None)),
        ])  # fmt: skip
    changes = sum(before.group_members != after.group_members for before, after in pairwise(known))
    caption = (
        f"Groups of clients with a model each, as in round {row.round}. A model is judged on test data like "
        "that of its clients. The common test set has classes that these clients may never have seen. "
    )
    caption += f"They changed {changes} times." if changes > 1 else "They changed once." if changes else ""
    title = "on the common test set" if leads == ACCURACY else f"{leads.name} on the common test set"
    header = ["group", "size", "clients", leads.name, title, "loss there", "best there"]
    return table(caption.rstrip(), header, body, numeric=3)


def assessments_table(assessments: Mapping[str, Mapping[str, float]]) -> str:
    """What components state of the run with knowledge that no party has: component -> fact -> value."""
    body = [
        [text(component), text(fact.replace("_", " ")), render(value)]
        for component, facts in assessments.items() for fact, value in facts.items()
    ]  # fmt: skip
    caption = "Assessments, made after the run with knowledge that no party of the protocol has."
    return table(caption, ["component", "fact", "value"], body, numeric=2)

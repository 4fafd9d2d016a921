"""The report's section on attacks, from the files in the folder `attacks` of a run.

`summary.json` has a row for each attack, adversary and form; every other JSON file is one target, and the PNG it names
has its images. Files may be missing after an interruption, or damaged: the section shows the readable ones and names
the others. All their content is escaped.
"""

from __future__ import annotations

import base64
import functools
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError
from fedplug_lab.page import write_page
from fedplug_lab.sections import Column, Leak, Result, Section
from fedplug_lab.tables import bullets, sentence, table, text
from fedplug_runs import units
from fedplug_runs.files import read_bytes

from fedplug_attacks.workshop import words
from fedplug_attacks.workshop.pictures import MOST_IMAGES, chart
from fedplug_attacks.workshop.records import AttackSummary, FormMeans, Leakage, SummaryRow, TargetResult
from fedplug_attacks.workshop.results import SUMMARY, Folder, read_folder, read_summary

SHOWN, LISTED = 24, 500
"""Largest number of targets with a picture or chart, and of targets in a line."""
ROWS, TILES = 24, 16
"""Number of findings, and of images in the strip, that are visible at once; the rest is folded."""
_FOLDED = "Every number: forms, reasons, adversaries, targets and their pictures"
_CAUTION = (
    "An attack that fails proves nothing about stronger ones. How to read these numbers: <code>docs/attacking.md</code>"
)
_UNFOLDED = 6  # lines of a cell of the summary that are visible at once
_LARGEST = 4_000_000  # bytes of a picture that is embedded
_PNG = b"\x89PNG\r\n\x1a\n"


class Attacks(Section):
    """The results of attacks, in the report of a run and in the table of a sweep."""

    key, title = "attacks", "Attacks"

    def html(self, run_dir: Path) -> str:
        """The section on attacks; empty if the run has none."""
        folder = read_folder(Path(run_dir) / "attacks")
        parts = []
        if folder.summary:
            parts = [f'<p class="conclusion">{sentence(words.conclusion(folder.summary))}</p>', _strip(folder)]
            parts += [_findings(folder.summary)]
        elif folder.results:
            parts = ["<p>There is no summary: the attacks were interrupted, or are still going on.</p>"]
        if parts:
            inside = f"{_numbers(folder)}{_targets(folder)}"
            opened = "" if folder.summary else " open"
            parts += [f"<p>{_CAUTION}</p><details{opened}><summary>{_FOLDED}</summary>{inside}</details>"]
        damaged = bullets([f"{text(problem)}; it is left out here." for problem in folder.damaged])
        return "".join([*parts, f"<h3>Damaged files</h3>{damaged}" if damaged else ""])

    def headline(self, run_dir: Path) -> tuple[str, str] | None:
        """The conclusion in sentences."""
        summary = read_summary(run_dir / "attacks")
        found = words.conclusion(summary) if summary else ""
        return ("Attacks", found) if found else None

    def record(self, run_dir: Path) -> dict[str, Any]:
        """Attack and adversary -> their result as a `Leakage`."""
        summary = read_summary(run_dir / "attacks")
        rows = summary.rows if summary else []
        several = len({row.round for row in rows}) > 1
        found: dict[str, Leakage] = {}
        for row in rows:
            when = f" {words.when_words(row.adversary, row.round)}" if several else ""
            name = f"{row.attack} {row.adversary}{when}"
            name += f" probe {row.probe_batch_size}" if row.probe_batch_size else ""
            entry = found.setdefault(name, Leakage(row.ranking, row.form, row.baselines, {}, row.adversary))
            if row.headline:
                entry.stronger = row.form
            metrics = {metric: value.mean for metric, value in row.metrics.items()}
            people = row.people.attacked, row.people.recovered
            entry.forms[row.form] = FormMeans(
                metrics, row.targets, row.applicable, row.share, row.seconds, *people, row.states,
                row.judged.state if row.judged else "",
            )
        return {name: entry.to_plain(for_json=True) for name, entry in found.items()}

    def leaks(self, record: Mapping[str, Any]) -> list[Leak]:
        """Each attack by each adversary, in its stronger form, next to the best trivial guess."""
        found = []
        for name, entry in _leakages(record).items():
            metric, low = entry.ranking.metric, entry.ranking.better == "low"
            outcome = entry.forms[entry.stronger]
            guess, reached = words.best_guess(entry.guesses, entry.ranking) or ("", None)
            found.append(
                Leak(
                    name, words.metric_title(metric), units.last([outcome.metrics.get(metric)]), reached, guess, low,
                    outcome.succeeded, outcome.applicable, outcome.people, outcome.recovered, entry.adversary,
                    words.who_words(entry.adversary), outcome.states, outcome.state,
                )
            )  # fmt: skip
        return found

    def untried(self, run_dir: Path) -> Sequence[str]:
        """Kinds of rounds that were not probed, and what there was no time for."""
        summary = read_summary(run_dir / "attacks")
        return [] if summary is None else [*summary.unseen, *words.left(summary)]

    def is_awaited(self, run_dir: Path, recipe: Mapping[str, Any]) -> bool:
        """Whether the recipe has attacks that were not made or not finished."""
        section = recipe.get("attack")
        wanted = isinstance(section, Mapping) and bool(section.get("attacks"))
        return wanted and not (run_dir / "attacks" / SUMMARY).is_file()

    def columns(self, results: Sequence[Result]) -> Iterator[Column]:
        """For each attack and adversary the ranking number in each form, next to the best trivial guess."""
        known = [_leakages(result.added.get(self.key, {})) for result in results]
        for name in dict.fromkeys(name for found in known for name in found):
            entries = [entry for found in known if (entry := found.get(name))]
            headline = entries[0].ranking.metric
            label = f"{name.partition('.')[2] or name} {headline}"
            for which in dict.fromkeys(["adaptive", "naive", *(guess for entry in entries for guess in entry.guesses)]):
                yield f"{label} {which}", functools.partial(_reached, name, which, headline), "{:.4g}".format


def _reached(name: str, which: str, metric: str, result: Result) -> float | None:
    """A number of an attack in the line of a sweep, of a form or a guess."""
    entry = _leakages(result.added.get(Attacks.key, {})).get(name)
    if entry is None:
        return None
    return (entry.forms[which].metrics if which in entry.forms else entry.guesses.get(which, {})).get(metric)


def _leakages(record: Mapping[str, Any]) -> dict[str, Leakage]:
    """The content kept by `record`.

    Raises:
        SetupError: it is damaged.
    """
    try:
        return {name: Leakage.from_plain(entry) for name, entry in record.items()}
    except ValueError as error:
        raise SetupError(
            f"the line of a run in sweep.jsonl is damaged: its attacks cannot be read ({error}); remove the line to "
            "run its combination again"
        ) from error


ATTACKS = Attacks()
"""The entry point."""


def write_attack_page(run_dir: Path) -> Path | None:
    """Writes the section as a page, `attacks.html` of the run folder; None if the run has no attacks.

    Args:
        run_dir: the folder of the run.
    """
    if not (section := ATTACKS.html(run_dir)):
        return None
    byline, sections = f'<p class="byline">{text(Path(run_dir).name)}</p>', [("attacks", "Attacks", section)]
    return write_page(Path(run_dir) / "attacks.html", "attacks", "What attacks took", byline, [], sections)


# ---- at a glance


def _findings(summary: AttackSummary) -> str:
    """A row for each question: the adversary, the findings, and the result of a guess that looks at nothing."""
    caption = (
        "Who found what. An image is recovered where it alone meets the rule of the attack and comes nearer than the "
        "mean image. Inconclusive: the search did not fit what it saw, so that it says nothing."
    )
    body = [_brief(one, [one.attack], [one.remark]) for one in words.findings(summary)]
    rest = table("The other rows.", words.HEADER, body[ROWS:], whole=True)
    more = f"<details><summary>{len(body) - ROWS} more rows</summary>{rest}</details>" if rest else ""
    idle = "".join(f'<p class="note">{text(said)}</p>' for said in words.idle(summary) if body)
    return f"{table(caption, words.HEADER, body[:ROWS], whole=True)}{more}{idle}"


def _brief(one: words.Finding, how: Sequence[str], remarks: Sequence[str]) -> list[str]:
    """The cells of `words.HEADER`, with notes on the attack and on the outcome."""
    what, outcome = text(f"{one.sought}, {one.when}"), f"<strong>{text(one.state)}</strong>"
    notes = (f'<br><span class="note">{text("; ".join(filter(None, each)))}</span>' for each in (how, remarks))
    return [text(one.who), what + next(notes), text(one.found), text(one.guess), outcome + next(notes)]


def _strip(folder: Folder) -> str:
    """The true images, and below them the found ones: recovered images first, else the nearest ones."""
    shown, room, seen = list[str](), TILES, set[tuple[int, str]]()
    for result in sorted(folder.results, key=_by_what_it_shows):
        people = {(result.client, person) for person in result.truth.people}
        count = max(1, min(len(result.truth.labels), MOST_IMAGES))
        if count > room or (people and people <= seen):  # each person once, for any adversary
            continue
        recovered = max((len(outcome.recovered) for outcome in result.forms.values()), default=0)
        who = f"client {result.client}, by {words.who_words(result.adversary)}"
        said = text(f"{who}: {recovered} of {len(result.truth.labels)} recovered")
        if image := _image(folder, result, said):
            room, seen = room - count, seen | people
            shown.append(f"<figure>{image}<figcaption>{said}</figcaption></figure>")
    label = "True images above, what was found below."
    return f'<p class="note">{label}</p><div class="strip">{"".join(shown)}</div>' if shown else ""


def _by_what_it_shows(result: TargetResult) -> tuple[float, float, str]:
    """Most recovered images first, then the nearest to the truth."""
    outcome = result.forms.get(result.headline or "")
    recovered = len(outcome.recovered) if outcome else 0
    error = outcome.metrics.get("mse", math.inf) if outcome else math.inf
    return -recovered, error if math.isfinite(error) else math.inf, result.key


def _image(folder: Folder, result: TargetResult, alt: str) -> str:
    """The PNG of a target within the page; empty if the name is not that of a PNG in this very folder."""
    name = result.picture or ""
    file = folder.path / name
    try:
        if Path(name).name != name or not file.is_file() or file.stat().st_size > _LARGEST:
            return ""
        data = read_bytes(file)
    except (OSError, ValueError):
        return ""
    if not data.startswith(_PNG) or len(data) < 24:
        return ""
    width, height = struct.unpack(">II", data[16:24])
    address = f"data:image/png;base64,{base64.b64encode(data).decode('ascii')}"
    return f'<img src="{address}" width="{width}" height="{height}" alt="{alt}">'


# ---- every number


def _numbers(folder: Folder) -> str:
    """A row for each form of each attack by each adversary, what adversaries see, and numbers that are not defined."""
    caption = (
        "Results over all targets. The naive form treats hidden entries as 0, the adaptive one uses only what is "
        "visible; the stronger of the two counts. That an attack did not apply does not protect against others. "
        "Numbers are means ± standard deviation over targets; times (of the CPU) and gradient evaluations are sums. "
        "Numbers called noticed are signs of a planted model that a client can see; who plants it can avoid them."
    )
    header = ["who", "what", "found", "status", "numbers, with trivial guesses"]
    rows, known = (folder.summary.rows, folder.summary.adversaries) if folder.summary else ([], {})
    undefined = {pair for result in folder.results for one in result.forms.values() for pair in one.undefined.items()}
    return "".join([
        table(caption, header, [_cells(row, rows) for row in rows], whole=True),
        table("What each adversary sees and holds.", ["adversary", "sees and holds"],
              [[*map(text, pair)] for pair in known.items()]),
        table("Numbers that are not defined here.", ["metric", "reason"],
              [[*map(text, pair)] for pair in sorted(undefined)]),
    ])  # fmt: skip


def _cells(row: SummaryRow, rows: Sequence[SummaryRow]) -> list[str]:
    first, found, shares = row.ranking.metric, words.finding(row, {}), words.shares_words(row.states)
    alike, how = [other for other in rows if _kind(other) == _kind(row)], [row.attack, row.form]
    if row.headline and len({str(other.metrics.get(first)) for other in alike}) > 1:
        how += ["stronger"]
    if row.form == "adaptive" and any(each.form == "naive" and each.succeeded < row.succeeded for each in alike):
        how += ["zero-filling made it look protected"]
    how += [f"entries: {shares}" if shares else "", f"{row.unplaced:,} values unplaced" if row.unplaced else ""]
    remarks = [f"{count} × {reason}" for reason, count in row.reasons.items() if reason not in found.remark]
    if row.success and not row.people.attacked:
        remarks += [f"the attack's rule: {words.success_words(row.success)}"]
    trivial = words.trivial_guesses(row.baselines, first)
    numbers = [words.mean_words(name, row.metrics[name]) for name in words.metric_names(row.metrics, first)]
    numbers[1:1] = [f"{guess}: {words.metric_number(first, value)}" for guess, value in trivial.items()]
    gradients = f" for {units.many(row.gradient_evaluations, 'gradient')}" if row.gradient_evaluations else ""
    how += [f"{units.duration(row.seconds)}{gradients}"]
    who, what, seen, _, outcome = _brief(found, how, [found.remark, *remarks])
    return [who, what, seen, outcome, _folded(numbers)]


def _kind(row: SummaryRow) -> tuple[str, str, int, int | None]:
    """The common key of two rows of a summary that differ in form only."""
    return row.attack, row.adversary, row.round, row.probe_batch_size


def _folded(lines: Sequence[str]) -> str:
    """One line each; further ones are folded if they are many."""
    shown = [sentence(line) for line in lines]
    if len(shown) <= _UNFOLDED + 1:
        return "<br>".join(shown) or units.NOTHING
    rest = "<br>".join(shown[_UNFOLDED:])
    return f"{'<br>'.join(shown[:_UNFOLDED])}<details><summary>{len(shown) - _UNFOLDED} more</summary>{rest}</details>"


def _targets(folder: Folder) -> str:
    """Every target: some of each attack and adversary, in turn, with a picture or a chart, the others in a line."""
    kinds: dict[tuple[str, str], list[TargetResult]] = {}
    for result in folder.results:
        kinds.setdefault((result.attack, result.adversary), []).append(result)
    figures, lines = list[str](), list[str]()
    for result in (one for turn in zip_longest(*kinds.values()) for one in turn if one is not None):
        seeds = dict.fromkeys(str(one.seed) for one in result.forms.values() if one.seed is not None)
        seen = words.shares_words(result.states)
        told = ". ".join([words.outcomes(result), *([f"Entries it saw: {seen}"] if seen else []),
                          *([f"Seeds: {', '.join(seeds)}"] if seeds else [])])  # fmt: skip
        key, alt, shown = f"attack-{len(figures) + 1}", text(told), ""
        if len(figures) < SHOWN and result.picture is not None:
            missing = f"<p>{text(result.picture)} is missing or is not a picture.</p>"
            image = _image(folder, result, alt)
            shown = f'<div class="pan" tabindex="0">{image}</div>' if image else missing
        elif len(figures) < SHOWN and not result.same_as:
            shown = chart(result, key, told)
        if shown:
            head = f'<figure id="{key}"><h3>{text(result.key)}</h3>'
            figures.append(f"{head}{shown}<figcaption>{alt}</figcaption></figure>")
        else:
            named = f" Picture: {text(result.picture)}" if result.picture else ""
            lines.append(f"<li>{text(result.key)}: {alt}.{named}</li>")
    opened, hidden = "" if folder.summary else " open", len(lines) - LISTED
    more = f"<li>{hidden} more targets are in the folder attacks.</li>" if hidden > 0 else ""
    listed = f"<ul>{''.join(sorted(lines)[:LISTED])}{more}</ul>"
    rest = f"<details{opened}><summary>{units.many(len(lines), 'more target')}</summary>{listed}</details>"
    return f'<div class="targets">{"".join(figures)}</div>{rest if lines else ""}'

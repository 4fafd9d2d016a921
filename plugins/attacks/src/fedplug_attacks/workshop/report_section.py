"""The report's section on attacks, from the files in the folder `attacks` of a run.

`summary.json` has a row for each attack, adversary and form; every other JSON file is one target, and the PNG it names
has its images. Files may be missing after an interruption, or damaged: the section shows the readable ones and names
the others. All their content is escaped.
"""

from __future__ import annotations

import base64
import dataclasses
import math
import statistics
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedplug.api.errors import SetupError
from fedplug_lab.page import write_page
from fedplug_lab.sections import Column, Leak, Result, Section
from fedplug_lab.tables import sentence, table, text
from fedplug_runs import units
from fedplug_runs.files import read_bytes, read_text
from fedplug_std.handed import alarms

from fedplug_attacks.workshop import words
from fedplug_attacks.workshop.pictures import MOST_IMAGES, chart
from fedplug_attacks.workshop.records import AttackSummary, FormMeans, Leakage, SummaryRow, TargetResult
from fedplug_attacks.workshop.results import SUMMARY, read_summary

SHOWN, LISTED = 24, 500
"""Largest number of pictures and charts, and of listed targets."""
ROWS, TILES = 24, 16
"""Number of findings, and of images in the strip, that are visible at once; the rest is folded."""
NOTICED = ("change", "parallel_rows", "emptied_rows", "silent_rows")
"""The reported signs of planted models (`fedplug_std.handed.signs`)."""
_FOLDED = "Every number: forms, reasons, adversaries, targets and their pictures"
_CAUTION = (
    "An attack that fails proves nothing about stronger ones. How to read these numbers: <code>docs/attacking.md</code>"
)
_UNFOLDED = 6  # lines of a cell of the summary that are visible at once
_LARGEST = 4_000_000  # bytes of a picture that is embedded
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclasses.dataclass
class _Folder:
    """The content of the folder: targets, the rows and the rest of the summary, damaged files."""

    path: Path
    results: list[TargetResult] = dataclasses.field(default_factory=list)
    summary: AttackSummary | None = None
    damaged: list[str] = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> list[SummaryRow]:
        """The rows of the summary; none without one."""
        return self.summary.rows if self.summary else []


def attacks_section(run_dir: Path) -> str:
    """The section as HTML; empty if the run has no attacks.

    Args:
        run_dir: the folder of the run.
    """
    folder = _read(Path(run_dir) / "attacks")
    if not (folder.results or folder.summary or folder.damaged):
        return ""
    parts = []
    if folder.summary:
        parts += [f'<p class="conclusion">{sentence(words.conclusion(folder.summary))}</p>', _strip(folder)]
        parts += [_findings(folder.summary)]
    elif folder.results:
        parts.append("<p>There is no summary: the attacks were interrupted, or are still going on.</p>")
    parts.append(f"<p>{_CAUTION}</p>")
    if folder.results or folder.summary:
        inside = [_summary_table(folder), _noticed(folder), _differences(folder), _reasons(folder)]
        inside += [_adversaries(folder), _undefined(folder), _targets(folder), _pictures(folder)]
        opened = "" if folder.summary else " open"
        parts.append(f"<details{opened}><summary>{_FOLDED}</summary>{''.join(inside)}</details>")
    return "".join([*parts, _damage(folder)])


def write_attack_page(run_dir: Path) -> Path | None:
    """Writes the section as a page, `attacks.html` of the run folder; None if the run has no attacks.

    Args:
        run_dir: the folder of the run.
    """
    if not (section := attacks_section(run_dir)):
        return None
    byline = f'<p class="byline">{text(Path(run_dir).name)}</p>'
    return write_page(Path(run_dir) / "attacks.html", "attacks", "What attacks took", byline, [], [
        ("attacks", "Attacks", section)
    ])  # fmt: skip


def leakage_line(run_dir: Path) -> str:
    """The conclusion in sentences for the top of the page; empty if no attack was made."""
    summary = _read(Path(run_dir) / "attacks").summary
    return words.conclusion(summary) if summary else ""


# ---- reading


def _read(path: Path) -> _Folder:
    folder = _Folder(path)
    for file in sorted(path.glob("*.json")) if path.is_dir() else ():
        try:
            content = read_text(file)
            if file.name == SUMMARY:
                folder.summary = AttackSummary.from_json(content)
            else:
                folder.results.append(TargetResult.from_json(content))
        except (OSError, ValueError) as error:
            folder.damaged.append(f"{file.name} cannot be read: {error}")
    return folder


# ---- at a glance


def _findings(summary: AttackSummary) -> str:
    """A row for each question: the adversary, the findings, and the result of a guess that looks at nothing."""
    found = words.findings(summary)
    caption = (
        "Who found what. An image is recovered where it alone meets the rule of the attack and comes nearer than the "
        "mean image. Inconclusive: the search did not fit what it saw, so that it says nothing."
    )
    body = [
        [text(one.who), f'{text(one.what)}<br><span class="note">{text(one.attack)}</span>', text(one.found),
         text(one.guess), f"<strong>{text(one.state)}</strong>{_line_below(one.remark)}"]
        for one in found
    ]  # fmt: skip
    rest = table("The other rows.", words.HEADER, body[ROWS:], whole=True)
    more = f"<details><summary>{len(body) - ROWS} more rows</summary>{rest}</details>" if rest else ""
    idle_ones = "".join(f'<p class="note">{text(said)}</p>' for said in words.idle(summary))
    return f"{table(caption, words.HEADER, body[:ROWS], whole=True)}{more}{idle_ones}"


def _line_below(remark: str) -> str:
    return f'<br><span class="note">{text(remark)}</span>' if remark else ""


def _strip(folder: _Folder) -> str:
    """The true images, and below them the found ones: recovered images first, else the nearest ones."""
    shown, room, seen = list[str](), TILES, set[tuple[int, str]]()
    for result in sorted(folder.results, key=_by_what_it_shows):
        data = _png(folder, result.picture or "")
        people = {(result.client, person) for person in result.truth.people}
        count = max(1, min(len(result.truth.labels), MOST_IMAGES))
        if data is None or count > room or (people and people <= seen):  # each person once, for any adversary
            continue
        room, seen = room - count, seen | people
        alt = _strip_words(result)
        shown.append(f"<figure>{_image(data, alt)}<figcaption>{text(alt)}</figcaption></figure>")
    label = "True images above, what was found below."
    return f'<p class="note">{label}</p><div class="strip">{"".join(shown)}</div>' if shown else ""


def _by_what_it_shows(result: TargetResult) -> tuple[float, float, str]:
    """Most recovered images first, then the nearest to the truth."""
    outcome = result.forms.get(result.headline or "")
    recovered = len(outcome.recovered) if outcome else 0
    error = outcome.metrics.get("mse", math.inf) if outcome else math.inf
    return -recovered, error if math.isfinite(error) else math.inf, result.key


def _strip_words(result: TargetResult) -> str:
    recovered = max((len(outcome.recovered) for outcome in result.forms.values()), default=0)
    return (
        f"client {result.client}, by {words.who_words(result.adversary)}: "
        f"{recovered} of {len(result.truth.labels)} recovered"
    )


# ---- all targets together


def _summary_table(folder: _Folder) -> str:
    """A row for each form of each attack by each adversary; the forms of one attack stay together."""
    caption = (
        "Results over all targets. The naive form treats hidden entries as 0, the adaptive one uses only what is "
        "visible; the stronger of the two counts. Successes are among the targets the attack applied to, with the 95% "
        "Wilson interval of their share. Numbers are means ± standard deviation over targets; times (of the CPU) and "
        "gradient evaluations are sums."
    )
    header = ["attack", "adversary, on", "form", "succeeded", "numbers, with trivial guesses", "cost"]
    return table(caption, header, [_summary_cells(row, folder.rows) for row in folder.rows])


def _summary_cells(row: SummaryRow, rows: Sequence[SummaryRow]) -> list[str]:
    first, form, size = row.ranking.metric, text(row.form), row.probe_batch_size
    names = [name for name in words.metric_names(row.metrics, first) if name in row.metrics]
    numbers = [words.mean_words(name, row.metrics[name]) for name in names]
    trivial = words.trivial_guesses(row.baselines, first)
    guesses = [f"{guess}: {words.metric_number(first, value)}" for guess, value in trivial.items()]
    shares = words.shares_words(row.states)
    seen = [f"entries: {shares}" if shares else "", f"{row.unplaced:,} values unplaced" if row.unplaced else ""]
    fate = [f"{units.percent(row.wilson[0])} to {units.percent(row.wilson[1])}"] if row.applicable else []
    decides = row.applicable and row.success and not row.people.attacked
    fate += [f"if {words.success_words(row.success)}"] if decides else []
    fate += [f"{count} {state}" for count, state in (
        (row.not_applicable, "not applicable"), (row.inconclusive, "inconclusive")
    ) if count]  # fmt: skip
    gradients = f"{row.gradient_evaluations} gradients" if row.gradient_evaluations > 0 else ""
    probes = "" if size is None else f"probes with {words.examples(size)}"
    return [
        text(row.attack), _lines([row.adversary, words.when_words(row.adversary, row.round), probes, *seen]),
        f'<strong>{form}</strong> <span class="note">stronger</span>' if is_stronger(row, rows) else form,
        _lines([tried(row), *fate]), _lines([*numbers[:1], *guesses, *numbers[1:]]),
        _lines([units.duration(row.seconds), gradients]),
    ]  # fmt: skip


def _lines(lines: Sequence[str]) -> str:
    """One line each, without line breaks; further ones are folded if they are many."""
    shown = [f'<span class="whole">{text(line)}</span>' for line in lines if line]
    if len(shown) <= _UNFOLDED + 1:
        return "<br>".join(shown) or units.NOTHING
    rest = "<br>".join(shown[_UNFOLDED:])
    return f"{'<br>'.join(shown[:_UNFOLDED])}<details><summary>{len(shown) - _UNFOLDED} more</summary>{rest}</details>"


def _differences(folder: _Folder) -> str:
    """A sentence for each attack whose naive form succeeds less often: zero-filling made it look protected."""
    naive = {_kind(row): row for row in folder.rows if row.form == "naive"}
    pairs = [(naive[_kind(row)], row) for row in folder.rows if row.form == "adaptive" and _kind(row) in naive]
    items = "".join(
        f"<li>{text(row.attack)} by {text(words.who_words(row.adversary))}: zero-filling made it look protected. "
        "Treating "
        f"hidden entries as 0, the attack succeeded on {tried(weak)} targets; using only what is visible, on "
        f"{tried(row)}.</li>" for weak, row in pairs if weak.succeeded < row.succeeded
    )  # fmt: skip
    return f'<h3>Where the forms differ</h3><ul class="warnings">{items}</ul>' if items else ""


def is_stronger(row: SummaryRow, rows: Sequence[SummaryRow]) -> bool:
    """Whether this form learnt more than another of the same attack by the same adversary; False for equals."""
    means = {str(other.metrics.get(row.ranking.metric)) for other in rows if _kind(other) == _kind(row)}
    return row.headline and len(means) > 1


def _kind(row: SummaryRow) -> tuple[str, str, int, int | None]:
    """The common key of two rows of a summary that differ in form only."""
    return row.attack, row.adversary, row.round, row.probe_batch_size


def tried(row: SummaryRow) -> str:
    """`4 of 5`: successes among the targets to which the attack applied; a dash where there were none."""
    return f"{row.succeeded} of {row.applicable}" if row.applicable else units.NOTHING


def _noticed(folder: _Folder) -> str:
    """The signs of planted models that clients could notice: the median client of each attack."""
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for result in folder.results:
        outcome = next(iter(result.forms.values()))
        signs = {name: outcome.own[key] for name in NOTICED if (key := f"noticed_{name}") in outcome.own}
        if signs:
            found.setdefault((result.attack, result.adversary), []).append(signs)
    body = []
    for (attack, adversary), clients in found.items():
        median = {name: statistics.median(each.get(name, 0.0) for each in clients) for name in NOTICED}
        rows = [f"{median[name]:.0%}" for name in NOTICED if name != "change"]
        told = sum(bool(alarms(each)) for each in clients)
        body.append([text(attack), text(adversary), f"{median['change']:.2g}", *rows, f"{told} of {len(clients)}"])
    caption = (
        "What clients could have noticed of the planted model: the norm of its change relative to the model before, "
        "and the largest share of a layer's rows that are multiples of each other, became zeros, or learnt nothing; "
        "and at how many targets fedplug party would have said so. A server that knows these signs can avoid them."
    )
    header = ["attack", "adversary", "change", "parallel rows", "emptied rows", "silent rows", "party says so"]
    return table(caption, header, body, numeric=2)


def _reasons(folder: _Folder) -> str:
    """Why attacks did not apply or stopped: from the summary, else from the targets."""
    counted: Counter[tuple[str, ...]] = Counter()
    for row in folder.rows:
        counted.update({(row.attack, row.adversary, row.form, reason): n for reason, n in row.reasons.items()})
    for result in () if folder.rows else folder.results:
        named = ((form, outcome.reason) for form, outcome in words.forms(result).items() if outcome.reason)
        counted.update((result.attack, result.adversary, *pair) for pair in named)
    caption = "Where an attack did not apply or broke off. That it did not apply does not protect against others."
    return _counted(caption, ["attack", "adversary", "form", "reason", "targets"], counted)


def _undefined(folder: _Folder) -> str:
    """The numbers that are missing because they are not defined for these targets."""
    counted: Counter[tuple[str, ...]] = Counter()
    for result in folder.results:
        counted.update(sorted({pair for outcome in result.forms.values() for pair in outcome.undefined.items()}))
    return _counted("Numbers that are not defined here.", ["metric", "reason", "targets"], counted)


def _counted(caption: str, header: Sequence[str], counted: Mapping[tuple[str, ...], int]) -> str:
    body = [[*map(text, key), str(count)] for key, count in counted.items()]
    return table(caption, header, body, numeric=len(header) - 1)


def _adversaries(folder: _Folder) -> str:
    known = folder.summary.adversaries if folder.summary else {}
    body = [[text(name), text(sentence)] for name, sentence in known.items()]
    return table("What each adversary sees and holds.", ["adversary", "sees and holds"], body)


# ---- target by target


def _targets(folder: _Folder) -> str:
    """Every target in a line."""
    if not folder.results:
        return ""
    items = "".join(f"<li>{text(_target(result))}</li>" for result in folder.results[:LISTED])
    hidden = len(folder.results) - LISTED
    more = f"<li>{hidden} more targets are in the folder attacks.</li>" if hidden > 0 else ""
    opened = "" if folder.rows else " open"
    return f"<details{opened}><summary>Every target, {len(folder.results)}</summary><ul>{items}{more}</ul></details>"


def _target(result: TargetResult) -> str:
    seeds = dict.fromkeys(str(one.seed) for one in result.forms.values() if one.seed is not None)
    seen = words.shares_words(result.states)
    return ". ".join([words.target_line(result), *([f"Entries it saw: {seen}"] if seen else []),
                      *([f"Seeds: {', '.join(seeds)}"] if seeds else [])])  # fmt: skip


def _pictures(folder: _Folder) -> str:
    """The first pictures of every attack and adversary, in turn, until there are enough; the rest by name."""
    kinds: dict[tuple[str, str], list[TargetResult]] = {}
    for result in folder.results:
        if not result.same_as:
            kinds.setdefault((result.attack, result.adversary), []).append(result)
    shown, rest = list[str](), list[str]()
    for result in (one for turn in zip_longest(*kinds.values()) for one in turn if one is not None):
        if len(shown) < SHOWN:
            shown += filter(None, [_figure(folder, len(shown) + 1, result)])
        elif result.picture is not None:
            rest.append(f"<code>{text(result.picture)}</code>")
    more = f"<details><summary>{len(rest)} more pictures are in the folder attacks</summary><p>{', '.join(rest)}</p>"
    return f'<div class="targets">{"".join(shown)}</div>{more + "</details>" if rest else ""}' if shown else ""


def _figure(folder: _Folder, number: int, result: TargetResult) -> str:
    """The images of a target, or a chart; empty where there is neither."""
    title, alt = f"{result.attack}: {words.target_words(result)}", alternative(result)
    if result.picture is None:
        inside = chart(result, f"attack-{number}", alt)
    elif (data := _png(folder, result.picture)) is None:
        inside = f"<p>{text(result.picture)} is missing or is not a picture.</p>"
    else:
        inside = f'<div class="pan" tabindex="0">{_image(data, alt)}</div>'
    caption = f"<figcaption>{text(alt)}</figcaption></figure>"
    return f'<figure id="attack-{number}"><h3>{text(title)}</h3>{inside}{caption}' if inside else ""


def _image(data: bytes, alt: str) -> str:
    """A PNG within the page, and the words for those who do not see it."""
    width, height = struct.unpack(">II", data[16:24])
    address = f"data:image/png;base64,{base64.b64encode(data).decode('ascii')}"
    return f'<img src="{address}" width="{width}" height="{height}" alt="{text(alt)}">'


def alternative(result: TargetResult) -> str:
    """The content of a target's picture, in words."""
    parts = [f"{form.capitalize()}: {words.outcome_words(result, form).rstrip('.')}." for form in words.forms(result)]
    seen = words.shares_words(result.states)
    return " ".join([*parts, *([f"Entries it saw: {seen}."] if seen else [])]) or "No form was tried."


def _png(folder: _Folder, name: str) -> bytes | None:
    """The picture, if the name is that of a PNG in this very folder."""
    file = folder.path / name
    try:
        if Path(name).name != name or not file.is_file() or file.stat().st_size > _LARGEST:
            return None
        data = read_bytes(file)
    except (OSError, ValueError):
        return None
    return data if data.startswith(_PNG) and len(data) >= 24 else None


def _damage(folder: _Folder) -> str:
    items = "".join(f"<li>{text(problem)}; it is left out here.</li>" for problem in folder.damaged)
    return f'<h3>Damaged files</h3><ul class="warnings">{items}</ul>' if items else ""


class Attacks(Section):
    """The results of attacks, in the report of a run and in the table of a sweep."""

    key, title = "attacks", "Attacks"

    def html(self, run_dir: Path) -> str:
        """The section on attacks."""
        return attacks_section(run_dir)

    def headline(self, run_dir: Path) -> tuple[str, str] | None:
        """The result of the worst attack."""
        found = leakage_line(run_dir)
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
            for form in ("adaptive", "naive"):
                yield f"{label} {form}", _of_form(name, form, headline), "{:.4g}".format
            for guess in dict.fromkeys(guess for entry in entries for guess in entry.guesses):
                yield f"{label} {guess}", _of_guess(name, guess, headline), "{:.4g}".format


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


def _of_form(name: str, form: str, metric: str) -> Callable[[Result], float | None]:
    def read(result: Result) -> float | None:
        entry = _leakages(result.added.get(Attacks.key, {})).get(name)
        means = entry.forms.get(form) if entry else None
        return means.metrics.get(metric) if means else None

    return read


def _of_guess(name: str, guess: str, metric: str) -> Callable[[Result], float | None]:
    def read(result: Result) -> float | None:
        entry = _leakages(result.added.get(Attacks.key, {})).get(name)
        return entry.guesses.get(guess, {}).get(metric) if entry else None

    return read


ATTACKS = Attacks()
"""The entry point."""

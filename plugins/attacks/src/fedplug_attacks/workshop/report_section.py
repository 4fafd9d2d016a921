"""The report's section on attacks, from the files in the folder `attacks` of a run.

`summary.json` has a row for each attack, adversary and form; every other JSON file is one target, and the PNG it names
is its picture. The files may be damaged, incomplete, or of an older format: what can be read is shown, what cannot is
named. Everything they say is escaped.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedplug.api import units
from fedplug_lab.records import Result
from fedplug_lab.sections import Column, Leak, Section
from fedplug_lab.tables import render, table, text

from fedplug_attacks.workshop.display import is_stronger, summary_rows, tried
from fedplug_attacks.workshop.results import read_result
from fedplug_attacks.workshop.words import (
    examples,
    forms,
    guess_words,
    headline_form,
    headline_metric,
    mean_words,
    metric_names,
    metric_number,
    metric_title,
    metric_words,
    outcome_words,
    shares_words,
    status_words,
    success_words,
    target_words,
    trivial_guesses,
)

SHOWN, LISTED = 24, 500
"""How many pictures the page embeds, and how many forms of targets it lists."""
SUMMARY = "summary.json"
_CAUTION = (
    "An attack that fails proves nothing about stronger ones. How to read these numbers: <code>docs/attacking.md</code>"
)
_UNFOLDED = 3  # lines of numbers in a row of the summary that are seen at once
_LARGEST = 4_000_000  # bytes of a picture that is embedded
_WIDE = 1100  # pixels from which on a picture fills the width of the page
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclasses.dataclass
class _Folder:
    """What the folder holds: targets, the summary, results without forms as earlier versions wrote them, damage."""

    path: Path
    results: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    summary: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    older: dict[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    damaged: list[str] = dataclasses.field(default_factory=list)


def attacks_section(run_dir: Path) -> str:
    """The section as HTML; empty where the run has no attacks.

    Args:
        run_dir: the folder of the run.
    """
    folder = _read(Path(run_dir) / "attacks")
    if not (folder.results or folder.summary or folder.older or folder.damaged):
        return ""
    parts = [f"<p>{_CAUTION}</p>"]
    if folder.results or folder.summary:
        if not summary_rows(folder.summary):
            parts.append("<p>There is no summary: the attacks were interrupted, or are still going on.</p>")
        parts += [_summary_table(folder), _differences(folder), _reasons(folder), _adversaries(folder)]
        parts += [_undefined(folder), _notes(folder), _targets(folder), _pictures(folder)]
    parts += [_older(folder), _damage(folder)]
    return "".join(parts)


def leakage_line(run_dir: Path) -> str:
    """What attacks took, in a sentence for the top of the page; empty where none was made.

    The attack and adversary with the largest share of successes; among equals the one with more targets.
    """
    rows = [row for row in summary_rows(_read(Path(run_dir) / "attacks").summary) if _share(row) is not None]
    if not rows:
        return ""
    worst = max(rows, key=lambda row: (_share(row) or 0.0, units.read(row, "targets")))
    if not _share(worst):
        return f"No attack that was tried succeeded ({len(rows)} rows below), which proves nothing about others."
    return (f"{worst.get('attack')} by {worst.get('adversary')}, {_what(worst)}: {tried(worst)} "
            "targets gave way; see the attacks below.")  # fmt: skip


def _share(row: Mapping[str, Any]) -> float | None:
    """Successes among the targets that an attack applied to; None where it applied to none."""
    applicable = units.read(row, "targets") - units.read(row, "not_applicable")
    return units.read(row, "succeeded") / applicable if applicable > 0 else None


# ---- reading


def _read(path: Path) -> _Folder:
    folder = _Folder(path)
    for file in sorted(path.glob("*.json")) if path.is_dir() else ():
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise ValueError("it is no object")
        except (OSError, ValueError, RecursionError) as error:
            folder.damaged.append(f"{file.name} cannot be read: {error}")
            continue
        if file.name == SUMMARY:
            folder.summary = content
            if not summary_rows(content):
                folder.damaged.append(f"{SUMMARY} has no rows")
        elif isinstance(content.get("forms"), Mapping):
            folder.results.append({"key": file.stem, **content})
        elif "status" in content:
            folder.older[file.stem] = content
        else:
            folder.damaged.append(f"{file.name} holds no result of an attack")
    return folder


# ---- all targets together


def _summary_table(folder: _Folder) -> str:
    rules = {str(result.get("attack")): result for result in reversed(folder.results)}
    body, rows = [], summary_rows(folder.summary)
    # What took most comes first; forms of one attack by one adversary stay together.
    worst: dict[tuple[str, str], float] = {}
    for row in rows:
        pair = str(row.get("attack")), str(row.get("adversary"))
        worst[pair] = max(worst.get(pair, -1.0), -1.0 if _share(row) is None else _share(row) or 0.0)
    for row in sorted(rows, key=lambda row: -worst[str(row.get("attack")), str(row.get("adversary"))]):
        rule = rules.get(str(row.get("attack")), {})
        ranking = headline_metric(row) or headline_metric(rule)
        metrics = units.mapping(row, "metrics")
        first = ranking[0] if ranking else ""
        form = text(row.get("form") or "?")
        stronger = f'<strong>{form}</strong> <span class="note">stronger</span>'
        others = [mean_words(metrics, name) for name in metric_names(metrics, first) if name != first]
        guesses = [f"{guess}: {metric_number(first, value)}" for guess, value in trivial_guesses(row, first).items()]
        gradients = units.read(row, "gradient_evaluations")
        cost = [units.duration(row.get("seconds")), f"{gradients:.0f} gradients" if gradients > 0 else ""]
        body.append([
            text(row.get("attack") or "?"),
            _lines([str(row.get("adversary") or "?"), *_what(row).split(", "), *_seen(row)]),
            stronger if is_stronger(row, rows) else form,
            _lines([tried(row), *_fate(row, success_words(row) or success_words(rule))]),
            _beside(mean_words(metrics, first) if first in metrics else "", guesses), _folded(others), _lines(cost),
        ])  # fmt: skip
    caption = (
        "What the targets came to. The naive form takes hidden entries for 0, the adaptive one uses only what is "
        "visible; the stronger of the two counts. Successes are among the targets the attack applied to, with the 95% "
        "Wilson interval of their share. Numbers are means ± standard deviation over targets; times (of the CPU) and "
        "gradient evaluations are sums."
    )
    header = ["attack", "adversary, on", "form", "succeeded", "number beside trivial guesses", "more numbers", "cost"]
    return table(caption, header, body)


def _beside(number: str, guesses: Sequence[str]) -> str:
    """The number, and under it what guesses reach."""
    below = f'<br><span class="note">{_lines(guesses)}</span>' if guesses else ""
    return f"{_lines([number])}{below}"


def _lines(lines: Sequence[str]) -> str:
    """A line each, none of which is broken."""
    return "<br>".join(f'<span class="whole">{text(line)}</span>' for line in lines if line) or units.NOTHING


def _folded(lines: Sequence[str]) -> str:
    """The first lines, and the others folded away where they are many."""
    if len(lines) <= _UNFOLDED + 1:
        return _lines(lines)
    rest = lines[_UNFOLDED:]
    return f"{_lines(lines[:_UNFOLDED])}<details><summary>{len(rest)} more</summary>{_lines(rest)}</details>"


def _fate(row: Mapping[str, Any], rule: str) -> list[str]:
    """Below the number of successes: the interval of their share, the rule, and the targets without a result."""
    wilson, said = row.get("wilson"), []
    if tried(row) != units.NOTHING:
        if isinstance(wilson, list | tuple) and len(wilson) == 2:
            said.append(f"{units.percent(wilson[0])} to {units.percent(wilson[1])}")
        said.append(f"if {rule}" if rule else "")
    return said + [
        f"{count:.0f} {key.replace('_', ' ')}"
        for key in ("not_applicable", "diverged") if (count := units.read(row, key)) > 0
    ]  # fmt: skip


def _seen(row: Mapping[str, Any]) -> list[str]:
    """How much of the updates it sees, on average over the targets."""
    said = shares_words(row)
    unplaced = units.read(row, "unplaced")
    return [*([f"entries: {said}"] if said else []), *([f"{unplaced:,.0f} values unplaced"] if unplaced > 0 else [])]


def _what(row: Mapping[str, Any]) -> str:
    when = f"round {row['round']}" if row.get("round") is not None else "several rounds"
    size = row.get("probe_batch_size")
    return when if size is None else f"{when}, probes with {examples(size)}"


def _whole(row: Mapping[str, Any], key: str) -> str:
    value = units.read(row, key)
    return f"{value:.0f}" if abs(value) < 1e15 else units.NOTHING


def _differences(folder: _Folder) -> str:
    """A sentence wherever one form succeeds more often than the other."""
    pairs: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in summary_rows(folder.summary):
        name = f"{row.get('attack')}, {row.get('adversary')}, {_what(row)}"
        pairs.setdefault(name, {})[str(row.get("form"))] = row
    sentences = []
    for name, pair in pairs.items():
        naive, adaptive = (pair.get(form, {}) for form in ("naive", "adaptive"))
        poor, good = units.read(naive, "succeeded"), units.read(adaptive, "succeeded")
        if good > poor:
            sentences.append(
                f"{name}: zero-filling made it look protected. Taking hidden entries for 0, the attack succeeded on "
                f"{tried(naive)} targets; using only what is visible, on {tried(adaptive)}."
            )
        elif poor > good:
            sentences.append(
                f"{name}: here the naive form succeeded more often, on {tried(naive)} targets; the adaptive one on "
                f"{tried(adaptive)}."
            )
    items = "".join(f"<li>{text(sentence)}</li>" for sentence in sentences)
    return f'<h3>Where the forms differ</h3><ul class="warnings">{items}</ul>' if items else ""


def _reasons(folder: _Folder) -> str:
    """Why attacks could not be tried, or broke off: from the summary, else from the targets."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for row in summary_rows(folder.summary):
        reasons = units.mapping(row, "reasons")
        for reason in reasons:
            key = (str(row.get("attack")), str(row.get("adversary")), str(row.get("form")), str(reason))
            number = units.as_float(reasons[reason])
            counted[key] += int(number) if 1 <= number < 1e9 else 1
    for result in () if summary_rows(folder.summary) else folder.results:
        for form, outcome in forms(result).items():
            if isinstance(outcome.get("reason"), str) and outcome["reason"]:
                counted[str(result.get("attack")), str(result.get("adversary")), form, outcome["reason"]] += 1
    body = [[*map(text, key), str(count)] for key, count in counted.items()]
    caption = "Where an attack did not apply or broke off. That it did not apply is no protection against others."
    return table(caption, ["attack", "adversary", "form", "reason", "targets"], body, numeric=4)


def _adversaries(folder: _Folder) -> str:
    known = units.mapping(folder.summary, "adversaries")
    body = [[text(name), text(known[name])] for name in known]
    return table("What each adversary sees and holds.", ["adversary", "sees and holds"], body)


def _undefined(folder: _Folder) -> str:
    """Which numbers are missing because they are not defined for these targets."""
    counted: Counter[tuple[str, str]] = Counter()
    for result in folder.results:
        pairs = {
            (str(metric), str(reason))
            for outcome in forms(result).values() for metric, reason in units.mapping(outcome, "undefined").items()
        }  # fmt: skip
        counted.update(sorted(pairs))
    body = [[text(metric), text(reason), str(count)] for (metric, reason), count in counted.items()]
    return table("Numbers that are not defined here.", ["metric", "reason", "targets"], body, numeric=2)


def _notes(folder: _Folder) -> str:
    notes = folder.summary.get("notes") or []
    items = "".join(f"<li>{text(note)}</li>" for note in (notes if isinstance(notes, list) else [notes]))
    return f"<ul>{items}</ul>" if items else ""


# ---- target by target


def _targets(folder: _Folder) -> str:
    body = []
    for result in folder.results:
        metric = headline_metric(result)
        for form, outcome in forms(result).items():
            value = units.mapping(outcome, "metrics").get(metric[0]) if metric else None
            body.append([
                text(result.get("attack") or result["key"]), text(target_words(result)),
                text(shares_words(result) or units.NOTHING),
                f"<strong>{text(form)}</strong>" if form == headline_form(result) else text(form),
                text(status_words(outcome)),
                text(metric_words(metric[0], value)) if metric and value is not None else units.NOTHING,
                text(guess_words(result, *metric).strip(" ()") or units.NOTHING) if metric else units.NOTHING,
                units.duration(outcome.get("seconds")), _whole(outcome, "gradient_evaluations"),
                text(outcome.get("seed") if outcome.get("seed") is not None else units.NOTHING),
            ])  # fmt: skip
    if not body:
        return ""
    header = ["attack", "target", "entries it saw", "form", "status", "number", "best trivial guess", "CPU time",
              "gradients", "seed"]  # fmt: skip
    more = f" {len(body) - LISTED} more lines are in the folder attacks." if len(body) > LISTED else ""
    listed = table(f"Each target, in each form.{more}", header, body[:LISTED], numeric=7)
    opened = "" if summary_rows(folder.summary) else " open"
    return f"<details{opened}><summary>Every target, {len(folder.results)}</summary>{listed}</details>"


def _pictures(folder: _Folder) -> str:
    """The first pictures of every attack and adversary, in turn, until there are enough; the rest by name."""
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for result in folder.results:
        if isinstance(result.get("picture"), str):
            kinds.setdefault((str(result.get("attack")), str(result.get("adversary"))), []).append(result)
    in_turn = [result for turn in zip_longest(*kinds.values()) for result in turn if result is not None]
    shown = in_turn[:SHOWN]
    figures = "".join(_figure(folder, number, result) for number, result in enumerate(shown, 1))
    rest = in_turn[SHOWN:]
    names = ", ".join(f"<code>{text(result['picture'])}</code>" for result in rest)
    more = (f"<details><summary>{len(rest)} more pictures are in the folder attacks</summary><p>{names}</p></details>"
            if rest else "")  # fmt: skip
    return f'<div class="targets">{figures}</div>{more}' if figures else ""


def _figure(folder: _Folder, number: int, result: Mapping[str, Any]) -> str:
    title = f"{result.get('attack') or result['key']}: {target_words(result)}"
    said = alternative(result)
    data = _png(folder, str(result["picture"]))
    if data is None:
        return f"<figure><h3>{text(title)}</h3><p>{text(result['picture'])} is missing or is no picture.</p>" \
               f"<figcaption>{text(said)}</figcaption></figure>"  # fmt: skip
    width, height = struct.unpack(">II", data[16:24])
    wide = " class=wide" if width > _WIDE else ""
    encoded = base64.b64encode(data).decode("ascii")
    return (f'<figure id="attack-{number}"{wide}><h3>{text(title)}</h3>'
            f'<img src="data:image/png;base64,{encoded}" width="{width}" height="{height}" alt="{text(said)}">'
            f"<figcaption>{text(said)}</figcaption></figure>")  # fmt: skip


def alternative(result: Mapping[str, Any]) -> str:
    """What a person who sees a target's picture would take from it, in words."""
    tried = forms(result)
    said = [f"{form.capitalize()}: {outcome_words(result, form).rstrip('.')}." for form in tried]
    seen = shares_words(result)
    return " ".join([*said, f"Entries it saw: {seen}." if seen else ""]).strip() or "No form was tried."


def _png(folder: _Folder, name: str) -> bytes | None:
    """The picture, if the name is that of a PNG in this very folder."""
    file = folder.path / name
    try:
        if Path(name).name != name or not file.is_file() or file.stat().st_size > _LARGEST:
            return None
        data = file.read_bytes()
    except (OSError, ValueError):
        return None
    return data if data.startswith(_PNG) and len(data) >= 24 else None


# ---- what is not of this format


def _older(folder: _Folder) -> str:
    body = [
        [text(name), text(status_words(result)), _numbers(result), text(result.get("reason") or units.NOTHING)]
        for name, result in folder.older.items()
    ]
    return table("Attacks without a scored target.", ["attack", "status", "numbers", "reason"], body)


def _numbers(result: Mapping[str, Any]) -> str:
    metrics = units.mapping(result, "metrics")
    return render({metric_title(name): metrics[name] for name in metrics}) if metrics else units.NOTHING


def _damage(folder: _Folder) -> str:
    items = "".join(f"<li>{text(problem)}; it is left out here.</li>" for problem in folder.damaged)
    return f'<h3>Damaged files</h3><ul class="warnings">{items}</ul>' if items else ""


class Attacks(Section):
    """What attacks took, in the report of a run and in the table of a sweep."""

    key, title = "attacks", "Attacks"

    def html(self, run_dir: Path) -> str:
        """The section on attacks."""
        return attacks_section(run_dir)

    def headline(self, run_dir: Path) -> tuple[str, str] | None:
        """What the worst of them took."""
        found = leakage_line(run_dir)
        return ("Attacks", found) if found else None

    def record(self, run_dir: Path) -> dict[str, Any]:
        """Attack and adversary -> form, or trivial guess -> mean of each number over the targets."""
        summary = read_result(run_dir / "attacks", "summary") or {}
        found: dict[str, Any] = {}
        several = len({row.get("round") for row in summary.get("rows", [])}) > 1
        for row in summary.get("rows", []):
            size = row.get("probe_batch_size")
            when = f" round {row['round']}" if several else ""
            name = f"{row['attack']} {row['adversary']}{when}" + (f" probe {size}" if size else "")
            metric, better = row["headline_metric"]
            entry = found.setdefault(name, {"headline": metric, "better": better, "guess": row["baselines"]})
            if row["headline"]:
                entry["stronger"] = row["form"]
            tried = row["targets"] - row["not_applicable"]
            entry[row["form"]] = {
                **{metric: mean for metric, (mean, _) in row["metrics"].items()},
                "targets": row["targets"], "applicable": tried,
                "succeeded": row["succeeded"] / tried if tried else None, "seconds": row["seconds"],
            }  # fmt: skip
        return found

    def leaks(self, record: Mapping[str, Any]) -> list[Leak]:
        """Each attack by each adversary, in its stronger form, beside the best trivial guess."""
        found = []
        for name, entry in record.items():
            metric, low = str(entry["headline"]), entry.get("better") == "low"
            outcome = units.mapping(entry, str(entry.get("stronger", "adaptive")))
            reached = trivial_guesses({"baselines": entry["guess"]}, metric)
            best = (min if low else max)(reached, key=lambda guess: reached[guess], default="")
            found.append(
                Leak(
                    name, metric_title(metric), outcome.get(metric), reached.get(best), best, low,
                    outcome.get("succeeded"), int(outcome.get("applicable", 0)),
                )
            )  # fmt: skip
        return found

    def is_awaited(self, run_dir: Path, recipe: Mapping[str, Any]) -> bool:
        """Whether the recipe has attacks that were not made, or not to their end."""
        return bool(units.mapping(recipe, "attack").get("attacks")) and not (run_dir / "attacks" / SUMMARY).is_file()

    def columns(self, results: Sequence[Result]) -> Iterator[Column]:
        """For each attack and adversary the number that counts, in each form, and the best trivial guess beside it."""
        known = [result.added.get(self.key, {}) for result in results]
        for name in units.names(known):
            entries = [entry for found in known if (entry := found.get(name))]
            headline = entries[0]["headline"]
            label = f"{name.partition('.')[2] or name} {headline}"
            for form in ("adaptive", "naive"):
                yield f"{label} {form}", _reader(name, form, headline), _few_digits
            for guess in units.names(entries, "guess"):
                yield f"{label} {guess}", _reader(name, "guess", guess, headline), _few_digits


def _reader(*path: str) -> Callable[[Result], float]:
    return lambda result: units.read(result.added.get(Attacks.key, {}), *path)


def _few_digits(value: float) -> str:
    return f"{value:.4g}"


ATTACKS = Attacks()
"""The entry point."""

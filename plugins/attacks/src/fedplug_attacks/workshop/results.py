"""The folder `attacks/` of a run: a JSON file and a picture for each finished target, and a summary of all of them.

A target is written as soon as it is finished, so that an interruption costs only the current one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from fedplug_runs.files import private_folder, read_text, write_text

from fedplug_attacks.api.report import INCONCLUSIVE, NOT_APPLICABLE, SUCCESS
from fedplug_attacks.api.truth import wilson
from fedplug_attacks.workshop.judge import judged
from fedplug_attacks.workshop.records import AttackSummary, Averaged, Outcome, People, SummaryRow, TargetResult

SUMMARY = "summary.json"


def key_of(attack: str, adversary: str, round: int, client: int, batch_size: int | None, batch: int) -> str:
    """The file name, without ending, of one target's result; rounds and batches are counted from 1 here."""
    probe = "" if batch_size is None else f"-probe{batch_size}.{batch + 1}"
    key = f"{attack}-{adversary}-round{round + 1}-client{client}{probe}"
    return re.sub(r"[^A-Za-z0-9_.+@-]", "_", key)


def digest_of(*parts: Any) -> str:
    """SHA-256 (hex) of plain data; a result of other settings is made again."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def read_result(folder: Path, key: str) -> TargetResult | None:
    """A finished target's result; None if there is none, or none that can be read."""
    try:
        return TargetResult.from_json(read_text(folder / f"{key}.json"))
    except (OSError, ValueError):
        return None


def read_summary(folder: Path) -> AttackSummary | None:
    """The summary; None if there is none, or none that can be read."""
    try:
        return AttackSummary.from_json(read_text(folder / SUMMARY))
    except (OSError, ValueError):
        return None


def write_result(folder: Path, result: TargetResult) -> None:
    """Writes one target's result, whole or not at all."""
    private_folder(folder)
    write_text(folder / f"{result.key}.json", result.to_json(indent=1))


@dataclasses.dataclass
class Folder:
    """The content of the folder: targets by name, the summary, and a sentence on each damaged file."""

    path: Path
    results: list[TargetResult] = dataclasses.field(default_factory=list)
    summary: AttackSummary | None = None
    damaged: list[str] = dataclasses.field(default_factory=list)


def read_folder(path: Path) -> Folder:
    """All files in the folder; there may be none."""
    folder = Folder(path)
    for file in sorted(path.glob("*.json")):
        try:
            content = read_text(file)
            if file.name == SUMMARY:
                folder.summary = AttackSummary.from_json(content)
            else:
                folder.results.append(TargetResult.from_json(content))
        except (OSError, ValueError) as error:
            folder.damaged.append(f"{file.name} cannot be read: {error}")
    return folder


def results(folder: Path) -> list[TargetResult]:
    """All results in the folder that can be read, by name."""
    return read_folder(folder).results


def stronger(numbers: Mapping[str, float], better: Literal["high", "low"]) -> str | None:
    """Of forms, each with the number that ranks them, the one that learnt more; the first of equals.

    None if no form has the number.
    """
    usable = {form: value for form, value in numbers.items() if math.isfinite(value)}
    if not usable:
        return None
    return (max if better == "high" else min)(usable, key=lambda form: usable[form])


def write_summary(
    folder: Path, adversaries: Mapping[str, str],
    unseen: Callable[[set[int]], list[str]] = lambda rounds: [], left: Mapping[str, str] | None = None,
) -> AttackSummary:  # fmt: skip
    """Writes `summary.json` over all results in the folder, and returns its content.

    Args:
        folder: `attacks/` of a run.
        adversaries: by name, a sentence on the messages and keys of each; added to those of earlier executions.
        unseen: says what was sent and is not attacked, given the rounds (0-based) whose messages are.
        left: what the default set had no time for, by key; None: what was left before, as far as it was not made since.
    """
    found = read_folder(folder)
    before, everything = found.summary or AttackSummary([], {}), found.results
    kinds = dict[tuple[Any, ...], dict[str, list[tuple[TargetResult, Outcome]]]]()
    for result in everything:
        size = result.probe.batch_size if result.probe else None
        # Results under other options, or of another scope, are another experiment and must not be averaged in.
        kind = (result.attack, result.adversary, result.round, size, result.settings)
        for form, outcome in result.forms.items():
            kinds.setdefault(kind, {}).setdefault(form, []).append((result, outcome))
    looks = sum(len({one.metric for _, outcome in tried for one in outcome.evidence})
                for forms in kinds.values() for tried in forms.values())  # fmt: skip
    made = {result.key for result in everything}
    seen = {result.round - 1 for result in everything if result.adversary != "released"}
    summary = AttackSummary(
        rows=[row for kind in sorted(kinds, key=str) for row in _rows(kinds[kind], looks)],
        adversaries={**before.adversaries, **adversaries},
        people=people_of(everything), unseen=unseen(seen),
        left={key: said for key, said in (before.left if left is None else left).items() if key not in made},
    )  # fmt: skip
    private_folder(folder)
    write_text(folder / SUMMARY, summary.to_json(indent=1))
    return summary


def people_of(found: Iterable[TargetResult], form: str | None = None) -> People:
    """The examples whose images attacks looked for and recovered; every example of every client counts once.

    Args:
        found: results of targets.
        form: the form of the attacks; None: any.
    """
    attacked, recovered, of = set[tuple[int, str]](), dict[str, set[tuple[int, str]]](), "image"
    for result in found:
        examples, of = [(result.client, person) for person in result.truth.people], result.truth.of
        outcomes = [one for name, one in result.forms.items() if form in (None, name)]
        if "images" not in result.finds or all(one.status == NOT_APPLICABLE for one in outcomes):
            continue
        attacked.update(examples)
        places = {place for one in outcomes for place in one.recovered if place < len(examples)}
        recovered.setdefault(result.adversary, set()).update(examples[place] for place in places)
    by = {adversary: len(examples) for adversary, examples in recovered.items() if examples}
    return People(len(attacked), len(set().union(*recovered.values())), by, of)


def _rows(forms: Mapping[str, Sequence[tuple[TargetResult, Outcome]]], looks: int) -> list[SummaryRow]:
    """A row for each form; the stronger form is the headline.

    Args:
        forms: the targets of an attack by an adversary, and their outcomes.
        looks: number of measures, of all rows, that are looked at together.
    """
    rows = list[SummaryRow]()
    for form, tried in forms.items():
        group, entries = [result for result, _ in tried], [outcome for _, outcome in tried]
        first, status = group[0], Counter(entry.status for entry in entries)
        guesses = dict.fromkeys(guess for result in group for guess in result.baselines)
        numbers = sorted({name for entry in entries for name in entry.metrics})
        rows.append(
            SummaryRow(
                attack=first.attack, adversary=first.adversary, form=form, round=first.round,
                probe_batch_size=first.probe.batch_size if first.probe else None, headline=False,
                targets=len(entries), succeeded=status[SUCCESS], not_applicable=status[NOT_APPLICABLE],
                inconclusive=status[INCONCLUSIVE],
                wilson=wilson(status[SUCCESS], len(entries) - status[NOT_APPLICABLE]),
                success=first.success, reasons=dict(Counter(entry.reason for entry in entries if entry.reason)),
                remedies=dict(Counter(entry.remedy for entry in entries if entry.remedy)),
                finds=first.finds, people=people_of(group, form), judged=judged(entries, first.success, looks),
                metrics={name: _over([entry.metrics for entry in entries], name) for name in numbers},
                baselines={guess: _means([result.baselines.get(guess, {}) for result in group]) for guess in guesses},
                ranking=first.ranking, states=_means([result.states for result in group]),
                unplaced=max(result.unplaced for result in group), seconds=sum(entry.seconds for entry in entries),
                gradient_evaluations=sum(entry.gradient_evaluations for entry in entries),
            )
        )  # fmt: skip
    ranking = rows[0].ranking
    means = {row.form: row.metrics[ranking.metric].mean for row in rows if ranking.metric in row.metrics}
    best = stronger(means, ranking.better) or rows[0].form
    for row in rows:
        row.headline = row.form == best
    return rows


def _means(numbers: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: _over(numbers, name).mean for name in dict.fromkeys(name for each in numbers for name in each)}


def _over(numbers: Sequence[Mapping[str, float]], name: str) -> Averaged:
    """Mean and deviation of the finite values of a number."""
    known = [each[name] for each in numbers if name in each and math.isfinite(each[name])]
    return Averaged(float(np.mean(known)), float(np.std(known))) if known else Averaged(math.nan, math.nan)

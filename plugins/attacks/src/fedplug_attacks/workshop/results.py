"""The folder `attacks/` of a run: a JSON file and a picture for each finished target, and a summary of all of them.

A target is written as soon as it is finished, so that an interruption costs only the current one.
"""

from __future__ import annotations

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


def results(folder: Path) -> list[TargetResult]:
    """All results in the folder that can be read, by name."""
    found = (read_result(folder, path.stem) for path in sorted(folder.glob("*.json")) if path.name != SUMMARY)
    return [result for result in found if result is not None]


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
    before = read_summary(folder) or AttackSummary([], {})
    grouped: dict[tuple[Any, ...], list[TargetResult]] = {}
    everything = results(folder)
    for result in everything:
        size = result.probe.batch_size if result.probe else None
        # Results under other options, or of another scope, are another experiment and must not be averaged in.
        kind = (result.attack, result.adversary, result.round, size, result.settings)
        grouped.setdefault(kind, []).append(result)
    tried = [_forms(group) for _, group in sorted(grouped.items(), key=lambda item: str(item[0]))]
    measures = ({one.metric for outcome in outcomes for one in outcome.evidence} for forms in tried
                for _, outcomes in forms.values())  # fmt: skip
    looks = sum(map(len, measures))
    made = {result.key for result in everything}
    seen = {result.round - 1 for result in everything if result.adversary != "released"}
    summary = AttackSummary(
        rows=[row for forms in tried for row in _rows(forms, looks)],
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


_Forms = dict[str, tuple[list[TargetResult], list[Outcome]]]
"""The targets of an attack by an adversary, and their outcomes, by form."""


def _forms(group: Sequence[TargetResult]) -> _Forms:
    found: _Forms = {}
    for result in group:
        for form, outcome in result.forms.items():
            targets, outcomes = found.setdefault(form, ([], []))
            targets.append(result)
            outcomes.append(outcome)
    return found


def _rows(forms: _Forms, looks: int) -> list[SummaryRow]:
    """A row for each form; the stronger form is the headline.

    Args:
        forms: with all targets.
        looks: number of measures, of all rows, that are looked at together.
    """
    rows = list[SummaryRow]()
    for form, (group, entries) in forms.items():
        first = group[0]
        guesses = dict.fromkeys(guess for result in group for guess in result.baselines)
        status = Counter(entry.status for entry in entries)
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

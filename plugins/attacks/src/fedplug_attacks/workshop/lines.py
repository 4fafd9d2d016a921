"""Results of attacks as text, for every display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedplug_runs import units

from fedplug_attacks.workshop.findings import HEADER, conclusion, findings, idle
from fedplug_attacks.workshop.records import AttackSummary, SummaryRow, TargetResult
from fedplug_attacks.workshop.words import forms, outcome_words


def target_line(result: TargetResult) -> str:
    """A finished target in a line: its forms, the stronger first, each with number, trivial guess and time."""
    tried = forms(result)
    said = dict[str, list[str]]()  # forms with the same result share a line
    for form in sorted(tried, key=lambda form: form != result.headline):
        said.setdefault(outcome_words(result, form), []).append(form)
    parts = [
        f"{' and '.join(names)} {words}, {units.duration(sum(tried[form].seconds for form in names))}"
        for words, names in said.items()
    ]
    return f"{result.key}: {'; '.join(parts) or 'no form was tried'}"


def summary_lines(summary: AttackSummary) -> list[str]:
    """The results of all targets: a row for each attack and adversary, and the conclusion below them."""
    rows = [HEADER, *(finding.cells for finding in findings(summary))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]  # fmt: skip
    return [*lines, *idle(summary), conclusion(summary)] if len(rows) > 1 else idle(summary)


def is_stronger(row: SummaryRow, rows: Sequence[SummaryRow]) -> bool:
    """Whether this form learnt more than another of the same attack by the same adversary; False for equals."""
    metric = row.ranking.metric
    means = {str(other.metrics.get(metric)) for other in rows if _kind(other) == _kind(row)}
    return row.headline and len(means) > 1


def _kind(row: SummaryRow) -> tuple[str, str, int, int | None]:
    """The common key of two rows of a summary that differ in form only."""
    return row.attack, row.adversary, row.round, row.probe_batch_size


def tried(row: SummaryRow) -> str:
    """`4 of 5`: successes among the targets to which the attack applied; a dash where there were none."""
    return f"{row.succeeded} of {row.applicable}" if row.applicable else units.NOTHING


def interruption(done: int, total: int, folder: Path) -> str:
    """A sentence on the finished targets after an interruption."""
    return f"Interrupted; {done} of {total} targets are finished and kept in {folder}."

"""The result of an attack in words and numbers, for pictures, report and display alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from fedplug_runs import units

from fedplug_attacks.workshop.records import Averaged, Guesses, Outcome, Ranking, Success, TargetResult
from fedplug_attacks.workshop.results import stronger

FORMS = ("naive", "adaptive")
"""The order of the forms: first the zero-filling attacker, then the one that knows the mask."""

_TITLES = {
    "mse": "MSE", "psnr": "PSNR", "ssim": "SSIM", "mssim": "MSSIM", "ms_ssim": "MS-SSIM", "vifp": "VIFp",
    "lpips": "LPIPS", "le_acc": "label existence accuracy (LeAcc)",
    "ln_acc": "label number accuracy (LnAcc)", "presence_auc": "presence AUC",
    "membership_auc": "membership AUC", "tpr_at_1_fpr": "TPR at 1% FPR",
    "tpr_at_01_fpr": "TPR at 0.1% FPR",
}  # fmt: skip
_DECIBELS = "psnr"


def metric_title(name: str) -> str:
    """`mse` is `MSE`, `mse_inside` is `MSE inside`; for a component's name, the part after the dot."""
    last = name.rpartition(".")[2]
    known = last if last in _TITLES else last.partition("_")[0]
    return " ".join([_TITLES.get(known, known), *filter(None, last[len(known) :].split("_"))])


def metric_number(name: str, value: float) -> str:
    """The number in readable form, with its unit; a dash for NaN: it diverged, or no target has it."""
    if math.isnan(value):
        return units.NOTHING
    if name.rpartition(".")[2].startswith(_DECIBELS) and math.isfinite(value):
        return f"{value:.1f} dB"
    if 10 <= abs(value) < 1e6 and value == int(value):
        return str(int(value))  # a count
    return units.number(0.0 if abs(value) < 1e-15 else value)


def metric_words(name: str, value: float) -> str:
    """`PSNR 28.8 dB`."""
    return f"{metric_title(name)} {metric_number(name, value)}"


def forms(result: TargetResult) -> dict[str, Outcome]:
    """The forms that were tried, the naive one first, each with its outcome."""
    ordered = [*(form for form in FORMS if form in result.forms), *(form for form in result.forms if form not in FORMS)]
    return {form: result.forms[form] for form in ordered}


def target_line(result: TargetResult) -> str:
    """A finished target in a line: its forms, the stronger first, each with number, trivial guess and time."""
    tried = forms(result)
    if result.same_as:
        return f"{result.key}: saw what {who_words(result.same_as)} saw, with the same result"
    said = dict[str, list[str]]()  # forms with the same result share a line
    for form in sorted(tried, key=lambda form: form != result.headline):
        said.setdefault(outcome_words(result, form), []).append(form)
    parts = [
        f"{' and '.join(names)} {words}, {units.duration(sum(tried[form].seconds for form in names))}"
        for words, names in said.items()
    ]
    return f"{result.key}: {'; '.join(parts) or 'no form was tried'}"


def interruption(done: int, total: int, folder: Path) -> str:
    """A sentence on the finished targets after an interruption."""
    return f"Interrupted; {done} of {total} targets are finished and kept in {folder}."


def status_words(outcome: Outcome) -> str:
    """`success`, `failed`, `diverged`, `not applicable`."""
    return outcome.status.replace("_", " ")


def success_words(rule: Success | None) -> str:
    """The criterion of success: `MSE ≤ 0.001`; empty if no number decides."""
    if rule is None:
        return ""
    sign = {"<=": "≤", ">=": "≥"}[rule.relation]
    unit = " dB" if metric_number(rule.metric, rule.threshold).endswith(" dB") else ""
    return f"{metric_title(rule.metric)} {sign} {rule.threshold:g}{unit}"


def when_words(adversary: str, round: int) -> str:
    """`round 3`; of a released model `after round 20`, since it is attacked as it is before the round that follows."""
    return f"after round {round - 1}" if adversary == "released" else f"round {round}"


def target_words(result: TargetResult) -> str:
    """`server, round 1, client 3, probe 1 with 8 examples`."""
    parts = [result.adversary, when_words(result.adversary, result.round), f"client {result.client}"]
    if result.probe is not None:
        parts.append(f"probe {result.probe.batch} with {examples(result.probe.batch_size)}")
    return ", ".join(parts)


def examples(count: int) -> str:
    """`1 example`, `8 examples`."""
    return units.many(count, "example")


def shares_words(states: Mapping[str, float]) -> str:
    """The share of the entries that the adversary saw in each state: `clear 90.0%, encrypted 10.0%`.

    Scrambled bytes that are not proved to hide values get a remark.
    """
    doubts = {"scrambled": " (nothing proves that it hides them)"}
    return ", ".join(f"{state} {units.percent(share)}{doubts.get(state, '')}" for state, share in states.items()
                     if share > 0)  # fmt: skip


def trivial_guesses(guesses: Guesses, metric: str) -> dict[str, float]:
    """Each trivial guess's value of that number, by name of the guess; finite numbers only."""
    reached = {name: numbers.get(metric, math.nan) for name, numbers in guesses.items()}
    return {name: value for name, value in reached.items() if math.isfinite(value)}


def metric_names(metrics: Mapping[str, object], first: str) -> list[str]:
    """Names of the numbers: `first`, then those that papers report, then the rest.

    The ends of an interval, `x_low` and `x_high` for `x`, are left out.
    """
    ends = {f"{name}{end}" for name in metrics for end in ("_low", "_high")}
    return sorted((name for name in metrics if name not in ends), key=lambda name: (name != first, name not in _TITLES))


def guess_words(guesses: Guesses, ranking: Ranking) -> str:
    """` (mean image 0.080)`: the trivial guess that an attack has to beat."""
    best = best_guess(guesses, ranking)
    return f" ({best[0]} {metric_number(ranking.metric, best[1])})" if best else ""


def best_guess(guesses: Guesses, ranking: Ranking) -> tuple[str, float] | None:
    """The trivial guess that an attack has to beat, and its value; None without one."""
    reached = trivial_guesses(guesses, ranking.metric)
    best = stronger(reached, ranking.better)
    return None if best is None else (best, reached[best])


def mean_words(metric: str, value: Averaged) -> str:
    """`MSE 1.00e-06 ± 2.00e-07`: a mean over targets with its standard deviation."""
    beside = f" ± {metric_number(metric, value.std)}" if value.std > 0 else ""
    return f"{metric_words(metric, value.mean)}{beside}"


def outcome_words(result: TargetResult, form: str) -> str:
    """The outcome of a form: `success, MSE 1.00e-06 (mean image 0.080)`, or why there is no number."""
    outcome, metric = result.forms[form], result.ranking.metric
    said = status_words(outcome)
    if metric in outcome.metrics:
        said += f", {metric_words(metric, outcome.metrics[metric])}{guess_words(result.baselines, result.ranking)}"
    return f"{said}: {outcome.reason}" if outcome.reason else said


def by_words(adversary: str, round: int, batch_size: int | None) -> str:
    """`by the server, round 3, 8 examples`."""
    size = "" if batch_size is None else f", {examples(batch_size)}"
    return f"by {who_words(adversary)}, {when_words(adversary, round)}{size}"


_WHO = {
    "server": "the server", "eavesdropper": "an eavesdropper", "client": "another client",
    "key_server": "the key server", "released": "anybody who gets the model",
    "malicious_server": "a malicious server",
}  # fmt: skip


def who_words(adversary: str) -> str:
    """`the server with another client` for `server+client`; clients who are named by number are listed."""
    names = [_WHO.get(role) or role for role in adversary.split("+")]
    numbers = [name.partition(":")[2] for name in names if ":" in name]
    names = [name for name in names if ":" not in name]
    if numbers:
        names.append(f"{'client' if len(numbers) == 1 else 'clients'} {', '.join(numbers)}")
    return " with ".join([names[0], " and ".join(names[1:])]) if len(names) > 1 else names[0]

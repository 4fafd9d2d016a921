"""What the result of an attack says, in words and numbers, whatever its file holds.

A result is the content of `attacks/<key>.json`: one target, attacked in one or two forms. Files may come from an
interrupted run or have been edited; what is missing or of the wrong kind reads as "not there", here and nowhere else,
so that pictures, report and display need not look twice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedplug.api import units

FORMS = ("naive", "adaptive")
"""In this order wherever both are shown: what a zero-filling attacker gets, then what one that knows the mask gets."""

_TITLES = {
    "mse": "MSE", "psnr": "PSNR", "ssim": "SSIM", "mssim": "MSSIM", "ms_ssim": "MS-SSIM", "vifp": "VIFp",
    "lpips": "LPIPS", "le_acc": "LeAcc", "ln_acc": "LnAcc", "presence_auc": "presence AUC",
    "membership_auc": "membership AUC", "tpr_at_1_fpr": "TPR at 1% FPR",
}  # fmt: skip
_DECIBELS = "psnr"


def metric_title(name: Any) -> str:
    """`mse` is `MSE`, `mse_inside` is `MSE inside`; of a component's name, what stands behind the dot."""
    last = str(name).rpartition(".")[2]
    known = last if last in _TITLES else last.partition("_")[0]
    return " ".join([_TITLES.get(known, known), *filter(None, last[len(known) :].split("_"))])


def metric_number(name: Any, value: Any) -> str:
    """The number as people read it, with its unit."""
    if value is None or isinstance(value, str | Mapping | list):
        return units.NOTHING
    x = units.as_float(value)
    if str(name).rpartition(".")[2].startswith(_DECIBELS) and math.isfinite(x):
        return f"{x:.1f} dB"
    if 10 <= abs(x) < 1e6 and x == int(x):
        return str(int(x))  # a count
    return units.number(0.0 if abs(x) < 1e-15 else x)


def metric_words(name: Any, value: Any) -> str:
    """`PSNR 28.8 dB`."""
    return f"{metric_title(name)} {metric_number(name, value)}"


def forms(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The forms that were tried, the naive one first, each with what came of it."""
    known = units.mapping(result, "forms")
    ordered = [*(form for form in FORMS if form in known), *(form for form in known if form not in FORMS)]
    return {str(form): units.mapping(known, form) for form in ordered}


def status_words(outcome: Mapping[str, Any]) -> str:
    """`success`, `failed`, `diverged`, `not applicable`; a dash where nothing is known."""
    status = outcome.get("status")
    return status.replace("_", " ") if isinstance(status, str) and status else units.NOTHING


def headline_form(result: Mapping[str, Any]) -> str | None:
    """The stronger form, if the result names one of those it has."""
    form = result.get("headline")
    return form if isinstance(form, str) and form in units.mapping(result, "forms") else None


def is_stronger(result: Mapping[str, Any], form: str) -> bool:
    """Whether the form learnt more than another that was tried; equals are no stronger than each other."""
    metric = headline_metric(result)
    if headline_form(result) != form or metric is None:
        return False
    reached = [units.read(outcome, "metrics", metric[0]) for outcome in forms(result).values()]
    return any(value != units.read(forms(result)[form], "metrics", metric[0]) for value in reached)


def headline_metric(result: Mapping[str, Any]) -> tuple[str, str] | None:
    """The number that ranks the forms, and whether `high` or `low` means that the attack learnt more."""
    found = result.get("headline_metric")
    if isinstance(found, list | tuple) and len(found) == 2 and all(isinstance(part, str) for part in found):
        return found[0], found[1]
    return None


def success_words(result: Mapping[str, Any]) -> str:
    """What counts as a success: `MSE ≤ 0.001`; empty where the result does not say."""
    rule = result.get("success")
    if not isinstance(rule, list | tuple) or len(rule) != 3:
        return ""
    sign = {"<=": "≤", ">=": "≥"}.get(str(rule[1]), str(rule[1]))
    unit = " dB" if metric_number(rule[0], rule[2]).endswith(" dB") else ""
    return f"{metric_title(rule[0])} {sign} {units.as_float(rule[2]):g}{unit}"


def target_words(result: Mapping[str, Any]) -> str:
    """`server, round 1, client 3, probe 1 with 8 examples`."""
    parts = [str(result.get("adversary") or "unknown adversary")]
    parts.append(f"round {result['round']}" if result.get("round") is not None else "all rounds")
    parts.append(f"client {result['client']}" if result.get("client") is not None else "every client")
    probe = units.mapping(result, "probe")
    if probe.get("batch_size") is not None:
        number = f" {probe['batch']}" if probe.get("batch") is not None else ""
        parts.append(f"probe{number} with {examples(probe['batch_size'])}")
    return ", ".join(parts)


def examples(count: Any) -> str:
    """`1 example`, `8 examples`."""
    return f"{count} example{'' if count == 1 else 's'}"


def shares_words(result: Mapping[str, Any]) -> str:
    """Which share of the entries the adversary saw in which state: `clear 90.0%, encrypted 10.0%`.

    Scrambled bytes that nobody has proved to hide values do not count as hidden without a word.
    """
    states = units.mapping(result, "states")
    known = {str(state): units.as_float(share) for state, share in states.items()}
    doubts = {"scrambled": " (nothing proves that it hides them)"}
    return ", ".join(f"{state} {units.percent(share)}{doubts.get(state, '')}" for state, share in known.items()
                     if share > 0)  # fmt: skip


def trivial_guesses(holder: Mapping[str, Any], metric: str) -> dict[str, float]:
    """What each trivial guess reaches in that number, by name of the guess; finite numbers only."""
    guesses = units.mapping(holder, "baselines")
    reached = {str(name): units.read(guesses, name, metric) for name in guesses}
    return {name: value for name, value in reached.items() if math.isfinite(value)}


def metric_names(metrics: Mapping[str, Any], first: str) -> list[str]:
    """Names of the numbers: `first`, then those that papers report, then the rest.

    The ends of an interval, `x_low` and `x_high` beside `x`, are left out.
    """
    ends = {f"{name}{end}" for name in metrics for end in ("_low", "_high")}
    return sorted((name for name in metrics if name not in ends), key=lambda name: (name != first, name not in _TITLES))


def guess_words(holder: Mapping[str, Any], metric: str, better: str) -> str:
    """` (mean image 0.080)`: the trivial guess an attack has to beat, all of them where the direction is unknown."""
    reached = trivial_guesses(holder, metric)
    if better in ("low", "high") and reached:
        best = (min if better == "low" else max)(reached, key=lambda guess: reached[guess])
        reached = {best: reached[best]}
    said = ", ".join(f"{guess} {metric_number(metric, value)}" for guess, value in reached.items())
    return f" ({said})" if said else ""


def mean_words(metrics: Mapping[str, Any], metric: str) -> str:
    """`MSE 1.00e-06 ± 2.00e-07`: a mean over targets with its standard deviation."""
    value = metrics.get(metric)
    if isinstance(value, list | tuple):
        mean, spread = [*value, None, None][:2]
        beside = f" ± {metric_number(metric, spread)}" if units.as_float(spread) > 0 else ""
        return f"{metric_words(metric, mean)}{beside}"
    return metric_words(metric, value)


def outcome_words(result: Mapping[str, Any], form: str) -> str:
    """What came of a form: `success, MSE 1.00e-06 (mean image 0.080)`, or why there is no number."""
    outcome = forms(result).get(form, {})
    said = status_words(outcome)
    metric = headline_metric(result)
    if metric and metric[0] in units.mapping(outcome, "metrics"):
        said += f", {metric_words(metric[0], outcome['metrics'][metric[0]])}"
        said += guess_words(result, *metric)
    reason = outcome.get("reason")
    return f"{said}: {reason}" if isinstance(reason, str) and reason else said

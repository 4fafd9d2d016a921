"""The folder `attacks/` of a run: a JSON file and a picture for each finished target, and a summary of all of them.

A target is written as soon as it is finished, so that an interruption costs the one that was under way.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from fedplug.runs.folder import write_text

from fedplug_attacks.api.report import DIVERGED, NOT_APPLICABLE, SUCCESS
from fedplug_attacks.api.truth import wilson

SUMMARY = "summary.json"


def key_of(attack: str, adversary: str, round: int, client: int, batch_size: int | None, batch: int) -> str:
    """The file name, without ending, of one target's result; rounds and batches are counted from 1 here."""
    probe = "" if batch_size is None else f"-probe{batch_size}.{batch + 1}"
    key = f"{attack}-{adversary}-round{round + 1}-client{client}{probe}"
    return re.sub(r"[^A-Za-z0-9_.+@-]", "_", key)


def digest_of(*parts: Any) -> str:
    """SHA-256 (hex) of plain data: a result that was made under other settings is made again."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def read_result(folder: Path, key: str) -> dict[str, Any] | None:
    """A finished target's result; None where there is none, or none that can be read."""
    try:
        result = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result if isinstance(result, dict) else None


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Writes one target's result, whole or not at all."""
    folder.mkdir(exist_ok=True)
    write_text(folder / f"{result['key']}.json", json.dumps(_finite(result), indent=1))


def results(folder: Path) -> list[dict[str, Any]]:
    """All results in the folder, by name."""
    found = (read_result(folder, path.stem) for path in sorted(folder.glob("*.json")) if path.name != SUMMARY)
    return [result for result in found if result is not None and "forms" in result]


def beats(guesses: Mapping[str, Mapping[str, float]], numbers: Mapping[str, float], metric: str, relation: str) -> bool:
    """Whether an attack's number is better than that of every trivial guess; otherwise nothing was learnt.

    With one example of 100 classes, a wrong label still has 98% of the counts right.

    Args:
        guesses: by guess, its numbers.
        numbers: of the attack.
        metric: the number that decides about success.
        relation: `<=` where low means that it learnt more, else `>=`.
    """
    sign = -1.0 if relation == "<=" else 1.0
    mine = numbers.get(metric, math.nan)
    return all(sign * mine > sign * guess[metric] for guess in guesses.values() if metric in guess)


def stronger(forms: Mapping[str, Mapping[str, Any]], metric: str, way: str) -> str | None:
    """The form that learnt more by this number; the first of equals. None where no form has it."""
    values = {form: entry["metrics"].get(metric, math.nan) for form, entry in forms.items()}
    usable = {form: value for form, value in values.items() if value is not None and math.isfinite(value)}
    if not usable:
        return None
    return (max if way == "high" else min)(usable, key=lambda form: usable[form])


def write_summary(folder: Path, adversaries: Mapping[str, str], notes: Iterable[str] = ()) -> dict[str, Any]:
    """Writes `summary.json` over all results in the folder, and gives its content.

    Args:
        folder: `attacks/` of a run.
        adversaries: by name, a sentence on what each sees and holds; added to those of earlier executions.
        notes: sentences for the report.
    """
    before = read_result(folder, Path(SUMMARY).stem) or {}
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for result in results(folder):
        size = (result.get("probe") or {}).get("batch_size")
        # Results under other options, or of another scope, are another experiment and must not be averaged in.
        kind = (result["attack"], result["adversary"], result["round"], size, result.get("settings", ""))
        grouped.setdefault(kind, []).append(result)
    rows = [row for (attack, adversary, _, size, _), group in sorted(grouped.items(), key=str)
            for row in _rows(attack, adversary, size, group)]  # fmt: skip
    summary = {
        "rows": rows,
        "adversaries": {**before.get("adversaries", {}), **adversaries},
        "notes": list(dict.fromkeys([*before.get("notes", []), *notes])),
    }
    folder.mkdir(exist_ok=True)
    write_text(folder / SUMMARY, json.dumps(_finite(summary), indent=1))
    return summary


def _rows(attack: str, adversary: str, size: int | None, group: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each form over the targets of one attack and adversary; the stronger form is the headline."""
    rounds = {result["round"] for result in group}
    metric, way = group[0]["headline_metric"]
    rows = []
    for form in dict.fromkeys(form for result in group for form in result["forms"]):
        entries = [result["forms"][form] for result in group if form in result["forms"]]
        status = Counter(entry["status"] for entry in entries)
        reasons = Counter(entry["reason"] for entry in entries if entry["reason"])
        tried = len(entries) - status[NOT_APPLICABLE]
        numbers = {name for entry in entries for name in entry["metrics"]}
        guesses: dict[str, dict[str, list[float]]] = {}
        for result in group:
            for guess, scored in result["baselines"].items():
                for name, value in scored.items():
                    guesses.setdefault(guess, {}).setdefault(name, []).append(value)
        metrics = {name: _mean_and_std(entry["metrics"].get(name) for entry in entries) for name in sorted(numbers)}
        rows.append({
            "attack": attack, "adversary": adversary, "round": next(iter(rounds)) if len(rounds) == 1 else None,
            "probe_batch_size": size, "targets": len(entries), "form": form, "headline": False,
            "succeeded": status[SUCCESS], "wilson": wilson(status[SUCCESS], tried),
            "not_applicable": status[NOT_APPLICABLE], "diverged": status[DIVERGED], "reasons": dict(reasons),
            "metrics": metrics,
            "baselines": {guess: {name: _mean_and_std(values)[0] for name, values in scored.items()}
                          for guess, scored in guesses.items()},
            "headline_metric": [metric, way],
            "states": {state: _mean_and_std(result.get("states", {}).get(state) for result in group)[0]
                       for state in dict.fromkeys(state for result in group for state in result.get("states", {}))},
            "unplaced": max((result.get("unplaced", 0) for result in group), default=0),
            "seconds": sum(entry["seconds"] for entry in entries),
            "gradient_evaluations": sum(entry["gradient_evaluations"] for entry in entries),
        })  # fmt: skip
    means = {row["form"]: {"metrics": {name: pair[0] for name, pair in row["metrics"].items()}} for row in rows}
    best = stronger(means, metric, way)
    for row in rows:
        row["headline"] = row["form"] == best or len(rows) == 1
    return rows


def _mean_and_std(values: Iterable[Any]) -> list[float | None]:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return [float(np.mean(known)), float(np.std(known))] if known else [None, None]


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

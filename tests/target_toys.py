"""Results of attacks as a run folder may hold them: of one target, and of all."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from fedplug_attacks.workshop.records import AttackSummary, Outcome, SummaryRow, TargetResult

UNDEFINED = {"toy.vifp": "images of 8x8 px; it needs 41 px"}
NAIVE: dict[str, Any] = {
    "form": "naive", "headline": False, "succeeded": 0, "wilson": [0.0, 0.434],
    "metrics": {"mse": {"mean": 0.21, "std": 0.01}},
}  # fmt: skip


def an_outcome(status: str = "failed", reason: str = "", **changes: Any) -> Outcome:
    """The result of a form. `changes` are fields as plain data."""
    return Outcome.from_plain({
        "status": status, "reason": reason, "metrics": {}, "seconds": 0.0, "gradient_evaluations": 0, "seed": None,
        "losses": [], "own": {}, **changes,
    })  # fmt: skip


def a_target(client: int = 3, attack: str = "toy.copy", **changes: Any) -> TargetResult:
    """An attack in both forms on a batch of a probe, of which the adaptive one succeeds; `changes` are fields."""
    key = f"{attack}-server-round1-client{client}-probe8.1"
    forms = {
        "adaptive": an_outcome("success", metrics={"mse": 1.25e-6, "psnr": 59.03}, undefined=UNDEFINED, seed=4711,
                               gradient_evaluations=310, seconds=0.7),
        "naive": an_outcome(metrics={"mse": 0.2125, "psnr": 6.73}, undefined=UNDEFINED, seed=4712,
                            gradient_evaluations=300, seconds=0.5),
    }  # fmt: skip
    found = TargetResult.from_plain({
        "key": key, "attack": attack, "use": attack, "options": {}, "adversary": "server", "round": 1,
        "client": client, "probe": {"batch_size": 8, "batch": 1}, "digest": "d", "settings": "s",
        "states": {"absent": 0.0, "clear": 0.9, "noised": 0.0, "encrypted": 0.1, "retained": 0.0}, "unplaced": 0,
        "meaning": {"lr": 0.1, "steps": 1}, "finds": ["images"], "ranking": {"metric": "mse", "better": "low"},
        "success": {"metric": "mse", "relation": "<=", "threshold": 0.001}, "better": {"mse": "low", "psnr": "high"},
        "baselines": {"mean image": {"mse": 0.0801}, "random guess": {"mse": 0.1202}}, "forms": {},
        "headline": "adaptive", "truth": {"counts": [], "labels": [7]}, "picture": f"{key}.png",
    })  # fmt: skip
    return dataclasses.replace(found, **{"forms": copy.deepcopy(forms), **changes})


def a_summary_row(**changes: Any) -> SummaryRow:
    """The adaptive form on five targets; `changes` are fields as plain data."""
    return SummaryRow.from_plain({
        "attack": "toy.copy", "adversary": "server", "form": "adaptive", "round": 1, "probe_batch_size": 8,
        "headline": True, "targets": 5, "succeeded": 4, "not_applicable": 0, "inconclusive": 0,
        "wilson": [0.376, 0.964],
        "success": {"metric": "mse", "relation": "<=", "threshold": 0.001}, "reasons": {},
        "metrics": {"mse": {"mean": 1.5e-6, "std": 2e-7}, "psnr": {"mean": 58.2, "std": 1.0}},
        "baselines": {"mean image": {"mse": 0.0801}, "random guess": {"mse": 0.1202}},
        "ranking": {"metric": "mse", "better": "low"}, "states": {}, "unplaced": 0, "seconds": 3.5,
        "gradient_evaluations": 1550, "finds": ["images"], **changes,
    })  # fmt: skip


def an_attack_summary(*rows: SummaryRow) -> AttackSummary:
    """Of both forms, unless rows are given."""
    both = [a_summary_row(), a_summary_row(**NAIVE)]
    return AttackSummary([*rows] or both, {"server": "sees every message and holds no key"})

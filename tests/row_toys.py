"""Made-up rows of the metrics, summaries, verdicts and ledgers."""

from __future__ import annotations

from typing import Any

from fedplug_ledger.grades import PARTIES, Epsilons, Grade, State
from fedplug_ledger.ledger_record import SCHEMA, LedgerReport
from fedplug_ledger.verdict import Line, Verdict
from fedplug_runs.folder import Summary
from fedplug_runs.rows import Row


def a_row(round: int, **changes: Any) -> Row:
    """A row of two clients. `changes` are fields as plain data."""
    plain: dict[str, Any] = {
        "round": round, "accuracy": 0.5 + round / 1000, "loss": 2.0 / round, "train_loss": 1.5 / round,
        "client_accuracy": {0: 0.4, 1: 0.9}, "clients": {"asked": 2, "answered": 2},
        "zones": {"encrypted": 0.25, "noised": 0.75, "retained": 0.0, "clear": 0.0},
        "sealed": ["encrypted"],
        "seconds": {"train": 9.0, "protect": 1.0}, "wall_seconds": 2.0,
        "bytes": {
            "up": {"total": 1_500_000, "phases": {"upload": 1_500_000},
                   "zones": {"encrypted": 1_000_000, "other": 500_000}},
            "down": {"total": 800, "phases": {"train": 800}, "zones": {"other": 800}},
            "key_server": {"total": 0},
        },
        "messages": 4, "epsilon": 0.125 * round, "view_epsilons": {"released_model": 0.125 * round},
        "mask_churn": None if round == 1 else 0.2,
        "log": {"std.bfv.saturated": 0.5},
    }  # fmt: skip
    return Row.from_plain({**plain, **changes})


def a_summary(**changes: Any) -> Summary:
    """The summary of a run of three rounds. `changes` are fields as plain data."""
    plain: dict[str, Any] = {
        "name": "demo", "digest": "ab" * 32, "recipe": {"name": "demo", "rounds": 3, "delta": 1e-5, "note": "é <b>"},
        "plan": [("negotiate_mask", "paraaegis.vote", "encrypt 25%"), ("aggregate", "std.mean", "weighted")],
        "versions": {"fedplug": "0.1.0"}, "engine": "local", "device": "cpu", "resumed": False, "parameters": 650,
        "class_distribution": {"classes": ["cat", "dog"], "clients": {0: [5, 7], 1: [0, 9]}},
        "command": "fedplug run recipes/demo.yaml --set rounds=3",
    }  # fmt: skip
    return Summary.from_plain({**plain, **changes})


def a_line(party: str, grade: Grade, epsilon: float = 1.25, **changes: Any) -> Line:
    """A line on a party's view. replace-one costs twice the epsilon. `changes` are fields."""
    state: State = "guaranteed" if grade == "weak" else grade
    epsilon = 11.0 if grade == "weak" else epsilon
    stated = Epsilons({"epsilon_exact": epsilon}, {"epsilon_exact": 2 * epsilon})
    reason = {"guaranteed": "", "beyond": "it is above 20", "none": "reads it", "absent": "there is none"}[state]
    known: dict[str, Any] = {
        "reason": reason, "detail": reason or "it adds up to little", "delta": 1e-5, "sees": f"what the {party} sees",
        "epsilons": stated if state in ("guaranteed", "beyond") else None,
        "rests_on": ["noise that fedplug itself adds"] if state == "guaranteed" else [],
        "nothing": state == "guaranteed" and epsilon == 0,
    }  # fmt: skip
    return Line(party, state, **{**known, **changes})


def a_verdict(**changes: Line) -> Verdict:
    """A verdict with a line of each state. `changes` are lines, by party."""
    states: tuple[State, ...] = ("none", "absent", "beyond", "none", "guaranteed")
    lines = {party: a_line(party, state) for party, state in zip(PARTIES, states, strict=True)}
    return Verdict.of([*{**lines, **changes}.values()])


def a_ledger(**changes: Any) -> LedgerReport:
    """The account of a run with few known facts. `changes` are fields as plain data."""
    plain: dict[str, Any] = {
        "schema": SCHEMA, "recipe": "demo", "verdict": {"status": "nothing_run"}, "warnings": [], "unit": "",
        "adjacency": "", "delta": 1e-5, "trust": "", "epsilons": None, "epsilon_prices": "", "levels": {}, "zones": {},
        "sampling": {"scheme": "", "amplified": False, "why": ""}, "rounds": {"planned": 0, "actual": 0},
        "encryption": {}, "noise": [], "reveals": [], "uncovered_messages": [], "words": [],
        "never_covered": [], "log": [],
    }  # fmt: skip
    return LedgerReport.from_plain({**plain, **changes})

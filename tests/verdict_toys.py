"""Lines of verdicts."""

from __future__ import annotations

from fedplug_ledger.grades import Epsilons, Grade, State
from fedplug_ledger.verdict import Line


def line(party: str, grade: Grade, epsilon: float = 2.0) -> Line:
    state: State = "guaranteed" if grade == "weak" else grade
    epsilon = 11.0 if grade == "weak" else epsilon
    stated = Epsilons({"epsilon_exact": epsilon}, {"epsilon_exact": 2 * epsilon})
    reason = {"guaranteed": "", "beyond": "too large", "none": "reads it", "absent": "there is none"}[state]
    return Line(party, state, reason, reason, 1e-5, "its own", stated if state in ("guaranteed", "beyond") else None)

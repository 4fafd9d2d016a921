"""A plan, facts and rows that displays show."""

from __future__ import annotations

from typing import Any

import row_toys
from fedplug_runs.rows import Row

PLAN = [
    ("negotiate_mask", "paraaegis.vote", "encrypt 30% [of the model]"),
    ("protect encrypted", "std.ckks", "4096 [40, 40]"),
]
FACTS = {"name": "demo [red]x", "clients": 10, "rounds": 4, "engine": "local"}


def a_row(round: int, **changes: Any) -> Row:
    known: dict[str, Any] = {
        "accuracy": 0.5 + round / 100, "loss": 1.25, "zones": {"encrypted": 0.3, "noised": 0.7}, "epsilon": 1.5,
        "view_epsilons": {"released_model": 1.5},
        "clients": {"asked": 10, "answered": 9, "dropped": {3: "boom"}},
        "bytes": {"up": {"total": 1_234_567}, "down": {"total": 950}, "key_server": {}},
    }  # fmt: skip
    return row_toys.a_row(round, **{**known, **changes})

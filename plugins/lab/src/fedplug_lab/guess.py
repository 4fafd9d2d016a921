"""What a guess that looks at nothing gets, next to what a model gets: in the words of pages."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedplug_runs import units
from fedplug_runs.rows import Row

BALANCED = "balanced accuracy"


def guess_of(row: Row, name: str = "") -> float | None:
    """Of a figure, by default the one that leads; None where it is not known."""
    known: Mapping[str, float] = getattr(row, "guess", None) or {}
    found = known.get(name or row.leads.name)
    return found if found is not None and math.isfinite(found) else None


def guess_words(row: Row, common: str = "", name: str = "") -> str:
    """`a guess gets 0.983 (always healthy)`, and whether the model is better; empty where it is not known.

    Args:
        row: of the metrics.
        common: the class that the guess names.
        name: of the figure; by default the one that leads.
    """
    guessed = guess_of(row, name)
    if guessed is None:
        return ""
    which = f" (always {common})" if common else ""
    value = row.judged.get(name or row.leads.name)
    lower = (not name or name == row.leads.name) and row.leads.better == "lower"
    worse = value is not None and (value >= guessed if lower else value <= guessed)
    worse = worse or getattr(row, "no_better", "") == (name or row.leads.name)
    return f"a guess gets {units.number(guessed)}{which}" + (": the model is no better" if worse else "")

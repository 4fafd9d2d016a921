"""Numbers as people read them, and what is left of many once those that are missing or not finite are taken out.

A diverged round has a loss of NaN, a run without noise has no epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

NOTHING = "–"
"""Shown where there is no number."""


def as_float(value: Any) -> float:
    """The value as a float; NaN for None and for anything that is not a number. JSON has infinity as the text `inf`."""
    if isinstance(value, str):
        return {"inf": math.inf, "-inf": -math.inf}.get(value, math.nan)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def total(values: Iterable[float | None]) -> float:
    """Sum of the finite numbers among them."""
    return math.fsum(finite(values))


def last(values: Iterable[float | None]) -> float | None:
    """The last of them that is a number, infinite ones too; None where there is none."""
    known = [x for x in values if x is not None and not math.isnan(x)]
    return known[-1] if known else None


def finite(values: Iterable[float | None]) -> list[float]:
    """Those that are finite."""
    return [x for x in values if x is not None and math.isfinite(x)]


def spread(values: Mapping[int, float]) -> tuple[float, float, float] | None:
    """Lowest, mean and highest of the finite numbers in a mapping; None where there is none."""
    known = finite(values.values())
    return (min(known), math.fsum(known) / len(known), max(known)) if known else None


def many(count: int, noun: str, several: str = "") -> str:
    """`1 client`, `3 clients`; `several` where the noun has another plural than with an s."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def number(value: Any, digits: int = 3) -> str:
    """`0.831`, `NaN`, `∞`, or a dash for None; very large and very small numbers in scientific notation."""
    if value is None:
        return NOTHING
    x = as_float(value)
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "∞" if x > 0 else "-∞"
    if x != 0 and not 10.0**-digits <= abs(x) < 1e6:
        return f"{x:.{max(digits - 1, 0)}e}"
    return f"{x:.{digits}f}"


def percent(share: Any) -> str:
    """`30.0%`; a share too small to show, but not zero, is `<0.1%`."""
    x = as_float(share)
    if not math.isfinite(x):
        return NOTHING
    return "<0.1%" if 0 < x < 0.0005 else f"{100 * x:.1f}%"


def size(count: Any) -> str:
    """Bytes with units of 1000: `950 B`, `1.2 kB`, `34.5 MB`."""
    x = as_float(count)
    if not math.isfinite(x):
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        # 999.95 would be printed as 1000.0: it belongs to the next unit.
        if abs(x) < (999.5 if unit == "B" else 999.95):
            return f"{x:.0f} B" if unit == "B" else f"{x:.1f} {unit}"
        x /= 1000
    return f"{x:.1f} TB"


def duration(seconds: Any) -> str:
    """`4.1 ms`, `350 ms`, `2.0 s`, `3 min 20 s`, `2 h 05 min`."""
    x = as_float(seconds)
    if not math.isfinite(x):
        return NOTHING
    if x < 0.9995:
        return f"{1000 * x:.1f} ms" if 0 < x < 0.00995 else f"{1000 * x:.0f} ms"
    if x < 59.95:
        return f"{x:.1f} s"
    whole = round(x)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(x / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"

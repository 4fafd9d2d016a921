"""Numbers as people read them, and the rest of a list without the missing ones."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fedplug_runs import units


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (999.6, "1.0 kB"), (999_949, "999.9 kB"), (999_950, "1.0 MB"), (34_500_000, "34.5 MB"),
     (1e12, "1.0 TB"), (2.5e15, "2500.0 TB"), (None, "–"), (math.nan, "–")],
)  # fmt: skip
def test_size(value: Any, text: str) -> None:
    assert units.size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 ms"), (0.0041, "4.1 ms"), (0.35, "350 ms"), (0.9999, "1.0 s"), (2, "2.0 s"), (59.99, "1 min 00 s"),
     (200, "3 min 20 s"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min"), (math.inf, "–")],
)  # fmt: skip
def test_duration(value: Any, text: str) -> None:
    assert units.duration(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "NaN"), (math.inf, "∞"), (-math.inf, "-∞"), (0, "0.000"), (0.83149, "0.831"),
     (1e-5, "1.00e-05"), (3e30, "3.00e+30"), (12.3, "12.300"), ("NaN", "NaN")],
)  # fmt: skip
def test_number(value: Any, text: str) -> None:
    assert units.number(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0.0%"), (0.3, "30.0%"), (0.0001, "<0.1%"), (1, "100.0%"), (None, "–")]
)
def test_percent(share: Any, text: str) -> None:
    assert units.percent(share) == text

"""Numbers for JSON, which knows neither infinity nor NaN."""

from __future__ import annotations

import math
from typing import Any


def json_ready(value: Any) -> Any:
    """Plain data with `inf` and `-inf` as texts and NaN as None; tuples become lists."""
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf" if value > 0 else "-inf"
    return value

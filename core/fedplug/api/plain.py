"""Values made fit for where they go: numbers for JSON, and what others say for terminals and logs."""

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


def one_line(text: str, most: int = 500) -> str:
    """What another party says, as one line without control characters, and no longer than `most`.

    Whoever writes to a terminal could otherwise clear it or forge lines of it, and fill a disk with one reason.
    """
    line = "".join(char if char.isprintable() else " " for char in text[: most + 1]).strip()
    return line if len(text) <= most else f"{line[: most - 3]}..."

"""What components of a party have drawn, as it travels with a reply: the service `drawn`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from fedplug.api.reports import MOST_PICTURES


def drawn(figures: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Empties a party's `figures`; gives them as JSON, and why some cannot travel, by name. None costs a round."""
    texts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for name, figure in figures.items():
        try:
            text = json.dumps(figure, default=lambda value: np.asarray(value).tolist())
            if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
                raise ValueError("its name must be text of 1 to 200 characters, all of which can be printed")
            if len(texts) >= MOST_PICTURES or len(text) > 2_000_000:
                raise ValueError(f"a reply carries {MOST_PICTURES} pictures at most, of 2,000,000 characters each")
            texts[name] = text
        except (ValueError, TypeError, RecursionError) as error:
            left_out[str(name)[:200]] = str(error)[:400]
    figures.clear()
    return texts, left_out

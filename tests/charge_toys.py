"""Runs with secret noise, and their cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from toy_components import recipe_of


class Killed(Exception):
    """Represents a kill inside the process."""


NOISE = {"use": "std.gaussian", "noise_multiplier": 2.0, "source": "secure"}


def noised(**changes: Any) -> dict[str, Any]:
    return recipe_of("noised", [{"use": "std.clip", "norm": 1.0}, NOISE], rounds=4, **changes)


def paid(folder: Path) -> list[int]:
    return sorted(entry["round"] for entry in json.loads((folder / "ledger.json").read_text())["log"])

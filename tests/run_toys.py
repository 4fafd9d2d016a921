"""Small runs in a folder: started, killed, resumed, and what they left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedplug.recipe.recipe import Recipe
from fedplug.runs import execution
from fedplug.runs.settings import Settings
from toy_components import UNANIMOUS, paraaegis, toy_catalog

ROUNDS = 4
TIMES = ("seconds", "wall_seconds", "cpu_seconds", "bytes")


def start(folder: Path, plain: dict[str, Any] | None = None, **settings: Any) -> Path:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(plain or paraaegis(rounds=ROUNDS, score_parameters=[UNANIMOUS]), catalog)
    return execution.start(recipe, Settings(output=folder, quiet=True, **settings), catalog)[1]


def resume(folder: Path, round: int | None = None, **settings: Any) -> int:
    return execution.resume(folder, Settings(output=folder.parent, quiet=True, **settings), round, toy_catalog())


def rows_of(folder: Path, *, times: bool = False) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows if times else [{key: value for key, value in row.items() if key not in TIMES} for row in rows]

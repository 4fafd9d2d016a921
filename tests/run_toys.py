"""Small runs in a folder: started, killed, resumed, and their files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from fedplug.recipe.recipe import Recipe
from fedplug.round.protocol import Protocol
from fedplug_runs import execution
from fedplug_runs.settings import Settings
from toy_components import UNANIMOUS, paraaegis, toy_catalog

ROUNDS = 4
TIMES = ("seconds", "wall_seconds", "cpu_seconds", "bytes")


@contextmanager
def stopped(where: Callable[[Protocol, int], bool], error: BaseException | None = None) -> Iterator[None]:
    """Inside, a run ends with that error, or as by Ctrl-C, when a round (0-based) begins for which `where` holds."""
    whole = Protocol.round

    def breaks(protocol: Protocol, round: int) -> None:
        if where(protocol, round):
            raise error or KeyboardInterrupt
        whole(protocol, round)

    with mock.patch.object(Protocol, "round", breaks):
        yield


def start(folder: Path, plain: dict[str, Any] | None = None, **settings: Any) -> Path:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(plain or paraaegis(rounds=ROUNDS, score_parameters=[UNANIMOUS]), catalog)
    return execution.start(recipe, Settings(output=folder, quiet=True, **settings), catalog)[1]


def resume(folder: Path, round: int | None = None, **settings: Any) -> int:
    return execution.resume(folder, Settings(output=folder.parent, quiet=True, **settings), round, toy_catalog())


def rows_of(folder: Path, *, times: bool = False) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return rows if times else [{key: value for key, value in row.items() if key not in TIMES} for row in rows]

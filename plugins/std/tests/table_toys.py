"""Tables in files, a recipe that reads them, and sites of which each has its own."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

TITLES = ("id", "age", "sex", "income", "outcome")
GIVEN: dict[str, Any] = {
    "answer": "outcome", "leave_out": ["id"], "categories": {"sex": ["f", "m"]},
    "scale": {"age": [50, 10], "income": [900, 100]},
}  # fmt: skip


def rows(count: int = 60, seed: int = 0) -> list[list[Any]]:
    """People, of whom the older are ill."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        age = int(rng.integers(30, 70))
        income = round(float(rng.normal(900, 100)), 2)
        made.append([number, age, "fm"[number % 2], income, "ill" if age > 50 else "well"])
    return made


def write_csv(path: Path, lines: Sequence[Sequence[Any]], titles: Sequence[str] = TITLES, between: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=between).writerows([titles, *lines])
    return path


def recipe(**data: Any) -> dict[str, Any]:
    """A small recipe over a data set."""
    return {
        "name": "table", "seed": 1, "rounds": 3, "min_clients": 2,
        "data": {"use": "std.table", "clients": 3, "partition": {"use": "std.iid"}, **data},
        "model": {"use": "std.mlp", "hidden": [8]},
        "train": {"use": "std.sgd", "epochs": 2, "batch_size": 8, "lr": 0.1},
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": {"use": "std.mean"},
    }  # fmt: skip


AT_SITES: dict[str, Any] = {
    "at": "sites", "partition": None, **GIVEN, "leave_out": [], "features": ["age", "sex", "income"],
    "agreed": {"shape": [4], "classes": ["ill", "well"], "mean": [], "std": []},
}  # fmt: skip

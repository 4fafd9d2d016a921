"""Recipes that studies bring to a site, and charges that they made."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fedplug.api.errors import MessageError
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.world import World
from fedplug_ledger.composing import Cost
from fedplug_policy.budget import Charge
from fedplug_policy.guard import Guard, SitePolicy, Study


def recipe(name: str = "dp", multiplier: float = 4.0, rounds: int = 3, **changes: Any) -> dict[str, Any]:
    """A study whose clients clip and add Gaussian noise."""
    noise = {"use": "std.gaussian", "noise_multiplier": multiplier}
    return {
        "name": name, "seed": 1, "rounds": rounds, "min_clients": 3,
        "data": {"use": "std.digits", "clients": 3, "train_size": 60, "partition": {"use": "std.iid"}},
        "model": {"use": "std.mlp", "hidden": []}, "train": {"use": "std.sgd", "batch_size": 20, "lr": 0.1},
        "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": 1.0}, noise]},
        "aggregate": {"use": "std.mean", "weighting": "uniform"}, **changes,
    }  # fmt: skip


def charge(study: str = "one", data: str = "d", delta: float = 1e-5, **toward: Cost) -> Charge:
    return Charge(study, study * 8, "run", 0, [1], [data], delta, toward)


def guard(folder: Path, name: str, **changes: Any) -> Guard:
    """One of two studies that have joined, as if the other were not there."""
    site = SitePolicy(folder / "site.yaml")
    read = Recipe.from_plain(recipe(name, rounds=40, **changes))
    layout = World(read, Composition(read), None).model("cpu").layout
    return Guard(site, Study(site.policy, read, layout, 0, None, ["data"], ""), site.budget)


def ask_until_refused(study: Guard, folder: Path, name: str, pause: float) -> None:
    """Asks for uploads of one round after the other, in a process that can be killed."""
    (folder / f"{name}.ready").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
    for round in range(40):
        try:
            study.asked("run", round, 0, study._upload)
        except MessageError as error:
            (folder / f"{name}.refused").write_text(f"{round} {error}")
            return
        time.sleep(pause)

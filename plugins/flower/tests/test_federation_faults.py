"""Parties of a real federation are killed in rounds with masks, and come back."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="flwr is not installed; make test installs it")

from fault_toys import MORTAL, NOISE, killed
from fedplug.recipe.recipe import Recipe
from fedplug_flower import trial
from fedplug_flower.trial import federation
from fedplug_runs import functions

KILLS = ("1 0 advertise", "1 1 sealed", "2 2 opening")
CLIENTS, ROUNDS = 5, 4


def recipe_of(faults: Iterable[str] = KILLS, raises: bool = False) -> Recipe:
    use = {"use": f"{MORTAL}:Bonawitz", "name": "mortal", "faults": list(faults), "threshold": 2, "raises": raises}
    plain = {
        "name": "mortal", "seed": 7, "rounds": ROUNDS, "min_clients": 3,
        "data": {"use": "std.digits", "clients": CLIENTS, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
        "model": {"use": "std.mlp", "hidden": [16]},
        "train": {"use": "std.sgd", "epochs": 1, "lr": 0.05},
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {"encrypted": [{"use": "std.clip", "norm": 1.0}, NOISE | {"source": "reproducible"}, use]},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "postprocess": {"encrypted": ["mortal"]},
    }  # fmt: skip
    return Recipe.from_plain(plain)


@pytest.mark.slow
def test_a_party_that_is_killed_under_masks_costs_its_client_that_round(tmp_path: Path) -> None:
    folder, recipe = tmp_path / "f", recipe_of()
    folder.mkdir()
    lines: list[str] = []

    with federation(recipe, folder, None, print) as running:

        def say(line: str) -> None:
            lines.append(line)
            if not line.startswith("round "):
                return
            for number in range(CLIENTS):
                if running.programs._running[f"party-client-{number}"].poll() is not None:
                    trial._start_party(running.programs, folder, f"client:{number}", None)

        running.run({"output": str(tmp_path / "runs"), "patience": 60}, say)
        until = time.monotonic() + 30
        while len(list(folder.glob("*/model.npz"))) < CLIENTS and time.monotonic() < until:
            time.sleep(0.2)
    (found,) = (tmp_path / "runs").iterdir()
    dropped = [sorted(row.clients.dropped) for row in functions.open_run(found).metrics]
    assert dropped[0] == [0, 1]
    assert 2 in dropped[1]
    assert dropped[-1] == []  # all are back; whether they return a round earlier depends on how fast they start
    dead = killed(KILLS, ROUNDS)
    late = [f"{r + 1} {c} advertise" for r, lost in enumerate(dropped) for c in lost if c not in dead[r]]
    local = functions.run(recipe_of([*KILLS, *late], True), output=tmp_path / "local", engine="local", quiet=True)
    logs = [json.loads((run / "ledger.json").read_text())["log"] for run in (found, local.folder)]
    assert logs[0] == logs[1]
    final = functions.open_run(local.folder).client_model(0).state_dict()
    for number in range(CLIENTS):
        with np.load(folder / f"client-{number}/model.npz") as model:
            assert all(np.array_equal(model[name], tensor.numpy()) for name, tensor in final.items())

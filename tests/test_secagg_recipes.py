"""The papers' negotiations over masks and threshold encryption: which parties open the sealed zone of an update."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from attack_toys import machinery, seen
from fedplug_attacks.api.observation import Seen
from fedplug_runs import execution
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings

ROOT = Path(__file__).parents[1]
FEW = {"paraaegis-secagg": range(4, 9), "selectiveshield-secagg": range(4, 9), "fas-secagg": range(4, 9)}
"""One fewer than the number of shares that open, of ten clients."""


def run(name: str, folder: Path, *sets: str) -> Path:
    small = ["rounds=1", "train.epochs=1", "model.hidden=[16]"]
    recipe = load_recipe(ROOT / f"recipes/{name}.yaml", [*small, *sets])
    code, run_dir = execution.start(recipe, Settings(output=folder, device="cpu", quiet=True, record_wire=True))
    assert code == 0
    return run_dir


def closed(run_dir: Path, who: str, target: int) -> float:
    """The share of an update that is encrypted to an adversary."""
    with machinery(run_dir, adversaries=[who], rounds=[1], targets=[target]) as made:
        known, _ = seen(made, who, target)
    assert known.update is not None
    return float(np.mean(known.update.states == Seen.ENCRYPTED))


def with_server(clients: Sequence[int]) -> str:
    return "+".join(["server", *(f"client:{each}" for each in clients)])


def threshold(visible_to: str) -> list[str]:
    """Settings that replace masks by threshold encryption."""
    use = f"{{use: threshold.bfv, range: 1.0, threshold: 6, sums_visible_to: {visible_to}}}"
    return [f"protect.encrypted=[{use}]", "postprocess.encrypted=[threshold.bfv]"]


@pytest.mark.parametrize(("name", "sets"), [
    *((name, []) for name in FEW), ("paraaegis-secagg", threshold("server")), ("fas-secagg", threshold("clients")),
], ids=[*FEW, "paraaegis-threshold", "fas-threshold"])  # fmt: skip
def test_the_sealed_zone_opens_to_as_many_clients_as_the_verdict_says(
    name: str, sets: list[str], tmp_path: Path
) -> None:
    run_dir = run(name, tmp_path, *sets)
    few = [*FEW[name]]
    lines = json.loads((run_dir / "ledger.json").read_text())["verdict"]["lines"]
    (said,) = (line["reason"] for line in lines if line["party"] == "key_holder")
    assert said == f"nobody holds the key: {len(few) + 1} clients together could open an upload"
    assert closed(run_dir, with_server(few), 0) > 0.1
    assert closed(run_dir, with_server([*few, 9]), 0) == 0


def test_only_members_of_a_cluster_open_the_update_of_another(tmp_path: Path) -> None:
    """Twenty clients in clusters of five, where shares of three open."""
    run_dir = run("sensecrypt-secagg", tmp_path, "train.epochs=5")
    groups = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[0])["group_members"]
    mine, other = (next(ids for ids in groups.values() if (0 in ids) == inside) for inside in (True, False))
    alike = [each for each in mine if each]
    assert closed(run_dir, with_server(alike[:2]), 0) == closed(run_dir, with_server(other[:4]), 0) == 1
    assert closed(run_dir, with_server(alike[:3]), 0) == 0

"""A recipe in NVFlare's simulator gives what the engine `local` gives. It needs NVFlare 2.9; no set-up installs it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="nvflare is not installed: pip install 'fedplug-nvflare[nvflare]'")

from fedplug_runs import functions

RECIPE = """
name: nvflare
seed: 5
rounds: 2
min_clients: 2
data: {use: std.digits, clients: 2, partition: {use: std.iid}}
model: {use: std.logistic}
train: {use: std.sgd, epochs: 1, batch_size: 32, lr: 0.1}
negotiate_mask: {use: std.single_zone, zone: encrypted}
protect: {encrypted: [{use: std.bfv, key_holder: key_server}]}
aggregate: {use: std.mean}
postprocess: {encrypted: [std.bfv]}
"""
PROGRAM = [sys.executable, "-c", "from fedplug_terminal.main import program; program()"]


def test_a_run_in_nvflares_simulator_equals_a_local_run(tmp_path: Path) -> None:
    (recipe := tmp_path / "recipe.yaml").write_text(RECIPE)
    subprocess.run([*PROGRAM, "nvflare-job", recipe, tmp_path / "job", "--output", tmp_path / "runs"], check=True)
    parties = {"client-0": ["--client", "0"], "client-1": ["--client", "1"], "key-server": ["--key-server"]}
    local = tmp_path / "workspace" / "local"
    local.mkdir(parents=True)
    (local / "fedplug.json").write_text(json.dumps({"state": {name: str(tmp_path / name) for name in parties}}))
    classes = ["fedplug_nvflare.controller.FedplugController", "fedplug_nvflare.relay.PartyRelay"]
    (local / "resources.json").write_text(json.dumps({"format_version": 2, "class_allow_list": classes}))
    with contextlib.ExitStack() as running:
        for name, which in parties.items():
            party = subprocess.Popen([*PROGRAM, "party", recipe, *which, "--state", tmp_path / name, "--yes"])
            running.callback(party.wait, 60)
            running.callback(party.terminate)
        simulator = [str(Path(sys.executable).parent / "nvflare"), "simulator", str(tmp_path / "job")]
        sites = ["-w", str(tmp_path / "workspace"), "-c", ",".join(parties), "-t", "3"]
        subprocess.run([*simulator, *sites], check=True, timeout=300)
    (run,) = (tmp_path / "runs").iterdir()
    here = functions.run(recipe, output=tmp_path / "local").folder
    assert figures(run) == figures(here)
    assert len(figures(run)) == 2


def figures(run: Path) -> list[tuple[float, float]]:
    """Accuracy and loss of each round: they change with the last bit of a model."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(row["accuracy"], row["loss"]) for row in rows]

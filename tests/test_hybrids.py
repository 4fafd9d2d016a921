"""The recipes that mix papers: each runs on digits, and one line switches one part."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fedplug_runs import execution
from fedplug_runs.folder import read_rows
from fedplug_runs.overlay import load_recipe
from fedplug_runs.settings import Settings

ROOT = Path(__file__).parents[1]
HYBRIDS = sorted((ROOT / "recipes/hybrids").glob("*.yaml"))
SMALL = ["train.epochs=1", "model.hidden=[16, 16]"]

# For each: its required parts, and single lines that switch a part.
PARTS: dict[str, tuple[set[str], list[str]]] = {
    "fedre-scores-encrypt-layers": (
        {"fedre.psi", "fedre.sensitive_layers", "std.ckks", "std.gaussian"},
        ["negotiate_mask={use: fas.share, ratio: 0.3}", "protect.noised=[]"],
    ),
    "maskcrypt-distributed-dp": (
        {"baselines.maskcrypt", "selectiveshield.noise", "std.bfv"},
        ["protect.encrypted.1.choice=local", "negotiate_mask.union=true"],
    ),
    "paraaegis-vote-fedre-budgets": (
        {"paraaegis.vote", "fedre.psi", "fedre.layer_budgets", "fedre.pda_pam"},
        [
            "aggregate={use: std.mean}",
            "protect.noised=[{use: std.clip, norm: 0.01}, {use: std.gaussian, epsilon: 8, delta: 1.0e-5}]",
            "negotiate_mask={use: baselines.random_mask, ratio: 0.3, other_zone: noised}",
        ],
    ),
    "selectiveshield-consensus-fas-scrambling": (
        {"selectiveshield.consensus", "std.laplace", "fas.scramble", "selectiveshield.merge"},
        ["protect.noised.2.style=static", "aggregate={use: std.mean, weighting: uniform}"],
    ),
    "sensecrypt-groups-paraaegis-vote": (
        {"sensecrypt.clusters", "paraaegis.vote", "std.bfv"},
        ["groups=null", "negotiate_mask={use: fas.share, ratio: 0.3}"],
    ),
}


def run(name: str, folder: Path, rounds: int, *sets: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Some rounds of a hybrid, with scores of one sample: its rows and its ledger."""
    file = ROOT / f"recipes/hybrids/{name}.yaml"
    scorers = load_recipe(file, sets).to_plain()["score_parameters"]
    once = [f"score_parameters.{n}.samples=1" for n, scorer in enumerate(scorers) if "samples" in scorer]
    recipe = load_recipe(file, [*SMALL, f"rounds={rounds}", *once, *sets])
    code, run_dir = execution.start(recipe, Settings(output=folder, device="cpu", quiet=True))
    assert code == 0
    rows = read_rows(run_dir)
    return rows, json.loads((run_dir / "ledger.json").read_text())


def test_every_hybrid_is_here() -> None:
    assert [path.stem for path in HYBRIDS] == sorted(PARTS)


@pytest.mark.parametrize("name", PARTS)
def test_it_runs_and_is_made_of_what_its_name_says(name: str, tmp_path: Path) -> None:
    parts, _ = PARTS[name]
    recipe = load_recipe(ROOT / f"recipes/hybrids/{name}.yaml")
    assert parts <= {use.use for use in recipe.components.values()}
    rows, ledger = run(name, tmp_path, 2)
    assert [row.round for row in rows] == [1, 2]
    for row in rows:
        assert row.clients.answered == row.clients.asked == recipe.clients
        assert not row.unopened
        assert 0 < row.zones["encrypted"] < 1
        assert sum(share or 0 for share in row.zones.values()) == pytest.approx(1)
        assert 0 <= row.accuracy <= 1
    assert rows[0].epsilon < rows[1].epsilon < 20
    # Some zone of each is released without noise, and all parties see at least its sums.
    assert ledger["verdict"]["status"] == "no_protection"
    assert {line["state"] for line in ledger["verdict"]["lines"]} <= {"none", "absent"}
    assert not any("no accountant" in warning for warning in ledger["warnings"])


@pytest.mark.parametrize(("name", "line"), [
    pytest.param(name, line, marks=pytest.mark.slow if line != lines[0] else ())
    for name, (_, lines) in PARTS.items() for line in lines
])  # fmt: skip
def test_one_line_switches_one_part(name: str, line: str, tmp_path: Path) -> None:
    changed = load_recipe(ROOT / f"recipes/hybrids/{name}.yaml", [line])
    assert changed.digest != load_recipe(ROOT / f"recipes/hybrids/{name}.yaml").digest
    rows, _ = run(name, tmp_path, 1, line)
    assert rows[-1].clients.answered == changed.clients
    assert not rows[-1].unopened

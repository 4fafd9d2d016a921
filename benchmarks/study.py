"""ParaAegis, its two extremes and its ablation on Fashion-MNIST: the numbers of docs/papers/paraaegis.md.

    FEDPLUG_DATA=... python benchmarks/study.py --seeds 1 2 3 --output study.jsonl

MLP 784-256-128-10, 20 clients, Dirichlet 0.5, 10 rounds of 5 local epochs, batch 32, learning rate 0.01. Differential
privacy is strict: client level, local, epsilon over all rounds. One line of JSON per run is appended to the output, so
that an interrupted study continues where it stopped. The table is printed from all lines. Seconds are processor time of
the rounds, all parties together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import fedplug

BASE: dict[str, Any] = {
    "rounds": 10,
    "data": {"use": "std.fashion_mnist", "clients": 20, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
    "model": {"use": "std.mlp", "hidden": [256, 128]},
    "train": {"use": "std.sgd", "epochs": 5, "batch_size": 32, "lr": 0.01},
    "aggregate": {"use": "std.mean"},
}
CKKS: dict[str, Any] = {
    "protect": {"encrypted": [{"use": "std.ckks", "key_holder": "clients"}]},
    "postprocess": {"encrypted": ["std.ckks"]},
}


def noised(epsilon: float, norm: float) -> list[dict[str, Any]]:
    """Clip, then Gaussian noise."""
    return [{"use": "std.clip", "norm": norm}, {"use": "std.gaussian", "epsilon": epsilon, "delta": 1e-5}]


def single(zone: str) -> dict[str, Any]:
    """The whole model in one zone."""
    return {"negotiate_mask": {"use": "std.single_zone", "zone": zone}}


def paraaegis(
    epsilon: float, norm: float, strategy: str = "max", ratio: float = 0.1, decay: float = 1.0
) -> dict[str, Any]:
    """ParaAegis with a strategy, a ratio and a decay."""
    return {
        "score_parameters": [{"use": "paraaegis.magnitude", "strategy": strategy}],
        "negotiate_mask": {"use": "paraaegis.vote", "ratio": ratio, "decay": decay},
        "protect": CKKS["protect"] | {"noised": noised(epsilon, norm)},
        "postprocess": CKKS["postprocess"],
    }


def variants(epsilon: float, norm: float) -> dict[str, dict[str, Any]]:
    """The rows of the table, by name."""
    return {
        "FedAvg": single("clear") | {"protect": {"clear": []}},
        "DP-FedAvg": single("noised") | {"protect": {"noised": noised(epsilon, norm)}},
        "CKKS-FedAvg": single("encrypted") | CKKS,
        "ParaAegis max 0.1": paraaegis(epsilon, norm),
        "ParaAegis min 0.1": paraaegis(epsilon, norm, "min"),
        "ParaAegis random 0.1": paraaegis(epsilon, norm, "random"),
        "ParaAegis dynamic 0.2 x 0.9": paraaegis(epsilon, norm, ratio=0.2, decay=0.9),
    }


def one_run(name: str, recipe: dict[str, Any], seed: int) -> dict[str, Any]:
    """Runs one row with one seed in this process. Returns its line of the output."""
    slug = "".join(c if c.isalnum() else "-" for c in name)
    with tempfile.TemporaryDirectory() as folder:
        run = fedplug.run(BASE | recipe, name=slug, seed=seed, engine="local", output=folder, quiet=True)
        rows, verdict = run.metrics, str(run.ledger.verdict)
    # Phases are timed by the wall clock, which other programs stretch for all phases alike.
    spent, worked = sum(row.cpu_seconds or 0.0 for row in rows), sum(sum(row.seconds.values()) for row in rows)
    return {
        "name": name,
        "seed": seed,
        "accuracy": rows[-1].accuracy,
        "seconds": spent,
        "train_seconds": spent * sum(row.seconds["train"] for row in rows) / worked,
        "up": sum(row.bytes.up.total for row in rows),
        "down": sum(row.bytes.down.total for row in rows),
        "epsilon": rows[-1].epsilon,
        "verdict": verdict,
    }


def table(lines: list[dict[str, Any]]) -> str:
    """The lines as a Markdown table: mean and standard deviation over seeds."""
    text = [
        "| protocol | accuracy | CPU s | of which training | MB up | MB down | epsilon of the DP zone |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(line["name"] for line in lines):
        mine = [line for line in lines if line["name"] == name]
        accuracies = [line["accuracy"] for line in mine]
        spread = statistics.stdev(accuracies) if len(mine) > 1 else 0.0
        seconds, train, up, down = (
            statistics.mean(line[key] for line in mine) for key in ("seconds", "train_seconds", "up", "down")
        )
        epsilon = mine[0]["epsilon"]
        shown = "none" if epsilon is None else f"{epsilon:.2f}"
        text.append(
            f"| {name} | {statistics.mean(accuracies):.3f} ± {spread:.3f} | {seconds:.1f} | {train:.1f} "
            f"| {up / 1e6:.1f} | {down / 1e6:.1f} | {shown} |"
        )
    return "\n".join(text)


def main() -> int:
    """Runs the missing rows and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--norm", type=float, default=0.1, help="clipping norm of the DP zone")
    parser.add_argument("--only", nargs="+", help="names of rows to run")
    parser.add_argument("--output", type=Path, default=Path("study.jsonl"))
    options = parser.parse_args()
    done = [json.loads(line) for line in options.output.read_text().splitlines()] if options.output.exists() else []
    for seed in options.seeds:
        for name, recipe in variants(options.epsilon, options.norm).items():
            if (options.only and name not in options.only) or (name, seed) in {(d["name"], d["seed"]) for d in done}:
                continue
            done.append(one_run(name, recipe, seed))
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(done[-1]) + "\n")
    print(table(done))
    return 0


if __name__ == "__main__":
    sys.exit(main())

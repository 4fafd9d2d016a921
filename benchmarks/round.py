"""Where the time of a round goes: training against everything else, on MNIST with 20 clients.

    FEDPLUG_DATA=... python benchmarks/round.py [--rounds 5] [--engine local] [--json]

Runs the recipe below in one process and prints, per round, the seconds of each phase summed over all parties. The first
round is left out because it builds encryption contexts, the last because it holds the end of the run. The target:
everything that is not training takes at most a tenth of the time of the training.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from typing import Any

import fedplug

RECIPE: dict[str, Any] = {
    "name": "benchmark-round",
    "seed": 1,
    "rounds": 5,
    "data": {"use": "std.mnist", "clients": 20, "partition": {"use": "std.dirichlet", "alpha": 0.5}},
    "model": {"use": "std.mlp", "hidden": [256, 128]},
    "train": {"use": "std.sgd", "epochs": 5, "batch_size": 32, "lr": 0.01},
    "score_parameters": [{"use": "paraaegis.magnitude"}],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.1},
    "protect": {
        "encrypted": [{"use": "std.bfv", "key_holder": "clients"}],
        "noised": [{"use": "std.clip", "norm": 0.1}, {"use": "std.gaussian", "epsilon": 1, "delta": 1e-5}],
    },
    "aggregate": {"use": "std.mean"},
    "postprocess": {"encrypted": ["std.bfv"]},
}
TARGET = 0.1


def measure(rounds: int, engine: str) -> dict[str, float]:
    """Mean seconds of each phase over the rounds between the first and the last; `wall` is the wall clock."""
    with tempfile.TemporaryDirectory() as folder:
        rows = fedplug.run(RECIPE, rounds=rounds, engine=engine, output=folder, quiet=True).metrics
    steady = [row.seconds | {"wall": row.wall_seconds} for row in rows[1:-1]]
    return {phase: sum(seconds.get(phase, 0.0) for seconds in steady) / len(steady) for phase in steady[0]}


def main() -> int:
    """Prints the split; exit code 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", default="local")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    options = parser.parse_args()
    seconds = measure(options.rounds, options.engine)
    # One process does everything in turn, so what is neither training nor a phase is messages and bookkeeping.
    wall = seconds.pop("wall") + seconds.get("checkpoint", 0.0)
    training = seconds["train"]
    seconds["messages"] = max(0.0, wall - sum(seconds.values()))
    rest = sum(value for phase, value in seconds.items() if phase != "train")
    if options.json:
        print(json.dumps({"seconds": seconds, "training": training, "rest": rest, "ratio": rest / training}))
    else:
        for phase, value in sorted(seconds.items(), key=lambda item: -item[1]):
            print(f"{phase:12} {value:8.3f} s  {value / training:7.1%} of training")
        verdict = "met" if rest <= TARGET * training else "MISSED"
        print(f"{'the rest':12} {rest:8.3f} s  {rest / training:7.1%} of training  (target {TARGET:.0%}: {verdict})")
    return 0 if rest <= TARGET * training else 1


if __name__ == "__main__":
    sys.exit(main())

"""Peak memory of a run against its clients and its parameters, each run in a separate process.

    FEDPLUG_DATA=... python benchmarks/memory.py [--only clear-10000,bfv-8] [--json]

Prints peak resident memory and CPU seconds. Every client has 60 images of MNIST; for more clients than that allows,
images are repeated. Targets: 10,000 clients with 25,000 parameters under 4 GiB on the engine `local`; 8 clients
with 11.2 million parameters under BFV under 1.2 GiB. Exit code 1 where one is missed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from fedplug import Dataset
from fedplug.recipe.catalog import Catalog, Entry
from fedplug.recipe.recipe import Recipe
from fedplug_runs.execution import start
from fedplug_runs.settings import Settings
from fedplug_std.datasets import Mnist

CLEAR: dict[str, Any] = {"protect": {"clear": []}}
SEALED = {"protect": {"encrypted": ["std.bfv"]}, "postprocess": {"encrypted": ["std.bfv"]}}
VOTE = {
    "score_parameters": ["paraaegis.magnitude"],
    "negotiate_mask": {"use": "paraaegis.vote", "ratio": 0.1},
    "protect": {
        "encrypted": [{"use": "std.bfv", "key_holder": "key_server"}],
        "noised": [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}],
    },
    "postprocess": {"encrypted": ["std.bfv"]},
}
SMALL, LARGE = {"use": "std.mlp", "hidden": [32]}, {"use": "std.resnet18"}
RUNS: dict[str, tuple[str, int, dict[str, Any], dict[str, Any], float]] = {
    "clear-1000": ("1,000 clients, 25k, clear", 1_000, SMALL, CLEAR, 0),
    "clear-10000": ("10,000 clients, 25k, clear", 10_000, SMALL, CLEAR, 4096),
    "full-1000": ("1,000 clients, 25k, vote, BFV, noise", 1_000, SMALL, VOTE, 0),
    "full-10000": ("10,000 clients, 25k, vote, BFV, noise", 10_000, SMALL, VOTE, 4096),
    "resident-10000": ("the same, 100 clients in memory", 10_000, SMALL, VOTE, 4096),
    "bfv-2": ("2 clients, 11.2M, BFV", 2, LARGE, SEALED, 0),
    "bfv-8": ("8 clients, 11.2M, BFV", 8, LARGE, SEALED, 1228.8),
}
"""The runs: a description, clients, the model, the protection, and the most MiB (0: no target)."""
EXAMPLES = 60


def measure(name: str) -> dict[str, float]:
    """Runs one of them in this process."""
    _, clients, model, protection, _ = RUNS[name]
    recipe = {
        "name": name, "seed": 1, "rounds": 1,
        "data": {"use": "memory.mnist", "clients": clients, "partition": {"use": "std.iid"}},
        "model": model,
        "train": {"use": "std.sgd", "epochs": 1, "batch_size": 20, "lr": 0.05},
        "negotiate_mask": {"use": "std.single_zone", "zone": next(iter(protection["protect"]))},
        "aggregate": "std.mean",
        **protection,
    }  # fmt: skip
    catalog = with_data(clients * EXAMPLES)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        few = 100 if name.startswith("resident") else None
        settings = Settings.load().replace({"output": Path(folder), "quiet": True, "max_clients_in_memory": few})
        start(Recipe.from_plain(recipe, catalog), settings, catalog)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak": peak, "seconds": time.process_time() - started}


def with_data(count: int) -> Catalog:
    """The installed components, and MNIST's training images, repeated until there are enough."""

    class Many(Mnist):
        """MNIST with the requested number of training examples."""

        def load(self, root: str | None) -> Dataset:
            """The data set, in which each image may occur several times."""
            once = super().load(root)
            again = np.arange(count) % len(once.train)
            few = once.test.take(slice(200))
            return dataclasses.replace(once, train=once.train.take(again), test=few)

    catalog = Catalog.discover()
    catalog.groups["dataset"]["memory.mnist"] = Entry("memory.mnist", "data", "memory:Many", "benchmark", "0", Many)
    return catalog


def main() -> int:
    """Runs each in a separate process and prints a table; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(RUNS), help="names of runs, with commas between them")
    parser.add_argument("--json", action="store_true", help="print numbers as JSON")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(measure(arguments.run)))
        return 0
    found: dict[str, dict[str, float]] = {}
    met = True
    for name in arguments.only.split(","):
        description, clients, _, _, most = RUNS[name]
        done = subprocess.run([sys.executable, __file__, "--run", name], capture_output=True, text=True)
        if done.returncode:
            print(f"{description}: failed\n{done.stderr}", file=sys.stderr)
            return 2
        found[name] = json.loads(done.stdout.splitlines()[-1])
        peak, seconds = found[name]["peak"], found[name]["seconds"]
        reached = "" if not most else f"; target {most:g}: {'met' if peak < most else 'MISSED'}"
        met &= not most or peak < most
        if not arguments.json:
            each = 1000 * seconds / clients
            print(
                f"{description:42} {peak:6.0f} MiB  {seconds:7.1f} CPU s ({each:.0f} ms a client){reached}", flush=True
            )
    if arguments.json:
        print(json.dumps(found))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

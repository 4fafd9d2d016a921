"""What a GPU changes: training, single records' gradients and a search for images, on random data, smallest first.

    python benchmarks/gpu.py [--minutes 10] [--only lenet5 resnet18] [--device cuda] [--csv FILE]

Each row is one recipe under the engine `local`, run in a process for each device: first on the GPU, then on one core
of the CPU. Rounds of training give the seconds that clients trained, median without the first; an attack gives its
seconds in all, with the start of the device. Losses say whether both computed the same: they are at most `CLOSE` of
their size apart. A row that has not ended after `--minutes` is ended and named. The output begins with the card.
Nothing is read or downloaded. Exit code 1 without a GPU, or where losses differ.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

SHAPES: dict[str, tuple[int, ...]] = {"digits": (1, 28, 28), "photographs": (3, 32, 32)}
CLASSES = 10
CLEAR: dict[str, Any] = {
    "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []}, "aggregate": "std.mean",
}  # fmt: skip
SGD: dict[str, Any] = {"use": "std.sgd", "epochs": 1, "batch_size": 32, "lr": 0.05}
ROWS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "lenet5": ("LeNet-5, batches of 32", "digits", 1_200, {"model": "std.lenet5", "train": SGD}),
    "lenet5-large": (
        "LeNet-5, batches of 256", "digits", 10_240, {"model": "std.lenet5", "train": {**SGD, "batch_size": 256}},
    ),
    "dp-sgd": (
        "gradients of single records, LeNet-5", "digits", 2_048, {
            "model": "std.lenet5",
            "train": {
                "use": "baselines.dp_sgd", "batch_size": 256, "lr": 0.05, "clipping_norm": 1.0, "epsilon": 8,
                "delta": 1e-4,
            },
        },
    ),
    "inverting": (
        "a search for 4 images, 200 steps, LeNet-5", "digits", 64, {
            "model": {"use": "std.lenet5", "activation": "sigmoid"}, "train": {**SGD, "batch_size": 4},
            "attack": {
                "adversaries": ["server"], "targets": [0], "probe": {"batch_size": 4},
                "attacks": [{"use": "attacks.inverting", "iterations": 200, "prior": "none"}],
            },
        },
    ),
    "resnet18": ("ResNet-18, batches of 32", "photographs", 512, {"model": "std.resnet18", "train": SGD}),
    "resnet18-bfv": (
        "ResNet-18, all of it under BFV", "photographs", 512, {
            "model": "std.resnet18", "train": SGD,
            "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
            "protect": {"encrypted": [{"use": "std.bfv", "key_holder": "clients"}]},
            "postprocess": {"encrypted": ["std.bfv"]},
        },
    ),
}  # fmt: skip
"""By name: a description, the kind of images, how many of them two clients share, and the recipe's own parts."""
ROUNDS, CLOSE = 4, 0.05
COLUMNS = ["row", "card", "seconds on it", "seconds on one core", "times as fast"]


def load(root: str | None, kind: str, rows: int) -> dict[str, Any]:
    """Random images of ten classes, whose means differ."""
    rng = np.random.default_rng(1)
    given: dict[str, Any] = {}
    for name, size in (("train", rows), ("test", 64)):
        labels = np.arange(size) % CLASSES
        images = (rng.random((size, *SHAPES[kind])) + labels[:, None, None, None] / CLASSES) / 2
        given |= {f"{name}_images": images.astype(np.float32), f"{name}_labels": labels}
    return given


def recipe(name: str) -> dict[str, Any]:
    """The row's recipe."""
    _, kind, rows, parts = ROWS[name]
    data = {"use": f"{Path(__file__).resolve()}:load", "kind": kind, "rows": rows, "clients": 2, "partition": "std.iid"}
    return {
        "name": name, "seed": 1, "rounds": 1 if "attack" in parts else ROUNDS, "min_clients": 2, "data": data,
        **CLEAR, **parts,
    }  # fmt: skip


def measure(name: str, device: str) -> dict[str, float]:
    """Runs a row in this process: its seconds, and the loss of its last model."""
    import fedplug
    import torch
    from fedplug_runs.settings import Settings

    torch.set_num_threads(1)
    what = recipe(name)
    with TemporaryDirectory() as folder:
        settings = Settings(output=Path(folder), device=device, trust=True, quiet=True, muted=("lab.report",))
        alone = fedplug.run({key: value for key, value in what.items() if key != "attack"}, settings=settings)
        seconds = statistics.median(row.seconds["train"] for row in alone.metrics[-ROUNDS + 1 :])
        if "attack" in what:
            began = time.perf_counter()
            fedplug.run(what, settings=settings)
            seconds = time.perf_counter() - began
        loss = alone.metrics[-1].loss
        assert loss is not None
        return {"seconds": seconds, "loss": loss}


def measured(name: str, device: str, limit: float) -> dict[str, float] | str:
    """The same in a process of its own, or why there is nothing."""
    command = [sys.executable, __file__, "--run", name, device]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=max(1.0, limit))
    except subprocess.TimeoutExpired:
        return "ended when the minutes were over"
    if made.returncode:
        return (made.stderr.strip().splitlines() or [f"exit code {made.returncode}"])[-1]
    found: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return found


def card(device: str) -> str:
    """The name of the device; empty without it."""
    import torch

    if device == "cpu":
        return "one core"
    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else ""


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--csv", type=Path, help="where to write the table")
    parser.add_argument("--run", nargs=2, metavar=("ROW", "DEVICE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measure(*options.run)))
        return 0
    if not (named := card(options.device)):
        print("torch finds no GPU here; --device cpu tries the rows without one", file=sys.stderr)
        return 1
    print(f"on {named}:", flush=True)
    ends, table, alike = time.monotonic() + 60 * options.minutes, list[dict[str, str]](), True
    for name in options.only:
        both = [measured(name, device, ends - time.monotonic()) for device in (options.device, "cpu")]
        words = ROWS[name][0]
        fast, slow = both
        if isinstance(fast, str) or isinstance(slow, str):
            print(f"{words}: {'; '.join(each for each in both if isinstance(each, str))}", flush=True)
            continue
        times = slow["seconds"] / fast["seconds"]
        numbers = (f"{value:.3g}" for value in (fast["seconds"], slow["seconds"], times))
        row = dict(zip(COLUMNS, (words, named, *numbers), strict=True))
        table.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if not abs(fast["loss"] - slow["loss"]) <= CLOSE * abs(slow["loss"]):
            alike = False
            print(f"  losses differ: {fast['loss']:.4f} on {named}, {slow['loss']:.4f} on one core")
    if options.csv is not None:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())

"""Bytes, CPU seconds and memory of a round against the number of clients: per client they are to be flat.

    python benchmarks/clients.py [--counts 10 1000 10000] [--only clear masks] [--resident 1000] [--csv FILE]

Every client has two rows of 16 numbers, and the model has 34 parameters, so that what a round costs apart from training
and values is nearly all that is measured. Rows: in the clear; noise at the clients; pairwise masks (SecAgg+), up to
10,000 clients. Each run is a process and has two rounds; the second is measured, with its checkpoint, and the set-up
apart from it. Memory is the peak of resident memory, with Python and torch. From 100,000 clients on, at most
`--resident` of them are in memory at a time, which also writes the others to files.

Targets, for each row: a client hears and sends at most 1.05 times the bytes of a client among ten, its round takes at
most 1.25 times the CPU seconds of one among a thousand, and its set-up likewise. With masks a client has neighbours,
whose number grows with the logarithm of all: there a thousand clients are what bytes are compared with, and the ratio
is at most 1.3. Exit code 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROWS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "clear": ("in the clear", 100_000, {"protect": {"clear": []}}),
    "noise": (
        "noise at the clients", 100_000,
        {"protect": {"noised": [{"use": "std.clip", "norm": 1.0}, {"use": "std.gaussian", "noise_multiplier": 1.0}]}},
    ),
    "masks": (
        "pairwise masks", 10_000, {
            "protect": {"encrypted": [{"use": "std.clip", "norm": 1.0}, "secagg.plus"]},
            "postprocess": {"encrypted": ["secagg.plus"]},
        },
    ),
}  # fmt: skip
"""By name: a description, the most clients, and the protection."""
COUNTS = (10, 1_000, 10_000, 100_000)
BYTES, SECONDS = {"clear": (10, 1.05), "noise": (10, 1.05), "masks": (1_000, 1.3)}, (1_000, 1.25)
"""With how many clients a client's bytes and its CPU seconds are compared, and the largest ratio."""
FEW = 100_000
"""From so many clients on they are put away into files."""
WIDTH, EACH = 16, 2


def load(root: str | None, rows: int = EACH) -> dict[str, Any]:
    """That number of rows of two overlapping classes for training, and two thousand for testing."""
    rng = np.random.default_rng(1)
    sizes = {"train": rows, "test": 2_000}
    labels = {name: np.arange(size) % 2 for name, size in sizes.items()}
    given: dict[str, Any] = {f"{name}_labels": found for name, found in labels.items()}
    for name, size in sizes.items():
        values = rng.standard_normal((size, WIDTH)) + labels[name][:, None]
        given[f"{name}_images"] = values.astype(np.float32)
    return given


class Clock:
    """A display that shows nothing, and notes CPU seconds: before the set-up, after it, and after each round."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def start(self, *_: Any) -> None:
        """The parties are built and set up next."""
        self.marks.append(time.process_time())

    def phase(self, round: int, phase: str, done: int, total: int) -> None:
        """The first call of training ends the set-up."""
        if phase == "training" and len(self.marks) == 1:
            self.marks.append(time.process_time())

    def round_done(self, row: Any) -> None:
        """fedplug calls this once a round."""
        self.marks.append(time.process_time())

    def note(self, *_: Any) -> None:
        """Nothing, as for all other calls of a display."""

    finish = interrupted = close = note


def measure(name: str, clients: int, resident: int) -> dict[str, float]:
    """Runs a row in this process. Gives bytes, CPU milliseconds of set-up and second round by client, and peak MiB."""
    import fedplug
    from fedplug_runs.settings import Settings

    protection = ROWS[name][2]
    (zone,) = protection["protect"]
    recipe = {
        "name": "clients", "seed": 1, "rounds": 2, "min_clients": 8 * clients // 10,
        "data": {
            "use": f"{Path(__file__).resolve()}:load", "rows": EACH * clients, "clients": clients,
            "partition": "std.iid",
        },
        "model": "std.logistic", "train": {"use": "std.sgd", "epochs": 1, "batch_size": EACH, "lr": 0.1},
        "negotiate_mask": {"use": "std.single_zone", "zone": zone}, "aggregate": "std.mean", **protection,
    }  # fmt: skip
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            output=Path(folder), device="cpu", trust=True, quiet=True, muted=("lab.report",),
            max_clients_in_memory=resident if clients >= FEW else None,
        )  # fmt: skip
        row = fedplug.run(recipe, settings=settings, display=clock).metrics[1]
    began, ready, _, ended = (1000 * mark / clients for mark in clock.marks)
    first = 1000 * clock.marks[2] / clients
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "up": row.bytes.up.total / clients, "down": row.bytes.down.total / clients, "set-up": ready - began,
        "round": ended - first, "peak": peak,
    }  # fmt: skip


def measured(name: str, clients: int, resident: int) -> dict[str, float]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--run", name, str(clients), "--resident", str(resident)]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return found


def judged(name: str, found: dict[int, dict[str, float]]) -> list[str]:
    """What of a row, by number of clients, misses a target."""
    missed = []
    for clients, each in found.items():
        for what, (base, most) in (
            ("up", BYTES[name]), ("down", BYTES[name]), ("set-up", SECONDS), ("round", SECONDS),
        ):  # fmt: skip
            if base in found and clients > base and each[what] > most * found[base][what]:
                ratio = each[what] / found[base][what]
                missed.append(f"{what} of {clients:,} clients is {ratio:.2f} x that of {base:,}, at most {most:g}")
    return missed


def main() -> int:
    """Prints the tables; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", nargs="+", type=int, default=list(COUNTS))
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--resident", type=int, default=1_000, help="clients in memory, from 100,000 on")
    parser.add_argument("--csv", type=Path, help="where to write the table")
    parser.add_argument("--run", nargs=2, metavar=("ROW", "CLIENTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        print(json.dumps(measure(options.run[0], int(options.run[1]), options.resident)))
        return 0
    table, missed = [], list[str]()
    for name in options.only:
        words, most, _ = ROWS[name]
        found: dict[int, dict[str, float]] = {}
        for clients in options.counts:
            if clients > most:
                continue
            each = found[clients] = measured(name, clients, options.resident)
            table.append({
                "protection": words, "clients": f"{clients:,}", "bytes up": f"{each['up']:.0f}",
                "bytes down": f"{each['down']:.0f}", "ms of set-up": f"{each['set-up']:.2f}",
                "ms of a round": f"{each['round']:.2f}", "peak MiB": f"{each['peak']:.0f}",
            })  # fmt: skip
            print(", ".join(f"{key} {value}" for key, value in table[-1].items()), flush=True)
        missed += [f"{words}: {what}" for what in judged(name, found)]
    for what in missed:
        print(f"missed: {what}")
    if options.csv is not None:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What starting costs: `list`, `show`, `check` and the first recipe's one-round run.

    python benchmarks/startup.py [--repeats 5]

Runs the commands in turn, several times, and prints medians of CPU seconds. Targets, as ratios so that they hold on any
machine: `fedplug list` at most 2 times the imports that every program with typer and rich pays for; `show` and `check`
at most 4 times (0.3 s where those imports take 0.075); the run at most 2.66 times the import of torch (2.5 s where that
takes 0.94). Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RECIPE = str(Path(__file__).resolve().parent.parent / "recipes" / "fedavg.yaml")
FEDPLUG = [sys.executable, "-c", "import sys; from fedplug.cli.main import main; sys.exit(main())"]
BASE, TORCH, RUN = "import typer, rich.table", "import torch", "fedplug run, one round"
COMMANDS = {
    BASE: [sys.executable, "-c", BASE],
    "fedplug list": [*FEDPLUG, "list"],
    "fedplug list --json": [*FEDPLUG, "list", "--json"],
    "fedplug show": [*FEDPLUG, "show", "std.bfv"],
    "fedplug check": [*FEDPLUG, "check", RECIPE],
    TORCH: [sys.executable, "-c", TORCH],
    RUN: [*FEDPLUG, "run", RECIPE, "--set", "rounds=1", "--quiet", "--output"],
}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a command and of what it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [*command, folder] if command[-1] == "--output" else command
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Prints the table; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, command in COMMANDS.items():  # interleaved, so that a busy moment hits all alike
            seconds[name].append(cpu_seconds(command))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    most = {
        "fedplug list": 2.0 * medians[BASE], "fedplug show": 4.0 * medians[BASE],
        "fedplug check": 4.0 * medians[BASE], RUN: 2.66 * medians[TORCH],
    }  # fmt: skip
    for name, median in medians.items():
        limit = f"target {most[name]:.3f}: {'met' if median <= most[name] else 'MISSED'}" if name in most else ""
        print(f"{name:26} {median:7.3f} s  {limit}")
    return 0 if all(medians[name] <= limit for name, limit in most.items()) else 1


if __name__ == "__main__":
    sys.exit(main())

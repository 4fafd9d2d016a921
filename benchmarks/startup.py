"""The cost of starting: `list`, `show`, `check` and the first recipe's one-round run.

    python benchmarks/startup.py [--repeats 5]

Runs the commands in turn, several times, and prints the median processor time of each (user and system, which other
programs disturb less than the clock), and the least. It also measures third-party imports, which this project cannot
make faster. Python may write its bytecode, as by default, and each command runs once before any is measured, so that
nothing is compiled during a measurement.

Targets: `fedplug list` at most 2 times the imports that every program with typer and rich pays for; the run at most 2.5
seconds; `show` and `check` under 0.3. The medians are judged as measured, on any machine. Exit code 1 if a target
is missed.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RECIPE = str(Path(__file__).resolve().parent.parent / "recipes" / "fedavg.yaml")
FEDPLUG = [sys.executable, "-c", "from fedplug_terminal.main import program; program()"]  # the script `fedplug`
BASE, RUN = "import typer, rich.table", "fedplug run, one round"
IMPORTS = (BASE, "import pydantic.main", "import torch")
COMMANDS = {
    **{name: [sys.executable, "-c", name] for name in IMPORTS},
    "fedplug list": [*FEDPLUG, "list"],
    "fedplug list --json": [*FEDPLUG, "list", "--json"],
    "fedplug show": [*FEDPLUG, "show", "std.bfv"],
    "fedplug check": [*FEDPLUG, "check", RECIPE],
    RUN: [*FEDPLUG, "run", RECIPE, "--set", "rounds=1", "--quiet", "--output"],
}

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a command and its child processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        command = [*command, folder] if command[-1] == "--output" else command
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Prints the table; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for command in COMMANDS.values():
        cpu_seconds(command)
    for _ in range(repeats):
        for name, command in COMMANDS.items():  # interleaved, so that a busy moment hits all alike
            seconds[name].append(cpu_seconds(command))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    limits = {"fedplug list": 2.0 * medians[BASE], "fedplug show": 0.3, "fedplug check": 0.3, RUN: 2.5}
    for name, median in medians.items():
        ratio = f"{median / medians[BASE]:5.2f} x the first"
        limit = f"at most {limits[name]:.3f} s: {_judged(median, limits[name])}" if name in limits else ""
        print(f"{name:26} {median:7.3f} s  least {min(seconds[name]):7.3f} s  {ratio}  {limit}")
    return 0 if all(medians[name] <= limit for name, limit in limits.items()) else 1


def _judged(median: float, limit: float) -> str:
    return "met" if median <= limit else "MISSED"


if __name__ == "__main__":
    sys.exit(main())

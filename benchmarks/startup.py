"""How long `fedplug list` takes beside the imports that any typer and rich program pays for.

    python benchmarks/startup.py [--repeats 15]

Runs the commands in turn, several times, and prints the median processor time of each (user and system, which other
programs disturb less than the clock does) and its ratio to the first. The target: at most 2, else the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

FEDPLUG = "import sys; from fedplug.cli.main import main; sys.exit(main())"
COMMANDS = {
    "import typer, rich.table": [sys.executable, "-c", "import typer, rich.table"],
    "fedplug list": [sys.executable, "-c", FEDPLUG, "list"],
    "fedplug list --json": [sys.executable, "-c", FEDPLUG, "list", "--json"],
}
TARGET = 2.0


def main() -> int:
    """Prints the table; exit code 1 if the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = parser.parse_args().repeats
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeats):
        for name, command in COMMANDS.items():  # interleaved, so that a busy moment hits all alike
            before = os.times()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            after = os.times()
            used = after.children_user + after.children_system - before.children_user - before.children_system
            seconds[name].append(used)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    base = next(iter(medians.values()))
    for name, median in medians.items():
        print(f"{name:26} {median * 1000:7.1f} ms  x{median / base:.2f}")
    return 0 if medians["fedplug list"] <= TARGET * base else 1


if __name__ == "__main__":
    sys.exit(main())

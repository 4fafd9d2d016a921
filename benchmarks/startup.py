"""How long `fedplug list` takes beside the imports that any typer and rich program pays for.

    python benchmarks/startup.py [--repeats 15]

Runs the commands in turn, several times, and prints the medians and their ratio to the first. The target: at most 2.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

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
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    base = next(iter(medians.values()))
    for name, median in medians.items():
        print(f"{name:26} {median * 1000:7.1f} ms  x{median / base:.2f}")
    return 0 if medians["fedplug list"] <= TARGET * base else 1


if __name__ == "__main__":
    sys.exit(main())

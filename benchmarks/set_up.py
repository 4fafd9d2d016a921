"""CPU seconds of what clients do once, before round 1: keys, and the scores and masks that hold for a whole run.

    FEDPLUG_DATA=... python benchmarks/set_up.py recipes/comparisons/fas-table1.yaml [--seeds 1 2 3]
    FEDPLUG_DATA=... python benchmarks/set_up.py recipes/paper/fas/fedml-he.yaml [--seeds 1 2 3]

A round's seconds leave it out. Each row of a comparison, or the recipe, is stopped when its set-up is done. Seconds are
processor time of this process, all parties together, so other work on the machine matters little.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fedplug
import yaml
from fedplug.round.protocol import Protocol


class Done(BaseException):
    """The set-up is over, what would follow is not wanted. No `Exception`: nothing takes it for a failed run."""


def seconds(recipe: Path, changes: dict[str, Any]) -> float:
    """CPU seconds of a recipe's set-up."""
    spent: list[float] = []
    whole = Protocol.setup

    def timed(self: Protocol) -> None:
        started = time.process_time()
        whole(self)
        spent.append(time.process_time() - started)
        raise Done

    with tempfile.TemporaryDirectory() as folder, patch.object(Protocol, "setup", timed), contextlib.suppress(Done):
        fedplug.run(recipe, changes, engine="local", output=folder, quiet=True)
    return spent[0]


def main() -> int:
    """Prints a line a row: mean and standard deviation over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a recipe, or a comparison file with recipes, not cases")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    options = parser.parse_args()
    read = yaml.safe_load(options.file.read_text(encoding="utf-8"))
    for row in read.get("recipes", [{"recipe": options.file.name, "name": options.file.stem}]):
        path, sets = options.file.parent / row["recipe"], {**read.get("set", {}), **row.get("set", {})}
        spent = [seconds(path, {**sets, "seed": seed}) for seed in options.seeds]
        spread = f" ± {statistics.stdev(spent):.1f}" if len(spent) > 1 else ""
        print(f"{row['name']}: {statistics.fmean(spent):.1f}{spread} CPU s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""CPU seconds of the clients' work before round 1: keys, and the scores and masks that hold for a whole run.

    FEDPLUG_DATA=... python benchmarks/set_up.py recipes/comparisons/fas-table1.yaml [--seeds 1 2 3]
    FEDPLUG_DATA=... python benchmarks/set_up.py recipes/paper/fas/fedml-he.yaml [--seeds 1 2 3]
    FEDPLUG_DATA=... python benchmarks/set_up.py recipes/comparisons/selectiveshield-table3.yaml --case dir0.5 \
        --csv docs/numbers/selectiveshield-table3-costs.csv

The seconds of rounds do not include it. Each row of a comparison, or the recipe, is stopped when its set-up is done.
Seconds are processor time of this process, all parties together, so other work on the machine matters little. The third
writes them to the comparison's table of costs, as a column that `docs/draw.py` keeps.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fedplug
import yaml
from fedplug.round.protocol import Protocol

COLUMN = "CPU s before round 1"


class Done(BaseException):
    """The set-up is over, and the rest is not needed. Not an `Exception`, so that it does not count as a failed run."""


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


def rows_of(file: Path, case: str | None) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Name, recipe and changes of each row of a comparison, in one of its cases; or of the recipe that the file is.

    Raises:
        SystemExit: the comparison has cases, and none or another one is given.
    """
    read = yaml.safe_load(file.read_text(encoding="utf-8"))
    if "recipes" not in read:
        yield file.stem, file, {}
        return
    cases = {each["name"]: each.get("set", {}) for each in read.get("cases", [])}
    if case not in (cases or {None: {}}):
        sys.exit(f"--case {case} is none of the cases of {file}: {', '.join(cases) or 'it has none'}")
    for row in read["recipes"]:
        row = {"recipe": row} if isinstance(row, str) else row
        path = file.parent / row["recipe"]
        yield row.get("name", path.stem), path, {**read.get("set", {}), **row.get("set", {}), **cases.get(case, {})}


def write(path: Path, found: Mapping[str, float]) -> None:
    """Writes the seconds to a file of numbers, as a column of the rows that it has."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line[COLUMN] = f"{found[line['protocol']]:.1f}" if line["protocol"] in found else line.get(COLUMN, "")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> int:
    """Prints a line a row: mean and standard deviation over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a recipe, or a comparison file")
    parser.add_argument("--case", help="of the comparison, where it has cases")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--csv", type=Path, help="write the means to this file of numbers, which has the rows")
    options = parser.parse_args()
    found = {}
    for name, path, changes in rows_of(options.file, options.case):
        spent = [seconds(path, {**changes, "seed": seed}) for seed in options.seeds]
        found[name] = statistics.fmean(spent)
        spread = f" ± {statistics.stdev(spent):.1f}" if len(spent) > 1 else ""
        print(f"{name}: {found[name]:.1f}{spread} CPU s", flush=True)
    if options.csv:
        write(options.csv, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

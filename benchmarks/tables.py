"""CPU seconds to read a large CSV file: by Python, by pyarrow, and from the cache, side by side in one process.

    python benchmarks/tables.py [--rows 200000] [--repeats 3]

The table is made up: 18 columns of numbers, 2 of whole numbers, 2 of texts and the answer. Each way reads the same
file, the ways take turns, and the smallest time of each counts. `load` is the whole of `std.table`, with its inputs.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fedplug_std._table_files import Reading, csv_rows, read
from fedplug_std.tables import Table


def write(path: Path, count: int) -> None:
    """A table with this number of rows."""
    rng = np.random.default_rng(0)
    columns = [rng.normal(50, 15, count).round(4).astype(str) for _ in range(18)]
    columns += [rng.integers(0, 90, count).astype(str) for _ in range(2)]
    columns += [np.array(words)[rng.integers(0, len(words), count)] for words in (["f", "m"], ["a", "b", "c"])]
    columns.append(np.where(rng.random(count) < 0.5, "ill", "well"))
    titles = [*(f"x{k}" for k in range(20)), "sex", "ward", "outcome"]
    with path.open("w", encoding="utf-8") as file:
        file.write("\n".join([",".join(titles), *map(",".join, zip(*columns, strict=True)), ""]))


def seconds(work: Callable[[], object]) -> float:
    """Processor time of this process, all threads together."""
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write(path, asked.rows)
        os.environ["FEDPLUG_CACHE"] = folder
        content = path.read_bytes()
        options = {"file": str(path), "answer": "outcome", "categories": {"sex": ["f", "m"], "ward": ["a", "b", "c"]}}
        table = Table(Table.Options.model_validate(options))
        table.load(None)  # fills the cache, and imports what is needed
        ways: dict[str, Callable[[], object]] = {
            "parsed by Python": lambda: csv_rows(path, content, Reading(), fast=False),
            "parsed by pyarrow": lambda: csv_rows(path, content, Reading()),
            "from the cache": lambda: read(path, Reading()),
            "load, from the cache": lambda: table.load(None),
        }
        found = dict.fromkeys(ways, float("inf"))
        for _ in range(asked.repeats):
            found = {name: min(found[name], seconds(work)) for name, work in ways.items()}
        print(f"{len(content) / 1e6:.0f} MB, {asked.rows} rows")
        for name, spent in found.items():
            print(f"{name:<22}{spent:7.2f} s  1/{found['parsed by Python'] / spent:.1f}")


if __name__ == "__main__":
    main()

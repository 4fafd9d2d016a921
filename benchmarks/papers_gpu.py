"""The papers' own settings on a GPU, smallest first: ResNet-18, SimpleCNN, MobileNetV2 and others, from local data.

    python benchmarks/papers_gpu.py --list [--csv docs/numbers/papers-gpu.csv]
    python benchmarks/papers_gpu.py --data DATA-FOLDER [--hours 0.25] [--only '*selectiveshield*'] [--seeds 1]

Runs the recipes of `recipes/paper/` with `device: cuda`: each file of a row, with each combination of its grid. Splits
are those of the files (Dir(0.5) in ParaAegis' rows). It downloads nothing. Results are lines of
`OUTPUT/results.jsonl`; the same command goes on where the last one ended.

Expected hours are not measured. They are the CPU hours of `docs/numbers/paper-costs.csv`, where training is divided by
`--speed`, and scores, encryption and evaluation are left as on one core. Each finished run corrects the expectation of
its row. With `--hours` no run starts that is expected to end later.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import fnmatch
import functools
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fedplug
from fedplug.api.errors import FedplugError
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug_lab.grid import combinations, read_grid
from paper_costs import DATA, RECIPES, Published, Setting, settings

COSTS = Path(__file__).parents[1] / "docs/numbers/paper-costs.csv"
SPEED = 40.0
"""How many times faster than one core of a CPU a GPU is taken to train."""
FOLDERS = {
    "std.imagenette": "imagenette2-160", "std.cifar10": "cifar-10-batches-py", "std.cifar100": "cifar-100-python",
    "std.svhn": "train_32x32.mat", "std.stl10": "stl10_binary", "std.image_folder": "chest_xray_128",
    "fedre.t_sroie": "T-SROIE",
}  # fmt: skip
"""What a data folder must have for a data set."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the list.

    Attributes:
        setting: its recipes and grid.
        data: name of the data set.
        runs: of one seed.
        hours: that one run is expected to take.
    """

    setting: Setting
    data: str
    runs: int
    hours: float


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: its row, a key that names it among all, and what to run."""

    row: Row
    key: str
    recipe: Recipe


def rows(speed: float) -> list[Row]:
    """The settings that a GPU helps, the smallest first."""
    with COSTS.open(encoding="utf-8", newline="") as file:
        costs = {(row["table"], row["recipe"]): row for row in csv.DictReader(file)}
    found = []
    for setting in settings():
        cost = costs.get((setting.table, f"`{setting.name}`"))
        plain = fedplug.check(RECIPES / setting.recipe, setting.sets).to_plain()
        if cost is None or plain["data"]["use"] not in FOLDERS:  # MLPs on MNIST need no GPU
            continue
        if setting.scalar:  # a ciphertext a scalar: a GPU helps with nothing
            continue
        if setting.recipe.startswith("fedre/"):  # its grid counts rows with other noise than the printed one
            setting = dataclasses.replace(setting, grid=None)
        found.append(Row(setting, plain["data"]["use"], setting.runs_a_seed, expected(plain, cost, speed)))
    return sorted(found, key=lambda row: row.hours)


def expected(plain: dict[str, Any], cost: dict[str, str], speed: float) -> float:
    """Hours of one run: training in GPU time, the rest in CPU time."""
    data, train = plain["data"], plain["train"]
    published = DATA.get(data["use"]) or Published(data.get("train_count", 2000), data.get("test_count", 500))
    examples = (published.train - (data.get("public") or 0)) / data["clients"]
    steps = plain["rounds"] * data["clients"] * math.ceil(examples / train["batch_size"]) * train["epochs"]
    total = float(cost["CPU h a run"].replace(",", ""))
    training = min(total, steps * float(cost["CPU s a step"]) / 3600)
    return float(training / speed + total - training)


def jobs(row: Row, seeds: Sequence[int]) -> Iterator[Job]:
    """The runs of a row, by file, combination and seed."""
    sets = tuple(f"{key}={json.dumps(value)}" for key, value in row.setting.sets.items())
    catalog = Catalog.discover()
    for path in row.setting.files():
        name = path.relative_to(RECIPES).with_suffix("").as_posix()
        if row.setting.grid is None:
            for seed in seeds:
                yield Job(row, f"{name} seed={seed}", fedplug.check(path, [*sets, f"seed={seed}"]))
            continue
        grid = read_grid(RECIPES / row.setting.grid, seeds, sets)
        for one in combinations(path, grid, sets, catalog):
            yield Job(row, f"{row.setting.name} {one.label}" if row.setting.sets else f"{name} {one.label}", one.recipe)


def listed(found: Sequence[Row]) -> list[dict[str, str]]:
    """The rows as the page shows them."""
    return [
        {
            "table": row.setting.table, "recipe": f"`{row.setting.name}`", "data": f"`{row.data}`",
            "in the data folder": f"`{FOLDERS[row.data]}`", "runs a seed": str(row.runs),
            "expected h a run": f"{row.hours:.2g}", "expected h a seed": f"{row.hours * row.runs:.2g}",
        }
        for row in found
    ]  # fmt: skip


def no_gpu() -> str | None:
    """Why there is no GPU to run on; None if there is one."""
    import torch

    if torch.cuda.is_available():
        return None
    if torch.version.cuda is None:
        return f"this PyTorch ({torch.__version__}) is for CPUs; install a build with CUDA on a machine with a GPU"
    return "PyTorch finds no GPU (torch.cuda.is_available() is False); run this on a machine where nvidia-smi lists one"


def without_data(found: Sequence[Row], folder: str | None) -> list[str]:
    """What is missing of the data, each with its remedy."""
    if not folder:
        return ["no data folder is named; give --data FOLDER, or set FEDPLUG_DATA"]
    if not Path(folder).is_dir():
        return [f"{folder} is no folder; correct --data or FEDPLUG_DATA"]
    needed = {row.data: FOLDERS[row.data] for row in found}
    return [
        f"{folder} has no {name}, which {use} reads; put the published files there (fedplug show {use}), or leave its "
        "rows out with --only"
        for use, name in sorted(needed.items())
        if not (Path(folder) / name).exists()
    ]  # fmt: skip


def finished(results: Path) -> set[str]:
    """The keys of the runs that a file of results has."""
    keys = set()
    text = results.read_text(encoding="utf-8") if results.exists() else ""
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            keys.add(str(json.loads(line)["key"]))
        except (ValueError, KeyError, TypeError):
            sys.exit(f"{results}:{number}: this is no result of a run; remove the line, and its run is made again")
    return keys


def make(found: Sequence[Row], options: argparse.Namespace) -> int:
    """Makes the runs that are not in the results yet. Returns the exit status."""
    options.output.mkdir(parents=True, exist_ok=True)
    results = options.output / "results.jsonl"
    done = finished(results)
    start, failed, factors = time.monotonic(), 0, dict.fromkeys(map(id, found), 1.0)
    for row in found:
        for job in jobs(row, options.seeds):
            if job.key in done:
                continue
            hours, left = row.hours * factors[id(row)], options.hours - (time.monotonic() - start) / 3600
            if hours > left:
                print(f"{job.key}: expected to take {hours:.2g} h, and {max(left, 0):.2g} h are left; it ends here")
                return int(failed > 0)
            print(f"{job.key}: expected to take {hours:.2g} h", flush=True)
            began = time.monotonic()
            try:
                run = fedplug.run(
                    job.recipe, device="cuda", engine="local", data=options.data, output=options.output, quiet=True
                )
            except FedplugError as error:
                failed += 1
                print(f"{job.key}: failed: {error}", file=sys.stderr, flush=True)
                continue
            took = (time.monotonic() - began) / 3600
            factors[id(row)] = took / row.hours
            last = run.metrics[-1]
            line = {"key": job.key, "table": row.setting.table, "hours": took, "accuracy": last.accuracy,
                    "folder": str(run.folder)}  # fmt: skip
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{job.key}: accuracy {last.accuracy}, {took:.2g} h", flush=True)
    return int(failed > 0)


def main(given: Sequence[str] | None = None) -> int:
    """Lists or makes the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="show the rows; needs neither a GPU nor data")
    parser.add_argument("--csv", type=Path, help="with --list: write the rows here")
    parser.add_argument("--only", default="*", help="rows whose table and recipe match, such as '*selectiveshield*'")
    parser.add_argument("--data", default=os.environ.get("FEDPLUG_DATA"), help="folder of data sets")
    parser.add_argument("--hours", type=float, default=math.inf, help="start nothing that is expected to end later")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--speed", type=float, default=SPEED, help="how much faster than one CPU core a GPU trains")
    parser.add_argument("--output", type=Path, default=Path("runs/papers-gpu"), help="folder of the runs")
    options = parser.parse_args(given)
    if not options.speed > 0 or not options.hours > 0:
        parser.error(f"--speed ({options.speed:g}) and --hours ({options.hours:g}) must be above 0")
    every = rows(options.speed)
    found = [row for row in every if fnmatch.fnmatch(f"{row.setting.table} {row.setting.name}", options.only)]
    if not found:
        names = ", ".join(row.setting.name for row in every)
        parser.error(f"--only {options.only!r} matches no row; the rows are {names}")
    if options.list:
        show(listed(found), options.csv)
        return 0
    problems = [*filter(None, [no_gpu()]), *without_data(found, options.data)]
    if problems:
        print(*(f"error: {problem}" for problem in problems), sep="\n", file=sys.stderr)
        return 2
    try:
        return make(found, options)
    except KeyboardInterrupt:
        print("interrupted; finished runs are kept, and the same command goes on after them", file=sys.stderr)
        return 130


def show(lines: Sequence[dict[str, str]], path: Path | None) -> None:
    """Prints the rows as CSV, or writes them."""
    write = functools.partial(_write, lines)
    if path is None:
        try:
            write(sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:  # its reader, such as head, has enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            write(file)
    except OSError as error:
        sys.exit(f"{path} cannot be written: {error.strerror}; give --csv a file in a folder that exists")


def _write(lines: Sequence[dict[str, str]], file: Any) -> None:
    writer = csv.DictWriter(file, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)


if __name__ == "__main__":
    sys.exit(main())

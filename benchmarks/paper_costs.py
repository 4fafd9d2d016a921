"""What the papers' own settings would cost: CPU hours, estimated from steps and uploads that are measured in this run.

    FEDPLUG_DATA=... python benchmarks/paper_costs.py [--only PATTERN] [--large] [--csv paper-costs.csv]

Numbers of a setting (clients, rounds, epochs, batch, model, protection) are read from the recipes in `recipes/paper/`,
numbers of runs from their folders and grid files. Each recipe is run here with few clients and few batches, but with
its own model, image size, mask and protection, in two sizes; of two rounds the second counts, of the largest models one
is run. The difference between the sizes is training and scoring by the batch. The rest is a client's fixed cost in a
round. Then

    hours = rounds x (clients x (steps x step + examples x score + once + upload) + test examples x evaluation) / 3600

The assumptions are:

* seconds are processor time of this process, so other work on the machine matters little. Torch has one thread;
* examples are divided evenly among the clients, as a Dirichlet partition does up to a batch a client;
* where a data set is missing, random images of its shape and number of classes replace it. Masks that follow from
  scores then hold a different share from that on the data. The table says which was measured;
* three of four clients open a sum of Stevens et al., where the recipe has six of ten: masks take time, shares do not;
* opening is counted per client. Where a key server opens a sum once a round, that is too much;
* where each scalar is a ciphertext, no whole upload is encrypted: the seconds of one scalar are measured on a model of
  795 parameters with all else as in the recipe, the share without encryption on the recipe's model;
* a table has three seeds, as here; `alike` files have the measured one's cost per step and upload.

One row is measured only with `--large`: CKKS in the parameters of a tutorial holds 15 GB for two uploads of ResNet-18.
Rows that the file has already, and that are not measured now, stay.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import fnmatch
import functools
import math
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fedplug
import numpy as np
import yaml

RECIPES = Path(__file__).parents[1] / "recipes/paper"
SEEDS = 3
TEST_EXAMPLES = 200
PHASES = ("negotiate", "protect", "aggregate", "open", "checkpoint")
"""Phases of an upload, whose cost does not depend on examples. Training, scoring and evaluation count separately."""


@dataclasses.dataclass(frozen=True)
class Published:
    """A data set as published; `shape` where it is not at hand, and random images are used. T-SROIE is cropped."""

    train: int
    test: int
    classes: int = 10
    shape: tuple[int, ...] | None = None


DATA = {
    "std.mnist": Published(60_000, 10_000),
    "std.fashion_mnist": Published(60_000, 10_000),
    "std.image_folder": Published(750, 225),  # the chest X-rays
    "std.imagenette": Published(9_469, 3_925, shape=(3, 0, 0)),  # sizes are the recipe's
    "std.cifar10": Published(50_000, 10_000, shape=(3, 32, 32)),
    "std.cifar100": Published(50_000, 10_000, 100, (3, 32, 32)),
    "std.svhn": Published(73_257, 26_032, shape=(3, 32, 32)),
    "std.stl10": Published(5_000, 8_000, shape=(3, 96, 96)),
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """One recipe that is measured, and the number of runs of its kind in a table of the paper.

    Attributes:
        table: of the paper.
        recipe: the file that is measured.
        alike: patterns of files in its folder with the same cost per step and upload; itself, if there is none.
        each: runs of each file and seed, in addition to those of the grid: partitions, for instance.
        grid: the file that gives the number of combinations.
        sets: changes, where a setting of the paper is an option of a recipe.
        batches: of each client, in the two sizes; the examples that scores are a mean over must be in both.
        clients, rounds: of the small run.
        small: changes that this small number of clients needs.
        scalar: whether each scalar is a ciphertext.
        large: whether it takes more than 15 GB.
    """

    table: str
    recipe: str
    alike: tuple[str, ...] = ()
    each: int = 1
    grid: str | None = None
    sets: dict[str, Any] = dataclasses.field(default_factory=dict)
    batches: tuple[int, int] = (4, 16)
    clients: int = 3
    rounds: int = 2
    small: dict[str, Any] = dataclasses.field(default_factory=dict)
    scalar: bool = False
    large: bool = False

    @property
    def name(self) -> str:
        """Name of the row: the file, and its changes."""
        return " ".join([self.recipe.removesuffix(".yaml"), *(f"{key}={value}" for key, value in self.sets.items())])

    def files(self) -> Iterator[Path]:
        """The recipes that the row represents."""
        path = RECIPES / self.recipe
        if not self.alike:
            yield path
        for pattern in self.alike:
            yield from sorted(path.parent.glob(pattern))

    @property
    def runs(self) -> int:
        """Of each file: combinations of the grid, seeds, and `each`."""
        return self.each * SEEDS * (combinations(RECIPES / self.grid) if self.grid else 1)

    @property
    def runs_a_seed(self) -> int:
        """Of all files, as they are, with one seed: combinations of the grid."""
        return len([*self.files()]) * (combinations(RECIPES / self.grid) if self.grid else 1)


def combinations(grid: Path) -> int:
    """How many runs a seed a grid file asks for."""
    found = yaml.safe_load(grid.read_text(encoding="utf-8"))
    return len(found.get("cases", [{}])) * math.prod(len(values) for values in found.get("parameters", {}).values())


def settings() -> list[Setting]:
    imagenette, shield, sense, fas = "paraaegis/imagenette/", "selectiveshield/", "sensecrypt/", "fas/"
    few: dict[str, Any] = {"batches": (1, 3), "clients": 2, "rounds": 1}
    stem = {"resnet50": {"model.small_input": False}}  # torchvision's, as for the other models of FAS
    table1, tables23 = "ParaAegis, Table 1", "ParaAegis, Tables 2 and 3"
    return [
        Setting(table1, imagenette + "fedavg.yaml", each=3, **few),
        Setting(
            table1, imagenette + "dp-fedavg.yaml", ("dp-fedavg.yaml", "varying-dp.yaml", "nbafl.yaml"), each=3, **few
        ),
        Setting(table1, imagenette + "ckks-fedavg.yaml", each=3, **few),
        Setting(table1, imagenette + "serial-dp-he.yaml", each=3, large=True, **few),
        Setting(
            table1, imagenette + "stevens.yaml", each=3, **{**few, "clients": 4},
            small={"min_clients": 3, "protect.encrypted.1.threshold": 3},
        ),
        Setting(table1, imagenette + "static-p0.1.yaml", ("static-*", "dynamic-*"), each=3, **few),
        Setting(tables23, imagenette + "static-p0.1.yaml", ("strategy-*", "clip-*", "clients-*"), **few),
        *(
            Setting(f"SelectiveShield, Table {table}", f"{shield}{data}.yaml", grid=f"{shield}{data}.grid.yaml")
            for table, data in ((8, "mnist"), (9, "fashion-mnist"), (10, "cifar10"), (11, "cifar100"), (12, "svhn"))
        ),
        Setting("SelectiveShield, Table 13", shield + "stl10.yaml", grid=shield + "stl10.grid.yaml", batches=(1, 4)),
        *(
            Setting(f"SenseCrypt, Fig. {figure}", f"{sense}{name}.yaml", clients=5, scalar=True)
            for figure, name in ((2, "statistical"), (3, "system"), (4, "both"))
        ),
        Setting("SenseCrypt, Fig. 4", sense + "cifar10-both.yaml", clients=5, batches=(1, 3), rounds=1, scalar=True),
        *(
            Setting(
                "FAS, Table 1", fas + "chest-mobilenet.yaml", grid=fas + "chest-lenet5.grid.yaml",
                sets={"model.use": f"std.{model}", "train.epochs": 20, **stem.get(model, {})}, batches=(1, 3), rounds=1,
            )
            for model in ("mobilenet_v2", "efficientnet_b0", "densenet121", "resnet50")
        ),
        Setting(
            "FedRE, Table 1", "fedre/literal.yaml", grid="fedre/receipts-small.grid.yaml", batches=(2, 10),
        ),
    ]  # fmt: skip


# -- measuring ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Costs:
    """CPU seconds of one recipe's parts.

    Attributes:
        step: of one batch of training.
        once: of training and scoring, of a client in a round, independent of its examples.
        score: of one example.
        upload: to negotiate, protect, add up and open one client's update.
        evaluate: of one test example.
        encrypted: share of the model that is encrypted.
        parameters: of the model.
        random: whether random images replaced the data.
    """

    step: float
    once: float
    score: float
    upload: float
    evaluate: float
    encrypted: float
    parameters: int
    random: bool


def measure(setting: Setting, folder: Path) -> Costs:
    """Runs the recipe in two sizes, and measures one scalar where each is a ciphertext."""
    recipe = fedplug.check(RECIPES / setting.recipe, setting.sets)
    plain, n, sizes = recipe.to_plain(), setting.clients, setting.batches
    changes = {**setting.sets, **setting.small, "rounds": setting.rounds, "train.epochs": 1, **_of_devices(plain, n)}
    if setting.scalar:
        changes |= {"protect": {"encrypted": [], "clear": []}, "postprocess": {}}
    rows, batch = [], plain["train"]["batch_size"]
    for size in sizes:
        run = _run(setting, {**changes, "data": _data(plain["data"], n * size * batch, n, folder)}, folder)
        rows.append(run.metrics[-1])
        parameters = sum(weights.numel() for weights in run.model.parameters())
    batches = [n * size for size in sizes]
    step, train_once = _line(batches, [row.seconds["train"] for row in rows], n)
    score, score_once = _line([count * batch for count in batches], [row.seconds.get("score", 0.0) for row in rows], n)
    upload = sum(row.seconds.get(phase, 0.0) for row in rows for phase in PHASES) / (len(rows) * n)
    encrypted = rows[-1].zones["encrypted"] or 0.0
    if setting.scalar:
        upload += encrypted * parameters * scalar_seconds(folder)
    evaluate = min(row.seconds["evaluate"] for row in rows) / TEST_EXAMPLES
    random = DATA[plain["data"]["use"]].shape is not None if plain["data"]["use"] in DATA else False
    return Costs(step, train_once + score_once, score, upload, evaluate, encrypted, parameters, random)


@functools.cache
def scalar_seconds(folder: Path) -> float:
    """CPU seconds to encrypt, add up and open one encrypted scalar, as SenseCrypt's recipes do."""
    setting = Setting("", "sensecrypt/both.yaml", clients=5)
    plain = fedplug.check(RECIPES / setting.recipe).to_plain()
    data = _data(plain["data"], 320, setting.clients, folder)
    run = _run(setting, {"rounds": 1, "model.hidden": [1], "data": data, **_of_devices(plain, setting.clients)}, folder)
    row, parameters = run.metrics[0], sum(weights.numel() for weights in run.model.parameters())
    count = (row.zones["encrypted"] or 0.0) * parameters * setting.clients
    return float(sum(row.seconds[phase] for phase in ("protect", "aggregate", "open")) / count)


def _run(setting: Setting, changes: dict[str, Any], folder: Path) -> fedplug.Run:
    # Phases are timed by the wall clock. In one process, its processor time gives their cost.
    with patch("time.perf_counter", time.process_time):
        return fedplug.run(
            RECIPES / setting.recipe, changes, engine="local", output=folder, quiet=True, muted=["lab.report"]
        )


def _line(amounts: list[int], seconds: list[float], clients: int) -> tuple[float, float]:
    """Seconds of one more, and fixed seconds of a client."""
    slope = max(0.0, (seconds[1] - seconds[0]) / (amounts[1] - amounts[0]))
    return slope, max(0.0, (seconds[0] - slope * amounts[0]) / clients)


def _of_devices(plain: dict[str, Any], clients: int) -> dict[str, Any]:
    """The profiles of the remaining clients, which share a model: five have the devices of a whole category."""
    if not plain.get("profiles"):
        return {}
    profiles = []
    for profile in plain["profiles"]:
        of = [one for one in profile["of"] if not isinstance(one, int) or one < clients]
        profiles += [{**profile, "of": of}] if of else []
    return {"profiles": profiles, "groups": None}


def _data(given: dict[str, Any], examples: int, clients: int, folder: Path) -> dict[str, Any]:
    """The section `data` of a small run: the recipe's data set, or random images of its shape, divided evenly."""
    common: dict[str, Any] = {"clients": clients, "partition": {"use": "std.iid"}, "public": given.get("public") or 0}
    if given["use"] == "fedre.t_sroie":  # its size of crops, from available receipts
        counts = {"train_count": examples + common["public"], "test_count": TEST_EXAMPLES}
        return {"use": "fedre.receipts", "size": given["size"], **counts, **common}
    published = DATA[given["use"]]
    if published.shape is None:
        kept: dict[str, Any] = {key: given[key] for key in ("use", "path", "image_size", "grayscale") if key in given}
        return {**kept, "train_size": examples + common["public"], "test_size": TEST_EXAMPLES, **common}
    size = given.get("image_size")
    shape = published.shape if size is None else (published.shape[0], size, size)
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"classes": [str(label) for label in range(published.classes)]}
    for split, count in (("train", examples + common["public"]), ("test", TEST_EXAMPLES)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (count, *shape), np.uint8)
        arrays[f"{split}_labels"] = np.arange(count) % published.classes
    file = folder / f"random-{examples}.npz"
    np.savez(file, **arrays)
    return {"use": "std.arrays", "file": str(file), **common}


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def hours(path: Path, sets: dict[str, Any], costs: Costs) -> tuple[float, str]:
    """CPU hours of one run of an unchanged recipe, and their arithmetic."""
    recipe = fedplug.check(path, sets)
    plain, clients, rounds = recipe.to_plain(), recipe.clients, recipe.rounds
    data, train = plain["data"], plain["train"]
    published = DATA.get(data["use"]) or Published(data["train_count"], data["test_count"])
    examples = (published.train - (data.get("public") or 0)) / clients
    steps = math.ceil(examples / train["batch_size"]) * train["epochs"]
    client = steps * costs.step + examples * costs.score + costs.once + costs.upload
    total = rounds * (clients * client + published.test * costs.evaluate) / 3600
    return total, (
        f"{rounds} rounds x ({clients} clients x ({steps} steps x {costs.step:.3g} s + {examples:.0f} examples x "
        f"{costs.score:.2g} s + {costs.once:.2g} s + {costs.upload:.3g} s an upload) + {published.test} tests x "
        f"{costs.evaluate:.2g} s) = {total:.3g} h"
    )


def rows(settings: list[Setting]) -> Iterator[dict[str, str]]:
    """One row per setting, printed with its arithmetic as soon as it is ready."""
    measured: dict[str, Costs] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for setting in settings:
            if setting.name not in measured:
                measured[setting.name] = measure(setting, Path(temporary))
            costs = measured[setting.name]
            one, how = hours(RECIPES / setting.recipe, setting.sets, costs)
            files = list(setting.files())
            every = sum(hours(path, setting.sets, costs)[0] for path in files) * setting.runs
            runs = len(files) * setting.runs
            print(f"{setting.table}, {setting.name}: {how}; {runs} runs: {every:.3g} h", flush=True)
            yield {
                "table": setting.table,
                "recipe": f"`{setting.name}`",
                "parameters": f"{costs.parameters:,}",
                "encrypted": f"{costs.encrypted:.0%}" + (" (random images)" if costs.random else ""),
                "CPU s a step": _shown(costs.step),
                "CPU s an upload": _shown(costs.upload),
                "CPU h a run": _shown(one),
                "runs": str(runs),
                "CPU h in all": _shown(every),
            }


def _shown(amount: float) -> str:
    """Two significant digits, and all digits before the point."""
    return f"{amount:.2g}" if amount < 10 else f"{amount:,.0f}"


def main() -> int:
    """Prints the arithmetic; writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="rows whose table and recipe match, such as *sensecrypt*")
    parser.add_argument("--large", action="store_true", help="also what takes more than 15 GB of memory")
    parser.add_argument("--csv", type=Path, help="write the rows here")
    options = parser.parse_args()
    every = [one for one in settings() if options.large or not one.large]
    found = list(rows([one for one in every if fnmatch.fnmatch(f"{one.table} {one.name}", options.only)]))
    if options.csv and found:
        save(found, options.csv)
    return 0 if found else 1


def save(found: list[dict[str, str]], path: Path) -> None:
    """Writes the rows, and those that the file has of other settings, in the order of the settings."""
    kept: list[dict[str, str]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            kept = list(csv.DictReader(file))
    by_name = {(row["table"], row["recipe"]): row for row in [*kept, *found]}
    order = [(setting.table, f"`{setting.name}`") for setting in settings()]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(by_name[name] for name in order if name in by_name)


if __name__ == "__main__":
    sys.exit(main())

"""SenseCrypt's sensitivity vectors: the heat maps of its Fig. 11, 12 and 15, and of B and C (Fig. 13 and 14).

    FEDPLUG_DATA=... python benchmarks/sensitivity.py [--seeds 1 2 3] [--write docs/numbers/matrices]

Twenty clients in five categories of two classes each (App. E) train the paper's AlexNet for one round on Fashion-MNIST,
whose images have one channel: 124,300 scalars. For each pair of clients: the earth mover's distance (EMD) between their
labels, with the number of a class as its place, which gives the means that the paper prints under Fig. 10; the distance
between their unchanged sensitivity vectors, and between their directions; and that between vectors which are clipped
and noised by the formula of App. G, at epsilon 0.1 and 0.01. G is below all norms, so it does not matter.

B and C: the selection problem of the first client at a budget of 0.1 (App. F): how much is encrypted, how many bits of
the weights are left by the 64-bin estimate, and for how many seeds the budget suffices for the security level. `raw`
are the objectives as printed, `normalised` the default here. Mean over seeds.

With --write the CSV files of the docs are written; pairs of clients are those of the first seed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import itertools
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fedplug
import numpy as np
from fedplug import Client, Facts
from fedplug.recipe.recipe import Recipe
from fedplug_sensecrypt.affinity import distances
from fedplug_sensecrypt.clusters import Clusters, clip
from fedplug_sensecrypt.selection import Problem, solve
from fedplug_sensecrypt.sensitivity import Sensitivity
from numpy.typing import NDArray
from scipy.stats import spearmanr, wasserstein_distance

CLIENTS, CATEGORIES, ALPHA = 20, 5, 0.1
EPSILONS = (0.1, 0.01)
BS, CS = [round(1.0 + 0.1 * step, 1) for step in range(11)], [round(0.1 * step, 1) for step in range(1, 10)]
ALEXNET = {"use": "std.alexnet", "channels": [13, 39, 79, 54, 54], "hidden": [86, 86]}
Matrix = NDArray[np.float64]


@dataclasses.dataclass
class Found:
    """One client after its training: sensitivities and weights (P,), labels of its examples."""

    gamma: NDArray[np.float32]
    weights: NDArray[np.float32]
    labels: NDArray[Any]


def trained(seed: int) -> list[Found]:
    """All clients after one round of local training, in the order of their ids."""
    found: dict[int, Found] = {}
    original = Sensitivity.score_parameters

    def score(self: Sensitivity, client: Client, facts: Facts) -> NDArray[np.float32]:
        gamma: NDArray[np.float32] = original(self, client, facts)
        found[client.client_id] = Found(gamma, client.local.copy(), np.asarray(client.data.train.labels))
        return gamma

    with (
        patch.object(Sensitivity, "score_parameters", score),
        tempfile.TemporaryDirectory() as folder,
        contextlib.redirect_stdout(sys.stderr),  # only the tables are the output
    ):
        fedplug.run(recipe(seed), engine="local", device="cpu", output=folder, quiet=True)
    return [found[client_id] for client_id in range(CLIENTS)]


def recipe(seed: int) -> Recipe:
    """One round in which clients are scored and nothing is encrypted."""
    split = {"clients": CLIENTS, "partition": {"use": "std.categories", "categories": CATEGORIES}}
    return Recipe.from_plain(
        {
            "name": "sensitivity", "seed": seed, "rounds": 1, "min_clients": 3,
            "data": {"use": "std.fashion_mnist", "train_size": 6000, **split},
            "model": ALEXNET,
            "train": {"use": "std.sgd", "epochs": 1, "batch_size": 32, "lr": 0.05},
            "score_parameters": [{"use": "sensecrypt.sensitivity"}],
            "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
            "protect": {"clear": []}, "aggregate": {"use": "std.mean"},
        }
    )  # fmt: skip


# -- Fig. 11, 12 and 15 ------------------------------------------------------------------------------------------------


def label_distances(labels: Sequence[NDArray[Any]]) -> Matrix:
    """Earth mover's distance between the labels of each pair, in classes."""
    apart = np.zeros((len(labels), len(labels)))
    for i, j in itertools.combinations(range(len(labels)), 2):
        apart[i, j] = apart[j, i] = wasserstein_distance(labels[i], labels[j])
    return apart


def printed_means(clients: int = 10, classes: int = 10) -> list[float]:
    """The mean EMD of two clients with 10, 5, 2 and 1 classes of their category's own (under Fig. 10)."""
    means = []
    for categories in (1, 2, 5, 10):
        each = classes // categories
        labels = [np.arange(each) + each * (client * categories // clients) for client in range(clients)]
        apart = label_distances(labels)
        means.append(float(apart[np.triu_indices(clients, 1)].mean()))
    return means


def noised(vectors: Sequence[NDArray[np.float32]], epsilon: float, seed: int) -> Matrix:
    """Distances between vectors that are clipped and noised as Alg. 2 prints it, in units of G."""
    component = Clusters(Clusters.Options(epsilon=epsilon, calibration="classical"))
    norm, rng = component.options.norm or 1.0, np.random.default_rng([seed, round(1000 * epsilon)])
    sent = [clip(vector, norm) + component.stddev() * rng.standard_normal(len(vector)) for vector in vectors]
    return distances(sent) / norm


def contrast(apart: Matrix) -> tuple[float, float]:
    """Mean distance between categories over that within, and how far these differ in standard deviations."""
    category = np.repeat(np.arange(CATEGORIES), CLIENTS // CATEGORIES)
    upper = np.triu_indices(CLIENTS, 1)
    within = apart[upper][category[upper[0]] == category[upper[1]]]
    between = apart[upper][category[upper[0]] != category[upper[1]]]
    pooled = float(np.sqrt((within.var(ddof=1) + between.var(ddof=1)) / 2))
    return float(between.mean() / within.mean()), float((between.mean() - within.mean()) / pooled)


# -- Fig. 13 and 14 ----------------------------------------------------------------------------------------------------


def b_and_c(one: Found, *, raw: bool) -> dict[tuple[float, float], tuple[float, float, bool]]:
    """(B, C) -> share encrypted, bits left, whether the budget suffices for the security level."""
    cells = {}
    for b, c in itertools.product(BS, CS):
        selected = solve(one.gamma, Problem(ALPHA, b, c, raw=raw), one.weights)
        cells[b, c] = selected.count / len(one.gamma), selected.information, not selected.security_violated
    return cells


# -- all together ------------------------------------------------------------------------------------------------------


def write(folder: Path, name: str, rows: Sequence[dict[str, object]]) -> None:
    """A file of the docs."""
    with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> int:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the CSV files there")
    options = parser.parse_args()
    print("Mean EMD with 10, 5, 2, 1 classes:", ", ".join(f"{mean:.2f}" for mean in printed_means()))
    everyone = {seed: trained(seed) for seed in options.seeds}

    maps: dict[int, dict[str, Matrix]] = {}
    for seed, clients in everyone.items():
        vectors = [one.gamma for one in clients]
        maps[seed] = {"labels": label_distances([one.labels for one in clients]), "none": distances(vectors)}
        directions = [clip(vector, 1e-9) for vector in vectors]
        maps[seed]["directions"] = distances(directions) / 1e-9
        maps[seed] |= {f"{epsilon:g}": noised(vectors, epsilon, seed) for epsilon in EPSILONS}
    upper = np.triu_indices(CLIENTS, 1)
    print(
        "\n| vectors | between over within | apart, in standard deviations | rank correlation with EMD |\n"
        + "| --- " * 4
        + "|"
    )
    for name in ("labels", "none", "directions", *(f"{epsilon:g}" for epsilon in EPSILONS)):
        numbers = [
            (*contrast(of[name]), float(spearmanr(of[name][upper], of["labels"][upper]).statistic))
            for of in maps.values()
        ]
        print(f"| {name} | " + " | ".join(_pm(column) for column in zip(*numbers, strict=True)) + " |")

    grid = []
    kinds = {
        kind: [b_and_c(clients[0], raw=kind == "raw") for clients in everyone.values()]
        for kind in ("raw", "normalised")
    }
    for b, c in itertools.product(BS, CS):
        row: dict[str, object] = {"B": b, "C": c}
        for kind, cells in kinds.items():
            found = [cell[b, c] for cell in cells]
            row |= {f"{kind} encrypted": f"{statistics.mean(cell[0] for cell in found):.4f}",
                    f"{kind} bits": f"{statistics.mean(cell[1] for cell in found):.3f}"}  # fmt: skip
        row["feasible"] = sum(cell[2] for cell in found)
        grid.append(row)
    print("\n| " + " | ".join(grid[0]) + " |\n" + "| --- " * len(grid[0]) + "|")
    for row in grid:
        print("| " + " | ".join(map(str, row.values())) + " |")
    if options.write:
        first = maps[options.seeds[0]]
        names = {"labels": "EMD of labels", "none": "distance", "directions": "distance of directions",
                 **{f"{epsilon:g}": f"distance at epsilon {epsilon:g}" for epsilon in EPSILONS}}  # fmt: skip
        write(options.write, "sensecrypt-heatmaps", [
            {"client": i, "other": j, **{title: f"{first[name][i, j]:.4g}" for name, title in names.items()}}
            for i, j in itertools.combinations(range(CLIENTS), 2)
        ])  # fmt: skip
        write(options.write, "sensecrypt-b-and-c", grid)
    return 0


def _pm(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0:.2f}"


if __name__ == "__main__":
    sys.exit(main())

"""How accuracy depends on clients, epsilon and parameters, where the server learns nothing and the model is private.

    python benchmarks/both_wishes.py [--clients 30 100 300 1000 3000] [--epsilon 1 2 6] [--norms 0.3 1] [--out FILE]

MNIST, split evenly. Clients clip and share the noise out; sums are opened by a key server (`std.bfv`), which takes less
time than masks with neighbours and adds up the same values, so accuracy and epsilon are those of `secagg.plus`. Of two
clipping norms the better is kept, which a real run would have to choose in advance. One seed. A row that is in the file
is not run again.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fedplug
from fedplug_ledger.accounting import gaussian_noise_multiplier

ALL = 60_000
DELTA, NORMS, MANY = 1e-5, (0.3, 1.0), 300
_FEW = {"model": "std.logistic", "epochs": 5, "batch": ALL, "rounds": 12, "momentum": 0.6}
_MANY = {"data": {"use": "std.mnist"}, "epochs": 8, "batch": 20, "lr": 0.1, "rounds": 12, "momentum": 0.6}
_PUBLIC = {
    "use": "features.whitening", "length": 5, "fitted_on": "std.fashion_mnist",
    "of": {"use": "features.scattering", "of": "std.mnist"},
}  # fmt: skip
_OF_PUBLIC = {"model": "std.logistic", "epochs": 8, "batch": ALL, "lr": 4, "rounds": 20, "momentum": 0.8}
MODELS: dict[str, dict[str, Any]] = {
    "public features, linear": {**_OF_PUBLIC, "data": _PUBLIC},
    "features, linear": {**_FEW, "data": {"use": "std.mnist", "features": "oriented_gradients"}, "lr": 0.5},
    "pixels, linear": {**_FEW, "data": {"use": "std.mnist"}, "lr": 0.1},
    "pixels, MLP 32": {**_MANY, "model": {"use": "std.mlp", "hidden": [32]}},
    "pixels, MLP 128": {**_MANY, "model": {"use": "std.mlp", "hidden": [128]}},
}
COLUMNS = ["model", "parameters", "clients", "epsilon asked", "epsilon", "norm", "accuracy"]


def recipe(kind: dict[str, Any], clients: int, epsilon: float, norm: float) -> dict[str, Any]:
    """The protocol of `recipes/secagg-distributed-dp.yaml` under encryption, with all clients in every sum."""
    momentum = {"use": "std.fedopt", "optimiser": "momentum", "beta1": kind["momentum"], "lr": 1.0}
    batch = min(kind["batch"], ALL // clients)
    # Noise costs with the root of the weights, and more clients leave less of it.
    size = {"size": 200 if clients < MANY else 500} if kind["data"] is _PUBLIC else {}
    # The range is thirteen standard deviations of one client's share, so no noise saturates. More means coarser steps.
    reach = norm * (1 + 13 * gaussian_noise_multiplier(epsilon, DELTA) * math.sqrt(kind["rounds"] / (clients - 1)))
    return {
        "name": "both-wishes",
        "seed": 1,
        "rounds": kind["rounds"],
        "min_clients": clients,
        "data": {**kind["data"], **size, "clients": clients, "partition": "std.iid"},
        "model": kind["model"],
        "train": {"use": "std.sgd", "epochs": kind["epochs"], "batch_size": batch, "lr": kind["lr"]},
        "negotiate_mask": {"use": "std.single_zone", "zone": "encrypted"},
        "protect": {
            "encrypted": [
                {"use": "std.clip", "norm": norm},
                {"use": "std.distributed_gaussian", "epsilon": epsilon, "delta": DELTA},
                {"use": "std.bfv", "key_holder": "key_server", "range": reach},
            ]
        },
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
        "postprocess": {"encrypted": ["std.bfv", momentum]},
    }


def measure(name: str, clients: int, epsilon: float, norms: Sequence[float]) -> dict[str, Any]:
    """One row: the better of several norms."""
    rows = []
    for norm in norms:
        with TemporaryDirectory() as folder:
            settings = fedplug.Settings(output=Path(folder))
            run = fedplug.run(recipe(MODELS[name], clients, epsilon, norm), settings=settings, display="lines")
            server = next(line for line in run.ledger.verdict.lines if line.party == "server")
            rows.append(
                {
                    "model": name, "parameters": run.summary.parameters, "clients": clients, "epsilon asked": epsilon,
                    "epsilon": f"{server.epsilon:.2f}", "norm": norm, "accuracy": f"{run.metrics[-1].accuracy:.3f}",
                }
            )  # fmt: skip
    return max(rows, key=lambda row: float(row["accuracy"]))


def main() -> None:
    """Runs the rows that are not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[30, 100, 300, 1000, 3000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1, 2, 6])
    parser.add_argument("--norms", type=float, nargs="+", default=NORMS)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--out", type=Path, default=Path("docs/numbers/both-wishes.csv"))
    chosen = parser.parse_args()
    done = list(csv.DictReader(chosen.out.open())) if chosen.out.exists() else []
    for name, clients, epsilon in itertools.product(chosen.models, chosen.clients, chosen.epsilon):
        key = (name, str(clients), f"{epsilon:g}")
        if any((row["model"], row["clients"], row["epsilon asked"]) == key for row in done):
            continue
        row = measure(name, clients, epsilon, chosen.norms)
        done.append(row | {"clients": clients, "epsilon asked": f"{epsilon:g}"})
        with chosen.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(done)


if __name__ == "__main__":
    main()

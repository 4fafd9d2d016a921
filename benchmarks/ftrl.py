"""Noise that is correlated over rounds and independent noise, at one epsilon, where cohorts are not sampled.

    python benchmarks/ftrl.py [--seeds 1] [--csv docs/numbers/ftrl.csv]

MNIST, 1,000 clients of 60 digits, of which 100 take part in each of 40 rounds, in turn: each client in four rounds, ten
apart. A linear model, client-level epsilon at delta 1e-5 for the released model, add-or-remove. With `secret coins` the
same number of clients is drawn by secret coins: of all, or of 4 cohorts that take turns. `noise in the model` is the
standard deviation of the noise in the sum of all rounds over the clipping norm, `accuracy` the mean of the last five
rounds over the seeds.
Data: FEDPLUG_DATA. About eight minutes of processor time a seed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import fedplug
from fedplug_ledger.accounting import first_that_holds
from fedplug_std.accountants import Pld
from fedplug_std.correlated import CorrelatedGaussian

ROUNDS, TURNS, DELTA, NORM = 40, 10, 1e-5, 1.0
EPSILONS = (1.0, 4.0)
NOISES: dict[str, dict[str, Any]] = {
    "independent": {"factor": "identity"},
    "square root, 10 bands": {"factor": "square_root"},
    "BandMF, 10 bands": {"factor": "banded"},
    "BLT, 1 buffer": {"factor": "blt", "buffers": 1},
    "BLT, 3 buffers": {"factor": "blt", "buffers": 3},
    "tree": {"factor": "tree"},
    "secret coins": {"factor": "identity", "separation": 1},
    "secret coins, BandMF, 4 bands": {"factor": "banded", "separation": 4},
}
"""By name: the options in which noise differs; with a separation of their own, coins are tossed."""


def recipe(name: str, epsilon: float) -> dict[str, Any]:
    """A run with this noise."""
    common = {
        "name": "ftrl", "rounds": ROUNDS, "min_clients": 10, "delta": DELTA,
        "data": {"use": "std.mnist", "clients": 1000, "partition": {"use": "std.iid"}},
        "model": {"use": "std.logistic"},
        "train": {"use": "std.sgd", "epochs": 1, "batch_size": 20, "lr": 0.1},
        "negotiate_mask": {"use": "std.single_zone", "zone": "noised"},
        "protect": {"noised": [{"use": "std.clip", "norm": NORM}]},
        "aggregate": {"use": "std.mean", "weighting": "uniform"},
    }  # fmt: skip
    noise = options(name, epsilon)
    sampling: dict[str, Any] = {"scheme": "cyclic", "rate": 1 / TURNS}
    if "separation" in NOISES[name]:
        sampling = {"scheme": "poisson", "rate": 1 / TURNS, "separation": noise["separation"]}
        common["accountant"] = {"use": "std.pld"}
    return common | {"sampling": sampling, "postprocess": {"noised": [{"use": "std.correlated_gaussian"} | noise]}}


def options(name: str, epsilon: float) -> dict[str, Any]:
    """The options of the noise."""
    noise: dict[str, Any] = {"norm": NORM, "separation": TURNS} | NOISES[name]
    if "separation" not in NOISES[name]:
        return noise | {"epsilon": epsilon, "delta": DELTA}
    # A client pays for the columns of C of length 1 whose coins fell: one in `separation` rounds may.
    times = math.ceil(ROUNDS / noise["separation"])
    return noise | {"noise_multiplier": sampled(epsilon, noise["separation"] / TURNS, times) / math.sqrt(times)}


@functools.cache
def sampled(epsilon: float, rate: float, times: int) -> float:
    """The multiplier of each of so many releases that gives epsilon where coins fall at this rate, to three digits."""
    accountant = Pld(Pld.Options())

    def holds(multiplier: float) -> bool:
        releases = [("gaussian", multiplier, rate, times)]
        return accountant.compose(releases, DELTA, "zero_out")["pld"] <= epsilon

    steps = first_that_holds(lambda steps: holds(math.ceil(steps) / 1000), 300, 8000)
    return math.ceil(steps) / 1000


def error(name: str, epsilon: float) -> float:
    """Standard deviation of the noise in the sum of all rounds, over the clipping norm."""
    chosen = CorrelatedGaussian.Options(**options(name, epsilon))
    return chosen.std(ROUNDS) * float(chosen.made(ROUNDS).errors()[-1])


def main() -> None:
    """Runs all, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    chosen = parser.parse_args()
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow(["noise", "epsilon", "noise in the model", "accuracy", "accuracy sd"])
        for epsilon in EPSILONS:
            for name in NOISES:
                found = [outcome(recipe(name, epsilon), seed) for seed in chosen.seeds]
                accuracies = [accuracy for accuracy, _ in found]
                spread = f"{statistics.stdev(accuracies):.3f}" if len(found) > 1 else ""
                stated = max(spent for _, spent in found)
                writer.writerow([
                    name, f"{stated:.2f}", f"{error(name, epsilon):.1f}", f"{statistics.mean(accuracies):.3f}", spread
                ])
                to.flush()


def outcome(plain: dict[str, Any], seed: int) -> tuple[float, float]:
    """Accuracy over the last five rounds, and epsilon of the released model; the folder is deleted."""
    with tempfile.TemporaryDirectory() as folder:
        run = fedplug.run(plain | {"seed": seed}, output=folder, quiet=True, muted=["lab.report"])
        last = [row.accuracy for row in run.metrics[-5:] if row.accuracy is not None]
        return statistics.mean(last), run.ledger.views["released_model"].epsilon or math.inf


if __name__ == "__main__":
    main()

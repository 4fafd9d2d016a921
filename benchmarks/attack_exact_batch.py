"""Whole batches behind a first fully connected layer: how many images are exact, with a part of the gradient hidden.

    python benchmarks/attack_exact_batch.py [--targets 10] [--batches 8 24] [--csv docs/numbers/attack-exact-batch.csv]

MNIST, an untrained perceptron of WIDTH and 128 units with ReLU, the gradient of one batch, in the clear or with the
largest 30% or 50% or a random 50% of all its entries hidden; other images, weights and masks for each target. An image
is exact where its mean squared error is below 1e-6 (of [0, 1]). `exact_batch` itself states which images are:
`called exact` counts them, and `wrongly` those that are not. `linear_leak` gets the same. `an afternoon` is the
low-rank completion with sparse directions that issue 32 compares with, on other images. Seconds are of the processor,
of one target, median.
With --csv, existing rows of the file are kept and not repeated, so that a stopped run continues.
Data: FEDPLUG_DATA.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fedplug import Facts
from fedplug.api.data import Examples
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.truth import wilson
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.exact_batch import ExactBatch
from fedplug_attacks.linear_leak import LinearLeak
from fedplug_std.datasets import Mnist
from fedplug_std.models import Mlp
from fedplug_std.torch_model import to_tensor
from threadpoolctl import threadpool_limits
from torch import nn

BATCHES, WIDTHS = (8, 12, 16, 24), (256, 512)
HIDDEN = {"nothing": 0.0, "largest 30%": 0.3, "largest 50%": 0.5, "random 50%": 0.5}
AFTERNOON = {
    (8, "largest 30%"): "48 of 48", (8, "largest 50%"): "42 of 48", (8, "random 50%"): "48 of 48",
    (12, "largest 30%"): "36 of 36", (12, "largest 50%"): "15 of 36", (12, "random 50%"): "36 of 36",
    (16, "largest 30%"): "12 of 32", (16, "largest 50%"): "12 of 32", (16, "random 50%"): "13 of 32",
}  # fmt: skip
"""Of a width of 256."""
HEAD = [
    "batch", "width", "hidden", "images", "exact", "95%", "whole batches", "called exact", "wrongly", "seconds",
    "linear_leak", "an afternoon",
]  # fmt: skip
EXACT = 1e-6


def target(train: Any, batch: int, width: int, hidden: str, seed: int) -> tuple[View, Attacker, np.ndarray]:
    """The server's view of one batch, and the hidden images; (B, 784)."""
    rng = np.random.default_rng([seed, batch, width, list(HIDDEN).index(hidden)])
    examples: Examples = train.train.take(np.sort(rng.choice(len(train.train), batch, replace=False)))
    model = Mlp(Mlp.Options(hidden=(width, 128))).build(train.shape, 10, int(rng.integers(2**31)), "cpu")
    inputs = to_tensor(examples.inputs, train.mean, train.std)
    loss = nn.functional.cross_entropy(model.module(inputs), torch.from_numpy(examples.labels.astype(np.int64)))
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    scores = rng.random(len(gradient)) if hidden.startswith("random") else np.abs(gradient)
    away = np.zeros(len(gradient), bool)
    away[np.argsort(-scores)[: int(HIDDEN[hidden] * len(gradient))]] = True
    seen = all_clear(0, 0, model.layout, -gradient, Meaning(lr=1.0, steps=1, examples=batch), away)
    view = View(
        "server", update=seen, vector=model.get_vector(), model=model, num_classes=10, shape=train.shape,
        mean=train.mean, std=train.std, seed=int(rng.integers(2**31)),
    )  # fmt: skip
    attacker = Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, ""))
    return view, attacker, examples.inputs.reshape(batch, -1).astype(np.float64) / 255


def exact_of(images: np.ndarray | None, true: np.ndarray) -> int:
    """The number of true images that equal some found one."""
    if images is None:
        return 0
    found = images.reshape(len(images), -1).astype(np.float64)
    return int((((true[:, None] - found[None]) ** 2).mean(2).min(1) < EXACT).sum())


def row(train: Any, batch: int, width: int, hidden: str, targets: int) -> list[object]:
    """All targets of a row of the table."""
    exact, leaked, called, wrongly, seconds = [], [], 0, 0, []
    for seed in range(targets):
        view, attacker, true = target(train, batch, width, hidden, seed)
        start = time.process_time()
        report = ExactBatch(ExactBatch.Options()).attack(view, attacker)
        seconds.append(time.process_time() - start)
        exact.append(exact_of(report.images, true))
        said = int(report.metrics.get("exact", 0))
        called, wrongly = called + said, wrongly + max(0, said - exact[-1])
        leaked.append(exact_of(LinearLeak(LinearLeak.Options()).attack(view, attacker).images, true))
    images, hits = batch * targets, sum(exact)
    low, high = wilson(hits, images)
    return [
        batch, width, hidden, images, hits, f"{low:.0%} to {high:.0%}", f"{exact.count(batch)} of {targets}", called,
        wrongly, f"{statistics.median(seconds):.1f}", sum(leaked), AFTERNOON.get((batch, hidden), "") * (width == 256),
    ]  # fmt: skip


def main() -> None:
    """Makes the rows that are missing, and prints or writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--batches", type=int, nargs="+", default=list(BATCHES))
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--hidden", nargs="+", choices=list(HIDDEN), default=list(HIDDEN))
    parser.add_argument("--csv", type=Path, help="write the table here as well")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's threads would wait for each other, in loops that take the time of a core
    kept: dict[tuple[str, ...], list[str]] = {}
    if chosen.csv and chosen.csv.is_file():
        with chosen.csv.open(encoding="utf-8", newline="") as file:
            kept = {tuple(each[:3]): each for each in list(csv.reader(file))[1:]}
    train = Mnist(Mnist.Options()).load(os.environ["FEDPLUG_DATA"])
    printed = csv.writer(sys.stdout, lineterminator="\n")
    printed.writerow(HEAD)
    for width in chosen.widths:
        for batch in chosen.batches:
            for hidden in chosen.hidden:
                key = (str(batch), str(width), hidden)
                if key not in kept:
                    kept[key] = [str(cell) for cell in row(train, batch, width, hidden, chosen.targets)]
                printed.writerow(kept[key])
                sys.stdout.flush()
                if chosen.csv:
                    write(chosen.csv, kept)


def write(path: Path, rows: dict[tuple[str, ...], list[str]]) -> None:
    """The table, narrow layers and small batches first."""
    order = {key: (int(key[1]), int(key[0]), list(HIDDEN).index(key[2])) for key in rows}
    with path.open("w", encoding="utf-8", newline="") as file:
        table = [HEAD, *(rows[key] for key in sorted(rows, key=order.__getitem__))]
        csv.writer(file, lineterminator="\n").writerows(table)


if __name__ == "__main__":
    main()

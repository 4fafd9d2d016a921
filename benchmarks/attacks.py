"""Images from the gradient of one batch: `attacks.inverting` and `attacks.dlg` next to those of breaching 0.1.2.

    python benchmarks/attacks.py [--peer-python /path/to/breaching/bin/python] [--targets 10] [--csv FILE]

8 x 8 digits; fresh images, weights and noise for each target. Both sides get the same gradients and the same random
starts. `inverting` and `invertinggradients` make as many iterations of Adam on the sign with the same total variation;
`dlg` and `deepleakage` as many outer steps of L-BFGS at most, and ours stops earlier where it has fitted the gradient.
breaching gets the labels, which ours infers. It knows no mask, so hidden entries are 0 for it. Noise has 0.1 times the
standard deviation of the gradient's entries, and ours is told so, as by a recipe. `dB` is the mean peak
signal-to-noise ratio of a target's images, each paired with the one it fits best: medians over targets, with the 95%
interval from order statistics (of ten targets the second and the ninth value); of 100 dB at most. `found` counts images
above 20 dB. Seconds are CPU seconds of a target, median, one thread. With --csv, existing rows of the file are kept and
not repeated, so that a stopped run continues.
breaching is not a dependency: `pip install breaching==0.1.2` in a separate environment.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fedplug import Dataset, Facts, stream
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.matching import Dlg, InvertingGradients
from fedplug_std.datasets import Digits
from fedplug_std.models import LeNet5, Mlp
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits
from torch import nn

PROGRAM = Path(__file__).resolve().parent / "peer_programs" / "breaching_single.py"
ITERATIONS, TV = {"inverting": 400, "dlg": 100}, 1e-3
PEERS = {"inverting": "invertinggradients", "dlg": "deepleakage"}
SEEN = {"all": (0.0, 0.0), "largest 30% hidden": (0.3, 0.0), "noise": (0.0, 0.1)}
"""Share that is hidden, and noise in standard deviations of the gradient."""
HEAD = ["model", "batch", "seen", "attack", "dB", "found", "iterations", "seconds"]


@dataclasses.dataclass(frozen=True)
class Row:
    """The target, and the attack."""

    network: str
    batch: int
    seen: str
    attack: str


NETWORKS = {"perceptron": "inverting", "convolutions": "inverting", "LeNet, sigmoid": "dlg"}
ROWS = [Row(net, batch, seen, attack) for net, attack in NETWORKS.items() for batch in (1, 4) for seen in SEEN]


@dataclasses.dataclass(frozen=True)
class Target:
    """A view of one gradient, and the truth."""

    view: View
    inputs: NDArray[np.uint8]
    labels: torch.Tensor


def network(name: str, seed: int) -> TorchModel:
    """For 8 x 8 grey images."""
    if name == "perceptron":
        return Mlp(Mlp.Options(hidden=(128, 64))).build((1, 8, 8), 10, seed, "cpu")
    if name == "LeNet, sigmoid":
        return LeNet5(LeNet5.Options(variant="dlg", activation="sigmoid")).build((1, 8, 8), 10, seed, "cpu")
    with seeded(seed):
        return TorchModel(nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(512, 10),
        ))  # fmt: skip


def target(row: Row, seed: int, data: Dataset) -> Target:
    """A gradient of images and weights that no other target has."""
    rng = stream(seed, "benchmarks.attacks", ROWS.index(row))
    batch = data.train.take(rng.permutation(len(data.train))[: row.batch])
    model = network(row.network, int(rng.integers(2**31)))
    labels = torch.from_numpy(batch.labels.astype(np.int64))
    loss = nn.functional.cross_entropy(model.module(to_tensor(batch.inputs, data.mean, data.std)), labels)
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    share, noise = SEEN[row.seen]
    sigma = noise * float(gradient.std())
    gradient = gradient + rng.normal(0, sigma, gradient.shape).astype(np.float32)
    hidden = np.zeros(len(gradient), bool)
    hidden[np.argsort(-np.abs(gradient))[: int(share * len(gradient))]] = True
    meaning = Meaning(lr=1.0, steps=1, batch_size=row.batch, examples=row.batch)
    seen = all_clear(0, 0, model.layout, -gradient, meaning, hidden, sigma)
    view = View(
        "server", target=0, update=seen, vector=model.get_vector(), model=model, num_classes=10, shape=(1, 8, 8),
        mean=data.mean, std=data.std, seed=seed,
    )  # fmt: skip
    return Target(view, batch.inputs, labels)


def ours(row: Row, found: Target) -> tuple[NDArray[np.float32], float]:
    """Images in [0, 1], and CPU seconds."""
    view = found.view
    assert view.update is not None
    attacker = Attacker(facts=Facts(0, 1, view.update.layout, (), 1, 1, 0, ""))
    steps = ITERATIONS[row.attack]
    attack: Any = (
        Dlg(Dlg.Options(iterations=steps, restarts=1)) if row.attack == "dlg"
        else InvertingGradients(InvertingGradients.Options(iterations=steps, tv=TV))
    )  # fmt: skip
    began = time.process_time()
    report = attack.attack(view, attacker)
    seconds = time.process_time() - began
    return (np.zeros(found.inputs.shape, np.float32) if report.images is None else report.images), seconds


def peers(python: Path, row: Row, targets: Sequence[Target]) -> list[tuple[Any, float]]:
    """The images that breaching recovers, in [0, 1], and CPU seconds, for each target."""
    work = []
    for each in targets:
        view = each.view
        start = stream(view.seed, f"attacks.{row.attack}", 0).standard_normal((row.batch, *view.shape))
        work.append({
            "module": view.model.module, "gradient": torch.from_numpy(-view.update.dense(0.0)), "mean": view.mean,  # type: ignore[union-attr]
            "std": view.std, "labels": each.labels, "start": torch.from_numpy(start).float(),
        })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        given = {"targets": work, "attack": row.attack, "iterations": ITERATIONS[row.attack], "tv": TV}
        torch.save(given, Path(folder) / "targets.pt")
        subprocess.run([str(python), str(PROGRAM), folder], check=True, env={"OMP_NUM_THREADS": "1"})
        found = torch.load(Path(folder) / "found.pt", weights_only=False)
    shape = (1, -1, 1, 1)
    return [
        (np.clip(images * np.reshape(each.view.std, shape) + np.reshape(each.view.mean, shape), 0, 1), seconds)
        for each, (images, seconds) in zip(targets, found, strict=True)
    ]


def decibels(images: Any, inputs: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Of each true image, its peak signal-to-noise ratio in the pairing that fits best."""
    errors = np.square(np.nan_to_num(images)[:, None] - inputs[None] / 255.0).mean((2, 3, 4))
    rows, columns = linear_sum_assignment(errors)
    return np.asarray(-10 * np.log10(np.maximum(errors[rows, columns], 1e-10)))


def middle(values: Sequence[float]) -> str:
    """Median and the interval of order statistics that holds it with at least 95%."""
    ordered, count = sorted(values), len(values)
    tail, skip = 0.5**count, 0
    while skip + 1 < count // 2 and 2 * (tail := tail + 0.5**count * math.comb(count, skip + 1)) <= 0.05:
        skip += 1
    return f"{statistics.median(ordered):.1f} ({ordered[skip]:.1f} to {ordered[-1 - skip]:.1f})"


def main() -> None:
    """Makes the rows that are missing, and prints or writes them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", type=Path, help="of an environment with breaching 0.1.2; without: no peer")
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--csv", type=Path, help="write the table here as well")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's threads would wait for each other, in loops that take the time of a core
    data = Digits(Digits.Options()).load(None)
    if chosen.peer_python is None:
        print("breaching is left out: no --peer-python names an environment that has it", file=sys.stderr)
    lines: dict[tuple[str, ...], list[str]] = {}
    if chosen.csv and chosen.csv.is_file():
        with chosen.csv.open(encoding="utf-8", newline="") as file:
            lines = {tuple(line[:4]): line for line in list(csv.reader(file))[1:]}
    print(*HEAD, sep="\t")
    for row in ROWS:
        if row.network not in chosen.networks:
            continue
        systems = {f"`attacks.{row.attack}`": None, f"breaching `{PEERS[row.attack]}`": chosen.peer_python}
        for system, python in systems.items():
            key = (row.network, str(row.batch), row.seen, system)
            if key not in lines:
                if python is None and system.startswith("breaching"):
                    continue
                targets = [target(row, seed, data) for seed in range(1, chosen.targets + 1)]
                found = [ours(row, each) for each in targets] if python is None else peers(python, row, targets)
                lines[key] = [*key, *summed(row, targets, found)]
            print(*lines[key], sep="\t", flush=True)
            if chosen.csv:
                write(chosen.csv, lines)


def summed(row: Row, targets: Sequence[Target], found: Sequence[tuple[Any, float]]) -> list[str]:
    """The numbers of one attack on all targets of a row."""
    scores = [decibels(images, each.inputs) for (images, _), each in zip(found, targets, strict=True)]
    hits = sum(int((score > 20).sum()) for score in scores)
    seconds = statistics.median(seconds for _, seconds in found)
    return [
        middle([float(score.mean()) for score in scores]), f"{hits} of {row.batch * len(targets)}",
        str(ITERATIONS[row.attack]), f"{seconds:.1f}",
    ]  # fmt: skip


def write(path: Path, lines: dict[tuple[str, ...], list[str]]) -> None:
    """The table, in the order of the rows."""
    places: dict[tuple[str, ...], int] = {(row.network, str(row.batch), row.seen): n for n, row in enumerate(ROWS)}
    with path.open("w", encoding="utf-8", newline="") as file:
        table = [HEAD, *(lines[key] for key in sorted(lines, key=lambda key: (places[key[:3]], key[3][0] != "`")))]
        csv.writer(file, lineterminator="\n").writerows(table)


if __name__ == "__main__":
    main()

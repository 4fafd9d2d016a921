"""Images from updates of several local steps: `attacks.inverting`, which repeats the steps, next to breaching.

    python benchmarks/attack_local_steps.py [--peer-python /path/to/breaching/bin/python] [--rows ...] [--csv FILE]

8 x 8 digits, a small convolutional network, updates of `std.sgd`; ten fresh targets per row, each with its own images,
weights and order of batches. Both attacks get the same updates, the same random starts, as many iterations of Adam on
the sign with the same rates, and the same weight of the total variation. breaching 0.1.2 gets the labels, and where
there are batches the labels of each. Ours infers both. `estimate` is our earlier version: the update is taken as steps
x lr times one gradient.

`dB` is the mean peak signal-to-noise ratio of a target's images, each paired with the one it fits best. `found` counts
images of more than 20 dB. Medians over targets, in brackets their 95% interval from order statistics (of ten targets
the second and the ninth value). Seconds are CPU seconds of a target, median, one thread.
breaching is not a dependency: `pip install breaching==0.1.2` in a separate environment.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fedplug import Client, ClientData, Dataset, Facts, stream
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.matching import InvertingGradients
from fedplug_std.datasets import Digits
from fedplug_std.torch_model import TorchModel, seeded
from fedplug_std.training import Sgd
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

PROGRAM = Path(__file__).resolve().parent / "peer_programs" / "breaching_steps.py"


@dataclasses.dataclass(frozen=True)
class Row:
    """A client's work between two rounds."""

    images: int
    batch_size: int
    epochs: int
    lr: float

    @property
    def steps(self) -> int:
        """Their number."""
        return self.epochs * -(-self.images // self.batch_size)


ROWS = {
    "1 image, 5 steps": Row(1, 1, 5, 0.1),
    "2 images, 5 full-batch steps": Row(2, 2, 5, 0.1),
    "4 images, 5 full-batch steps": Row(4, 4, 5, 0.1),
    "4 images, 2 epochs of 2 batches": Row(4, 2, 2, 0.1),
    "8 images, 2 epochs of 2 batches": Row(8, 4, 2, 0.1),
}


class Ordered(Sgd):
    """Plain SGD that notes the labels of its batches for breaching."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.labels: list[torch.Tensor] = []

    def batches(self, client: Any, model: Any, rng: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Those of the base class."""
        for inputs, labels in super().batches(client, model, rng):
            self.labels.append(labels)
            yield inputs, labels


@dataclasses.dataclass(frozen=True)
class Target:
    """One client's update, and the truth."""

    view: View
    inputs: NDArray[np.uint8]
    labels_of_steps: list[torch.Tensor]


def network(seed: int) -> torch.nn.Module:
    """Two convolutions and a linear layer, for 8 x 8 grey images."""
    with seeded(seed):
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, stride=2, padding=1),
            torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(512, 10),
        )  # fmt: skip


def target(row: Row, seed: int, data: Dataset) -> Target:
    """An update of a client with its own images, from its own model."""
    chosen = stream(seed, "attack_local_steps").permutation(len(data.train))[: row.images]
    own = data.train.take(chosen)
    model = TorchModel(network(seed))
    start = model.get_vector()
    trainer = Ordered(Ordered.Options(epochs=row.epochs, batch_size=row.batch_size, lr=row.lr))
    trainer.name = "train"
    client = Client(client_id=0, model=model, data=ClientData(own, own, own, **data.about))
    client.facts = Facts(0, 1, model.layout, (), 1, 1, seed, "")
    trainer.train(client, client.facts)
    update = model.moved_from(start).copy()
    model.set_vector(start)
    meaning = Meaning(
        lr=row.lr, steps=row.steps, batch_size=row.batch_size, examples=row.images, epochs=row.epochs,
    )  # fmt: skip
    seen = View(
        "server", target=0, update=all_clear(0, 0, model.layout, update, meaning), vector=start, model=model,
        num_classes=10, shape=own.inputs.shape[1:], mean=data.mean, std=data.std, seed=seed,
    )  # fmt: skip
    return Target(seen, own.inputs, trainer.labels)


def ours(found: Target, iterations: int, tv: float, unroll: bool = True) -> tuple[NDArray[np.float32], float]:
    """Images in [0, 1], and CPU seconds."""
    view = found.view
    assert view.update is not None
    layout = view.update.layout
    if not unroll:  # one gradient, as for an attacker that knows only its length
        view = dataclasses.replace(view, update=view.update.as_gradient(view.vector))
    attacker = Attacker(facts=Facts(0, 1, layout, (), 1, 1, 0, ""))
    began = time.process_time()
    report = InvertingGradients(InvertingGradients.Options(iterations=iterations, tv=tv)).attack(view, attacker)
    seconds = time.process_time() - began
    if report.images is None:
        return np.zeros(found.inputs.shape, np.float32), seconds
    return report.images, seconds


def peers(python: Path, row: Row, targets: Sequence[Target], iterations: int, tv: float) -> list[tuple[Any, float]]:
    """The images that breaching recovers, in [0, 1], and CPU seconds of each target."""
    work = []
    for each in targets:
        view, per_epoch = each.view, -(-row.images // row.batch_size)
        mine = each.labels_of_steps[:per_epoch]  # it repeats the batches of the first epoch
        start = stream(view.seed, "attacks.inverting", 0).standard_normal((row.images, *view.shape))
        work.append({
            "module": view.model.module, "update": torch.from_numpy(view.update.dense(0.0)), "mean": view.mean,  # type: ignore[union-attr]
            "std": view.std, "lr": row.lr, "steps": row.steps, "data_per_step": row.batch_size,
            "labels": torch.cat(mine), "labels_of_steps": mine * row.epochs, "start": torch.from_numpy(start).float(),
        })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        torch.save({"targets": work, "iterations": iterations, "tv": tv}, Path(folder) / "targets.pt")
        subprocess.run([str(python), str(PROGRAM), folder], check=True, env={"OMP_NUM_THREADS": "1"})
        found = torch.load(Path(folder) / "found.pt", weights_only=False)
    result = []
    for each, (images, seconds) in zip(targets, found, strict=True):
        shape = (1, -1, 1, 1)
        pixels = images * np.reshape(each.view.std, shape) + np.reshape(each.view.mean, shape)
        result.append((np.clip(pixels, 0, 1), seconds))
    return result


def decibels(images: Any, inputs: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Of each true image, its peak signal-to-noise ratio in the pairing that fits best."""
    errors = np.square(images[:, None] - inputs[None] / 255.0).mean((2, 3, 4))
    rows, columns = linear_sum_assignment(errors)
    return np.asarray(-10 * np.log10(np.maximum(errors[rows, columns], 1e-12)))


def middle(values: Sequence[float]) -> str:
    """Median and the interval of order statistics that holds it with at least 95%."""
    ordered, count = sorted(values), len(values)
    tail, skip = 0.5**count, 0
    while skip + 1 < count // 2 and 2 * (tail := tail + 0.5**count * math.comb(count, skip + 1)) <= 0.05:
        skip += 1
    return f"{statistics.median(ordered):.1f} ({ordered[skip]:.1f} to {ordered[-1 - skip]:.1f})"


def main() -> None:
    """Runs the rows, and prints or writes the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", type=Path, help="of an environment with breaching 0.1.2; without: no peer")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 11)))
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--tv", type=float, default=1e-3)
    parser.add_argument("--csv", type=Path, help="write the table here, in place of printing it")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    threadpool_limits(1)  # NumPy's threads would wait for each other, in loops that take the time of a core
    data = Digits(Digits.Options()).load(None)
    if chosen.peer_python is None:
        print("breaching is left out: no --peer-python names an environment that has it", file=sys.stderr)
    print(f"{chosen.iterations} iterations, tv {chosen.tv}, seeds {chosen.seeds}", file=sys.stderr)
    lines = []
    for name in chosen.rows:
        row = ROWS[name]
        targets = [target(row, seed, data) for seed in chosen.seeds]
        systems: dict[str, list[tuple[Any, float]]] = {
            "estimate": [ours(each, chosen.iterations, chosen.tv, unroll=False) for each in targets],
            "fedplug": [ours(each, chosen.iterations, chosen.tv) for each in targets],
        }
        if chosen.peer_python is not None:
            systems["breaching"] = peers(chosen.peer_python, row, targets, chosen.iterations, chosen.tv)
        for system, found in systems.items():
            scores = [decibels(images, each.inputs) for (images, _), each in zip(found, targets, strict=True)]
            hits = sum(int((score > 20).sum()) for score in scores)
            decibel = middle([float(score.mean()) for score in scores])
            lines.append([
                name, system, decibel, f"{hits} of {row.images * len(targets)}",
                f"{statistics.median(seconds for _, seconds in found):.1f}",
            ])  # fmt: skip
            print(*lines[-1], sep="\t", file=sys.stderr, flush=True)
    with chosen.csv.open("w", encoding="utf-8", newline="") if chosen.csv else contextlib.nullcontext(sys.stdout) as to:
        writer = csv.writer(to, lineterminator="\n")
        writer.writerow(["a client's update", "attack", "dB", "found", "seconds"])
        writer.writerows(lines)


if __name__ == "__main__":
    main()

"""Images behind noisy gradients, with and without a prior from public examples, and labels that inversion finds itself.

    python benchmarks/attack_priors.py [--targets 12] [--folder docs/numbers]

One image behind a gradient with noise of 0.1 to 100 times the gradient's root mean square, known to the attacker; 200
public images. `attacks.inverting` (200 steps) on two convolutions with ReLU, `attacks.linear_leak` on a perceptron
(128); chest X-rays of 32 pixels and digits of 8. Each target has its own image, model and noise. Numbers are PSNR in
dB, medians over targets with the interval between order statistics that has the median with 95% (binomial).

Labels: batches of 8, the largest 30% of the entries hidden; in how many targets all counts of classes are right, by the
bias and the signs of rows (what inversion used before), by `attacks.labels`, and inside `attacks.inverting` (100
steps). Data: FEDPLUG_DATA. About 6 minutes of processor time.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fedplug import Dataset, Facts, Layout
from fedplug.api.data import PublicData
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.labels import Labels
from fedplug_attacks.linear_leak import LinearLeak
from fedplug_attacks.matching import InvertingGradients
from fedplug_std.datasets import Digits, FashionMnist, ImageFolder
from fedplug_std.models import Mlp
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from numpy.typing import NDArray
from scipy.stats import binom
from threadpoolctl import threadpool_limits
from torch import nn

LEVELS = (0.1, 1, 10, 100)
PUBLIC, STEPS, LABEL_STEPS, BATCH, HIDDEN = 200, 200, 100, 8, 0.3


def datasets() -> dict[str, Dataset]:
    """The three of them, by name."""
    root = os.environ.get("FEDPLUG_DATA")
    rays = ImageFolder.Options(path="chest_xray_128", image_size=32, grayscale=True)
    return {
        "X-rays": ImageFolder(rays).load(root),
        "digits": Digits(Digits.Options()).load(None),
        "Fashion-MNIST": FashionMnist(FashionMnist.Options(train_size=4000)).load(root),
    }


def convolutions(data: Dataset, seed: int) -> TorchModel:
    """Two convolutions with ReLU and a last layer, untrained."""
    channels, height, width = data.shape
    with seeded(seed):
        front = [nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()]
        last = nn.Linear(32 * -(-height // 2) * -(-width // 2), len(data.classes))
        return TorchModel(nn.Sequential(*front, nn.Flatten(), last))


def perceptron(data: Dataset, seed: int) -> TorchModel:
    """One hidden layer of 128."""
    return Mlp(Mlp.Options(hidden=(128,))).build(data.shape, len(data.classes), seed, "cpu")


def split(data: Dataset, targets: int, batch: int) -> tuple[PublicData, list[NDArray[np.int64]]]:
    """Public examples, and for each target the places of its examples; none is in both."""
    order = np.random.default_rng(32).permutation(len(data.train.inputs))
    batches = np.split(order[PUBLIC : PUBLIC + targets * batch], targets)
    return PublicData(data.train.take(order[:PUBLIC]), **data.about), batches


def gradient(model: TorchModel, data: Dataset, places: NDArray[np.int64]) -> NDArray[np.float32]:
    """Of the mean cross entropy, (P,)."""
    logits = model.module(to_tensor(data.train.inputs[places], data.mean, data.std))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(data.train.labels[places]))
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()


def seen(data: Dataset, model: TorchModel, update: NDArray[Any], batch: int, seed: int, **more: Any) -> View:
    """The server's view of a gradient."""
    told = Meaning(sign=1, lr=1.0, steps=1, batch_size=batch, examples=batch)
    observed = all_clear(0, 0, model.layout, update.astype(np.float32), told, **more)
    return View(
        "server", target=0, update=observed, vector=model.get_vector(), model=model, num_classes=len(data.classes),
        shape=data.shape, mean=data.mean, std=data.std, seed=seed,
    )  # fmt: skip


def attacker(public: PublicData) -> Attacker:
    """Whoever runs an attack, with the public facts."""
    return Attacker(facts=Facts(0, 1, Layout(()), (), 1, 1, 0, "", public=public))


def psnr(found: NDArray[Any], truth: NDArray[Any]) -> float:
    """In dB, 100 at most."""
    return float(-10 * np.log10(max(np.square(found.astype(float) - truth).mean(), 1e-10)))


def median(values: Sequence[float]) -> str:
    """With the interval between the order statistics that have it in between with at least 95%."""
    ordered, count = sorted(values), len(values)
    low = max(0, int(binom.ppf(0.025, count, 0.5)) - 1)
    return f"{statistics.median(ordered):.1f} ({ordered[low]:.1f} to {ordered[count - 1 - low]:.1f})"


def noisy(name: str, data: Dataset, attack: str, level: float, targets: int) -> list[str]:
    """A row of the first table."""
    public, places = split(data, targets, 1)
    mean = public.examples.inputs.mean(0) / 255.0
    trivial: list[float] = []
    found: dict[str, list[float]] = {"none": [], "auto": []}
    seconds = {"none": 0.0, "auto": 0.0}
    for number, place in enumerate(places):
        model = (convolutions if attack == "inverting" else perceptron)(data, 1000 + number)
        clear = gradient(model, data, place)
        sigma = level * float(np.sqrt(np.square(clear, dtype=np.float64).mean()))
        update = clear + np.random.default_rng(2000 + number).normal(0, sigma, clear.shape)
        view = seen(data, model, update, 1, number, sigma=sigma)
        truth = data.train.inputs[place][0] / 255.0
        trivial.append(psnr(mean, truth))
        for prior, numbers in found.items():
            begun = time.process_time()
            if attack == "inverting":
                chosen: Any = InvertingGradients(InvertingGradients.Options(iterations=STEPS, prior=prior))
            else:
                chosen = LinearLeak(LinearLeak.Options(prior=prior))
            numbers.append(psnr(chosen.attack(view, attacker(public)).images[0], truth))
            seconds[prior] += time.process_time() - begun
    # To a hundredth of a dB: rounding is no difference.
    better = sum(ours > guess + 0.01 for ours, guess in zip(found["auto"], trivial, strict=True))
    worse = sum(ours < guess - 0.01 for ours, guess in zip(found["auto"], trivial, strict=True))
    cost = " and ".join(f"{total / targets:.1f}" for total in seconds.values())
    return [
        f"`attacks.{attack}`", name, f"{level:g}", median(trivial), median(found["none"]), median(found["auto"]),
        f"{better} and {worse} of {targets}", cost,
    ]  # fmt: skip


def labelled(name: str, data: Dataset, targets: int) -> list[str]:
    """A row of the second table."""
    public, places = split(data, targets, BATCH)
    right = {"labels": 0, "inverting": 0}
    for number, place in enumerate(places):
        model = convolutions(data, 1000 + number)
        update = gradient(model, data, place)
        hidden = np.abs(update) >= np.quantile(np.abs(update), 1 - HIDDEN)
        view = seen(data, model, update, BATCH, number, hidden=hidden)
        truth = np.bincount(data.train.labels[place], minlength=len(data.classes))
        found: dict[str, Any] = {
            "labels": Labels(Labels.Options()).attack(view, attacker(public)).counts,
            "inverting": InvertingGradients(InvertingGradients.Options(iterations=LABEL_STEPS))
            .attack(view, attacker(public))
            .counts,
        }
        for way, counts in found.items():
            right[way] += bool(np.array_equal(counts, truth))
    return [name, str(targets), *map(str, right.values())]


def main() -> None:
    """Measures all, prints each row and writes the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="write the tables here: attack-priors.csv, attack-inner-labels.csv")
    parser.add_argument("--only", default="", help="rows whose attack, data and noise hold this: inverting X-rays")
    chosen = parser.parse_args()
    threadpool_limits(1)  # NumPy's threads would wait for each other, in loops that take the time of a core
    data = datasets()
    noises = [
        "attack", "data", "noise / gradient", "mean image, dB", "without prior, dB", "with prior, dB",
        "better and worse than the mean image", "seconds without and with",
    ]  # fmt: skip
    rows = (
        noisy(name, data[name], attack, level, chosen.targets)
        for attack in ("linear_leak", "inverting")
        for name in ("digits", "X-rays")
        for level in LEVELS
        if chosen.only in f"{attack} {name} {level:g} "
    )
    written("attack-priors", noises, rows, chosen.folder)
    labels = ["data", "targets", "`attacks.labels`", "inside `attacks.inverting`"]
    rows = (labelled(name, data[name], chosen.targets) for name in ("digits", "Fashion-MNIST")
            if chosen.only in f"labels {name}")  # fmt: skip
    written("attack-inner-labels", labels, rows, chosen.folder)


def written(name: str, head: list[str], rows: Iterable[list[str]], folder: Path | None) -> None:
    """Prints rows as they come, and writes them."""
    table = [head]
    for row in rows:
        print("  ".join(row), flush=True)
        table.append(row)
    if folder:
        with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(table)


if __name__ == "__main__":
    main()

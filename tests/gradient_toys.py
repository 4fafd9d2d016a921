"""Views of single gradients for the tests of attacks that search for inputs: digits, small networks, a chosen mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from fedplug import Dataset, Facts, Layout
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import Attacker, View
from fedplug_std.datasets import Digits
from fedplug_std.models import LeNet5
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import nn

DIGITS: Dataset = Digits(Digits.Options()).load(None)


def sigmoid_lenet(seed: int) -> TorchModel:
    """The network of the first gradient inversion papers, for 8x8 digits."""
    return LeNet5(LeNet5.Options(variant="dlg", activation="sigmoid")).build((1, 8, 8), 10, seed, "cpu")


def relu_net(seed: int, *, norm: bool = False, dropout: bool = False) -> TorchModel:
    """Two small convolutions with ReLU, batch norm that has seen some digits, and dropout before the logits."""
    with seeded(seed):
        layers: list[nn.Module] = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU()]
        layers[1:1] = [nn.BatchNorm2d(16)] if norm else []
        layers += [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()]
        layers += [nn.Dropout(0.5)] if dropout else []
        module = nn.Sequential(*layers, nn.Linear(512, 10))
        with torch.no_grad():
            for _ in range(30 if norm else 0):
                module(to_tensor(DIGITS.train.inputs[100:164], DIGITS.mean, DIGITS.std))
        return TorchModel(module)


def gradient(model: TorchModel, inputs: NDArray[np.uint8], labels: NDArray[np.int64]) -> NDArray[np.float32]:
    """Mean gradient (P,) of the cross entropy in the model's current mode, with batch norm as in std.sgd."""
    if len(labels) == 1:
        for part in model.module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.eval()
    logits = model.module(to_tensor(inputs, DIGITS.mean, DIGITS.std))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels))
    parts = torch.autograd.grad(loss, model.parameters)
    return torch.cat([part.reshape(-1) for part in parts]).numpy()


def digits(first: int, count: int = 1) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Training digits and their labels."""
    return DIGITS.train.inputs[first : first + count], DIGITS.train.labels[first : first + count]


def top(values: NDArray[np.float32], share: float) -> NDArray[np.bool_]:
    """Which entries belong to this share of the largest magnitudes."""
    found: NDArray[np.bool_] = np.abs(values) >= np.quantile(np.abs(values), 1 - share)
    return found


def view(
    model: TorchModel,
    update: NDArray[np.float32],
    examples: int = 1,
    seed: int = 0,
    hidden: NDArray[np.bool_] | None = None,
    sigma: float = 0.0,
    **meaning: Any,
) -> View:
    """An adversary's view of an update of digits. By default it is the gradient itself."""
    told = Meaning(**{"sign": 1, "lr": 1.0, "steps": 1, "batch_size": examples, "examples": examples} | meaning)
    observed = all_clear(0, 0, model.layout, update.astype(np.float32), told, hidden, sigma)
    return View(
        "server", target=0, update=observed, vector=model.get_vector(), model=model, num_classes=10, shape=(1, 8, 8),
        mean=DIGITS.mean, std=DIGITS.std, seed=seed,
    )  # fmt: skip


def attacker(progress: Callable[[int, int, float | None], None] = lambda done, total, loss: None) -> Attacker:
    """Whoever runs an attack, with the public facts."""
    return Attacker(progress=progress, facts=Facts(0, 1, Layout(()), (), 1, 1, 0, ""))


def run(component: Any, seen: View, **options: Any) -> AttackReport:
    """The answer of the attack with these options."""
    report: AttackReport = component(component.Options(**options)).attack(seen, attacker())
    return report


def error(report: AttackReport, inputs: NDArray[np.uint8]) -> float:
    """Mean squared error in [0, 1] units, in the order of the images that fits best."""
    assert report.status == "finished", report.reason
    assert report.images is not None
    assert report.images.dtype == np.float32
    pairs = np.square(report.images[:, None] - inputs[None] / 255.0).mean((2, 3, 4))
    return float(pairs[linear_sum_assignment(pairs)].mean())

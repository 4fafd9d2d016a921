"""An example of an attack's tests: conformance, a worked example, hidden rows, and the classes of a real batch."""

from __future__ import annotations

import numpy as np
import torch
from fedplug import Facts, Layout
from fedplug_attacks import Attacker, AttackReport, Meaning, View
from fedplug_attacks.api.observation import all_clear
from fedplug_kit import conformance
from fedplug_llg.labels import Llg
from fedplug_std.datasets import Digits
from fedplug_std.models import Mlp
from fedplug_std.torch_model import to_tensor

LAYOUT = Layout.of([("last.weight", (10, 4))])


def found(rows: np.ndarray, examples: int, hidden: np.ndarray | None = None, lr: float | None = 0.5) -> AttackReport:
    """The answer for a gradient of the last layer."""
    told = Meaning(lr=lr, steps=1, examples=examples)
    update = all_clear(0, 0, LAYOUT, -0.5 * rows.astype(np.float32).ravel(), told, hidden)
    view = View("server", update=update, num_classes=10, shape=(1, 2, 2))
    return Llg(Llg.Options()).attack(view, Attacker(facts=Facts(0, 1, LAYOUT, (), 1, 1, 0, "")))


def worked(counts: list[int]) -> np.ndarray:
    """The last layer's gradient where all features are 1 and all classes equally likely: 1/10 - n_i / B in row i."""
    return np.repeat(0.1 - np.array(counts)[:, None] / sum(counts), 4, axis=1)


def test_conforms() -> None:
    conformance("llg.labels")


def test_the_labels_of_a_worked_example() -> None:
    """B = 8: m is -0.5 x 1.1 / 8 = -0.06875. Two rounds of the lowest row are class 0, at -0.206 and -0.138."""
    report = found(worked([3, 2, 1, 1, 1, 0, 0, 0, 0, 0]), 8)
    assert report.labels is not None
    assert report.labels.tolist() == [0, 0, 0, 1, 1, 2, 3, 4]


def test_hidden_entries_and_rows_are_not_zeros() -> None:
    hidden = np.zeros((10, 4), bool)
    hidden[:, 1:3], hidden[9] = True, True
    report = found(worked([3, 2, 1, 1, 1, 0, 0, 0, 0, 0]), 8, hidden.ravel())
    assert report.counts is not None
    assert report.counts.tolist() == [3, 2, 1, 1, 1, 0, 0, 0, 0, 0]


def test_what_is_missing_is_said() -> None:
    assert found(worked([1] * 10), 10, lr=None).status == "not_applicable"
    broken = worked([2, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    broken[3, 1] = np.nan
    assert "not finite" in found(broken, 2).reason


def test_the_classes_of_a_real_batch() -> None:
    data = Digits(Digits.Options()).load(None)
    batch = data.train.take(slice(0, 8))
    model = Mlp(Mlp.Options(hidden=(64,))).build(data.shape, 10, 1, "cpu")
    logits = model.module(to_tensor(batch.inputs, data.mean, data.std))
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels)).backward()
    parameters = list(model.module.parameters())
    assert parameters[-2].grad is not None
    gradient = np.concatenate([part.grad.numpy().ravel() for part in parameters if part.grad is not None])
    view = View(
        "server", update=all_clear(0, 0, model.layout, -gradient, Meaning(lr=1.0, steps=1, examples=8)), num_classes=10,
        shape=data.shape,
    )  # fmt: skip
    report = Llg(Llg.Options()).attack(view, Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, "")))
    assert report.labels is not None
    # Two classes hide in it: their rows are positive, as all predictions for them outweigh the one example.
    assert set(report.labels.tolist()) < set(batch.labels.tolist())
    assert len(set(report.labels)) == 6

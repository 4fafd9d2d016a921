"""Exact batches: completion, sparse directions, a batch with half of its gradient hidden, and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fedplug import Facts
from fedplug_attacks import _low_rank, exact_batch
from fedplug_attacks._low_rank import completed, row_starts, sparse_directions, truncated, zeros_of
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.exact_batch import ExactBatch, _Model, _Problem
from fedplug_attacks.linear_leak import first_layer
from fedplug_kit.static import check_component
from fedplug_std.datasets import Digits
from fedplug_std.models import Mlp
from fedplug_std.torch_model import TorchModel, to_tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

MEAN, STD, BATCH = (0.3,), (0.4,), 6


def attacked(
    hidden: float = 0.0, noise: float = 0.0, batch_size: int = BATCH, biases: bool = True, trained: int = 0,
    steps: int = 1, width: int = 128,
) -> tuple[AttackReport, Any]:
    """Steps on a batch of digits, the largest entries of its gradient hidden, or the biases of the first layer."""
    data = Digits(Digits.Options()).load(None).train
    batch = data.take(slice(40, 40 + batch_size))
    model = Mlp(Mlp.Options(hidden=(width, 32))).build((1, 8, 8), 10, 3, "cpu")

    def step(examples: Any, lr: float) -> Any:
        """The gradient of a batch; the model moves by it."""
        inputs, labels = to_tensor(examples.inputs, MEAN, STD), torch.from_numpy(examples.labels)
        loss = nn.functional.cross_entropy(model.module(inputs), labels)
        parts = torch.autograd.grad(loss, model.parameters)
        gradient = torch.cat([part.reshape(-1) for part in parts]).numpy()
        model.set_vector(model.get_vector() - np.float32(lr) * gradient)
        return gradient

    for number in range(trained):
        step(data.take(slice(100 + 20 * number, 120 + 20 * number)), 0.1)
    before = model.get_vector()
    lr = 0.01 if steps > 1 else 1.0
    gradient = np.sum([step(batch, lr) for _ in range(steps)], axis=0)
    model.set_vector(before)
    gradient = gradient + np.random.default_rng(1).normal(0, noise, gradient.shape).astype(np.float32)
    away = np.zeros(len(gradient), bool)
    away[np.argsort(-np.abs(gradient))[: int(hidden * len(gradient))]] = True
    if not biases:
        away[model.layout.parameters[1].slice] = True
    meaning = Meaning(lr=lr, steps=steps, examples=batch_size)
    observed = all_clear(0, 0, model.layout, -lr * gradient, meaning, away, noise)
    view = View(
        "server", update=observed, vector=model.get_vector(), model=model, num_classes=10, shape=(1, 8, 8),
        mean=MEAN, std=STD, seed=2,
    )  # fmt: skip
    attacker = Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, ""))
    return ExactBatch(ExactBatch.Options()).attack(view, attacker), batch.inputs.astype(np.float32) / 255


def test_conforms() -> None:
    check_component("attacks.exact_batch")


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**31), st.integers(1, 5))
def test_a_matrix_of_low_rank_is_completed(seed: int, rank: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((60, rank)) @ rng.standard_normal((rank, 50))
    gaps = np.where(rng.random(matrix.shape) < 0.4, np.nan, matrix)
    found = completed(gaps, rank, 0)
    np.testing.assert_allclose(found.left @ found.right, matrix, atol=1e-3 * np.abs(matrix).max())


def test_sparse_columns_are_found_in_their_span() -> None:
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((80, 4)) * (rng.random((80, 4)) < 0.5)
    left = truncated(columns @ rng.standard_normal((4, 20)), 4, 0)[0].left
    found = sparse_directions(left, row_starts(left, 128, rng))[:4]
    zeros = {tuple(row) for row in zeros_of(left, found)}
    assert zeros == {tuple(row) for row in (columns == 0).T}


def test_a_batch_is_exact_also_where_the_largest_half_is_hidden() -> None:
    for hidden in (0.0, 0.5):
        report, images = attacked(hidden)
        exact = exact_of(report, images)
        assert exact >= BATCH - 1
        assert BATCH - 1 <= report.metrics["exact"] <= exact


def exact_of(report: AttackReport, images: Any) -> int:
    """How many true images some found one equals."""
    assert report.images is not None
    errors = ((report.images[None] - images[:, None]) ** 2).mean((2, 3, 4)).min(1)
    return int((errors < 1e-6).sum())


def test_sixteen_images_behind_a_wide_layer() -> None:
    report, images = attacked(batch_size=16, width=256)
    assert exact_of(report, images) == 16
    assert report.metrics["exact"] == 16
    assert not report.unfit


def test_hidden_biases_and_a_trained_model() -> None:
    """Pixels that are black in every image take the place of the bias; a trained model is as open as a new one."""
    for settings_of_it in ({"biases": False}, {"trained": 20}):
        report, images = attacked(**settings_of_it)
        assert exact_of(report, images) == BATCH
        assert report.metrics["exact"] == BATCH


def test_a_few_local_steps_leave_no_wrong_image_called_exact() -> None:
    report, images = attacked(steps=3)
    assert report.metrics.get("exact", 0) <= exact_of(report, images)
    assert report.unfit or report.metrics["exact"] == BATCH


def test_rows_of_a_table_are_exact() -> None:
    rng = np.random.default_rng(4)
    rows = rng.normal(50, 10, (BATCH, 30)).astype(np.float32)
    mean, std = (50.0,) * 30, (10.0,) * 30
    model = Mlp(Mlp.Options(hidden=(128, 16))).build((30,), 2, 3, "cpu")
    inputs = torch.from_numpy((rows - 50) / 10)
    loss = nn.functional.cross_entropy(model.module(inputs), torch.arange(BATCH) % 2)
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    observed = all_clear(0, 0, model.layout, -gradient, Meaning(lr=1.0, steps=1, examples=BATCH))
    view = View(
        "server", update=observed, vector=model.get_vector(), model=model, num_classes=2, shape=(30,), mean=mean,
        std=std, seed=2,
    )  # fmt: skip
    report = ExactBatch(ExactBatch.Options()).attack(view, Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, "")))
    assert report.images is not None
    errors = np.abs(report.images[None] - rows[:, None]).max(2).min(1)
    assert (errors < 0.05).all()
    assert report.metrics["exact"] == BATCH


def test_noise_is_not_called_exact() -> None:
    report, _ = attacked(noise=1e-3, batch_size=3, width=32)
    assert report.metrics.get("exact", 0) == 0
    assert report.unfit or report.status == "diverged"


def test_features_behind_convolutions_are_exact_and_lead_to_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_batch, "_STEPS", 300)
    batch = Digits(Digits.Options()).load(None).train.take(slice(40, 44))
    torch.manual_seed(0)
    model = TorchModel(
        nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(),
            nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10),
        )
    )  # fmt: skip
    loss = nn.functional.cross_entropy(
        model.module(to_tensor(batch.inputs, MEAN, STD)), torch.from_numpy(batch.labels)
    )
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    observed = all_clear(0, 0, model.layout, -gradient, Meaning(lr=1.0, steps=1, examples=4))
    view = View(
        "server", update=observed, vector=model.get_vector(), model=model, num_classes=10, shape=(1, 8, 8), mean=MEAN,
        std=STD, seed=2,
    )  # fmt: skip
    report = ExactBatch(ExactBatch.Options()).attack(view, Attacker(facts=Facts(0, 1, model.layout, (), 1, 1, 0, "")))
    assert report.metrics["exact"] == 4
    assert report.images is not None
    errors = ((report.images[None] - batch.inputs[:, None] / 255) ** 2).mean((2, 3, 4)).min(1)
    assert (errors < 1e-3).all()


def test_a_completion_that_stalls_begins_anew() -> None:
    """Each of these gradients left a tenth of what is visible from the zero-filled start, at all rates of the ridge."""
    images = Digits(Digits.Options()).load(None).train
    for seed in (4, 8):
        rng = np.random.default_rng(seed)
        batch = images.take(rng.choice(len(images), 6, replace=False)).inputs.reshape(6, -1) / 255.0
        inputs = np.hstack([(batch - 0.3) / 0.4, np.ones((6, 1))])
        active = rng.standard_normal((64, 65)) @ inputs.T > 0
        after = rng.standard_normal((64, 10)) @ (rng.dirichlet(np.ones(10), 6) - np.eye(10)[rng.integers(0, 10, 6)]).T
        whole = (active * after @ inputs).astype(np.float32).astype(np.float64)
        seen = np.where(np.abs(whole) < np.quantile(np.abs(whole), 0.6), whole, np.nan)
        rows = (~np.isnan(seen)).sum(1) >= 8
        columns = (~np.isnan(seen[rows])).sum(0) >= 8
        seen, whole = seen[rows][:, columns], whole[rows][:, columns]
        assert min(_low_rank._alternating(seen, 6, 0, decay, None).residual for decay in _low_rank._DECAYS) > 0.05
        found = completed(seen, 6, 0)
        assert found.residual < 1e-5
        np.testing.assert_allclose(found.left @ found.right, whole, atol=1e-3 * np.abs(whole).max())


def columns_of(images: NDArray[np.float64], classes: list[int]) -> tuple[_Problem, _Model, NDArray[np.float64]]:
    """The attacker's problem for a batch of images (n, 64) in one step, with the true column of each image."""
    count = len(images)
    model = Mlp(Mlp.Options(hidden=(128, 32))).build((1, 8, 8), 10, 3, "cpu")
    inputs, labels = torch.from_numpy((images - MEAN[0]) / STD[0]).float(), torch.tensor(classes)
    loss = nn.functional.cross_entropy(model.module(inputs.reshape(-1, 1, 8, 8)), labels)
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    observed = all_clear(0, 0, model.layout, -gradient, Meaning(lr=1.0, steps=1, examples=count))
    view = View(
        "server", update=observed, vector=model.get_vector(), model=model, num_classes=10, shape=(1, 8, 8), mean=MEAN,
        std=STD, seed=2,
    )  # fmt: skip
    problem, known = _Problem.of(first_layer(view, naive=False), count, 0), _Model.of(view, None)
    assert known is not None
    assert known.columns is not None
    told = known.columns(inputs.double().numpy())[np.arange(count), labels]
    return problem, known, told @ problem.factors.left


def test_a_mixture_of_images_that_are_alike_is_not_called_exact() -> None:
    """In the basis (A1 - A2, A2, ...) the second image is the mean of two, which agrees with nearly all rows."""
    rng, count = np.random.default_rng(5), 4
    images = np.clip(0.5 + 0.2 * rng.standard_normal((1, 64)) + 0.03 * rng.standard_normal((count, 64)), 0, 1)
    problem, known, true = columns_of(images, [3, 3, 5, 7])
    mixed = np.stack([true[0] - true[1], *true[1:]])
    for directions, exact in ((true, [True] * 4), (mixed, [True, False, True, True])):
        found = problem.batch(directions / np.linalg.norm(directions, axis=1, keepdims=True), known)
        right = ((found.images - images) ** 2).mean(1) < 1e-6
        np.testing.assert_array_equal(right, exact)
        # The first image of the mixed basis is right, but its column is not: it may count or not.
        assert not (found.exact & ~right).any()
        assert found.exact.sum() >= 2
    np.testing.assert_allclose(found.images[1], images[:2].mean(0), atol=1e-3)
    # The columns that right images predict are those of dL/dZ, also where the direction was another one.
    assert np.abs(found.columns @ true[0] / np.linalg.norm(true[0])).max() > 1 - 1e-6


def test_an_image_that_is_nearly_right_is_not_called_exact() -> None:
    """Its column is right, but the other columns have a part of it, so the image has a part of the others."""
    rng, count = np.random.default_rng(6), 4
    images = 0.5 + 0.15 * (rng.random((count, 64)) - 0.5)
    problem, known, true = columns_of(images, [1, 3, 5, 7])
    true /= np.linalg.norm(true, axis=1, keepdims=True)
    for off, exact in ((0.0, [True] * 4), (0.04, [False, True, True, True])):
        directions = true + off * np.array([[0.0], [1.0], [1.0], [1.0]]) * true[0]
        found = problem.batch(directions / np.linalg.norm(directions, axis=1, keepdims=True), known)
        right = ((found.images - images) ** 2).mean(1) < 1e-6
        np.testing.assert_array_equal(right, exact)
        assert found.right[0]  # it leaves the right rows inactive
        assert not (found.exact & ~right).any()
        assert found.exact[0] == right[0]

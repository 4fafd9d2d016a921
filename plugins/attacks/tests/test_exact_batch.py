"""Exact batches: completion, sparse directions, a batch with half of its gradient hidden, and noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fedplug import Context
from fedplug_attacks._low_rank import completed, row_starts, sparse_directions, truncated, zeros_of
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.exact_batch import ExactBatch
from fedplug_kit.static import check_component
from fedplug_std.datasets import Digits
from fedplug_std.models import Mlp
from fedplug_std.torch_model import to_tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

MEAN, STD, BATCH = (0.3,), (0.4,), 6


def attacked(hidden: float = 0.0, noise: float = 0.0) -> tuple[AttackReport, Any]:
    """One step on a batch of digits, the largest entries of its gradient hidden."""
    batch = Digits(Digits.Options()).load(None).train.take(slice(40, 40 + BATCH))
    model = Mlp(Mlp.Options(hidden=(128, 32))).build((1, 8, 8), 10, 3, "cpu")
    loss = nn.functional.cross_entropy(
        model.module(to_tensor(batch.inputs, MEAN, STD)), torch.from_numpy(batch.labels)
    )
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    gradient = gradient + np.random.default_rng(1).normal(0, noise, gradient.shape).astype(np.float32)
    away = np.zeros(len(gradient), bool)
    away[np.argsort(-np.abs(gradient))[: int(hidden * len(gradient))]] = True
    observed = all_clear(0, 0, model.layout, -gradient, Meaning(lr=1.0, steps=1, examples=BATCH), away, noise)
    view = View(
        "server", update=observed, vector=model.get_vector(), model=model, num_classes=10, shape=(1, 8, 8),
        mean=MEAN, std=STD, seed=2,
    )  # fmt: skip
    ctx = Context(0, 1, model.layout, (), 1, 1, 0, "", Attacker())
    return ExactBatch(ExactBatch.Options()).attack(view, ctx), batch.inputs.astype(np.float32) / 255


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
        assert report.images is not None
        errors = ((report.images[None] - images[:, None]) ** 2).mean((2, 3, 4)).min(1)
        assert (errors < 1e-6).sum() >= BATCH - 1
        assert 1 <= report.metrics["exact"] <= (errors < 1e-6).sum()


def test_noise_is_not_called_exact() -> None:
    report, _ = attacked(noise=1e-3)
    assert report.metrics.get("exact", 0) == 0
    assert report.unfit or report.status == "diverged"

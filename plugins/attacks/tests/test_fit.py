"""Findings that do not explain what was seen: their failure says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import View
from fedplug_attacks.workshop.calls import unexplained
from fedplug_std.models import Mlp

SHAPE, CLASSES, BATCH = (1, 6, 6), 4, 3
IMAGES = np.random.default_rng(0).random((BATCH, *SHAPE)).astype(np.float32)
LABELS = np.array([0, 2, 2])


def view(sigma: float = 0.0, **told: Any) -> View:
    """One step on three images with a perceptron, with noise."""
    model = Mlp(Mlp.Options(hidden=(16,))).build(SHAPE, CLASSES, 1, "cpu")
    logits = model.module(torch.from_numpy((IMAGES - 0.5) / 0.25))
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(LABELS))
    parts = torch.autograd.grad(loss, model.parameters)
    gradient = torch.cat([part.reshape(-1) for part in parts]).numpy()
    gradient = gradient + np.random.default_rng(1).normal(0, sigma, gradient.shape).astype(np.float32)
    meaning = Meaning(**{"sign": 1, "lr": 1.0, "steps": 1, "batch_size": BATCH, "examples": BATCH, **told})
    update = all_clear(0, 0, model.layout, gradient, meaning, sigma=sigma)
    return View(
        "server", target=0, update=update, vector=model.get_vector(), model=model, num_classes=CLASSES, shape=SHAPE,
        mean=(0.5,), std=(0.25,),
    )  # fmt: skip


def images(*which: int, extra: float = 0.0) -> AttackReport:
    return AttackReport("finished", images=IMAGES[list(which)] + np.float32(extra))


def test_true_images_explain_the_first_layer_with_noise_too() -> None:
    assert unexplained(view(), images(0, 1, 2)) == ""
    assert unexplained(view(sigma=0.02), images(0, 1, 2)) == ""


def test_images_that_are_missing_or_wrong_do_not() -> None:
    assert "of what the first layer shows unexplained" in unexplained(view(), images(0))
    wrong = AttackReport("finished", images=IMAGES[::-1, :, ::-1].copy())
    assert "unexplained" in unexplained(view(), wrong)


def test_counts_have_to_leave_probabilities() -> None:
    right = AttackReport("finished", counts=np.bincount(LABELS, minlength=CLASSES))
    assert unexplained(view(), right) == ""
    wrong = AttackReport("finished", counts=np.array([0, 3, 0, 0]))
    assert "the last bias would need probabilities of class" in unexplained(view(), wrong)
    assert unexplained(view(steps=4), wrong) == ""  # after several steps the bias does not say


def test_what_cannot_be_checked_is_not_excused() -> None:
    assert unexplained(view(lr=None), images(0)) == ""
    assert unexplained(View("released"), images(0)) == ""

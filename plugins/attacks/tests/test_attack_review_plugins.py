"""What a clip does to attacks that compare gradients by size, and what weight decay and momentum do to their target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from fedplug_attacks._matching import Matcher
from fedplug_attacks.api.observation import Clipped, Meaning
from fedplug_attacks.api.view import View
from fedplug_attacks.labels import last_layer
from fedplug_attacks.matching import Idlg
from gradient_toys import digits, error, gradient, run, sigmoid_lenet, view


def clipped(seen: View, norm: float, by: float = 1.0) -> View:
    """The view of an update that a clip to this norm has made smaller by a factor."""
    update = seen.update
    assert update is not None
    clip = Clipped(norm, 2, np.arange(update.layout.size), noised=False)
    values, meaning = update.values * np.float32(by), dataclasses.replace(update.meaning, clip_norm=norm)
    return dataclasses.replace(seen, update=dataclasses.replace(update, values=values, meaning=meaning, clips=(clip,)))


def test_who_knows_of_a_clip_clips_the_gradients_of_candidates_alike() -> None:
    inputs, labels = digits(0)
    model = sigmoid_lenet(0)
    seen = view(model, gradient(model, inputs, labels))
    assert seen.update is not None
    norm = 0.01 * float(np.linalg.norm(seen.update.values))
    known = clipped(seen, norm, by=0.01)
    assert known.update is not None
    aware = Matcher(known, "adaptive", 1, "cpu", double=True)
    unaware = Matcher(
        dataclasses.replace(known, update=dataclasses.replace(known.update, clips=())), "adaptive", 1, "cpu", True
    )
    true = 100 * aware.target[None]
    assert float(aware.squared(true)[0]) < 1e-10
    assert float(unaware.squared(true)[0]) > 1000
    # Only down: a clip makes nothing larger.
    assert float(aware.squared(true / 200)[0]) == pytest.approx(0.25)
    assert error(run(Idlg, known, iterations=100), inputs) < 1e-4


def test_its_gradient_is_that_of_the_distance_with_the_clip() -> None:
    inputs, labels = digits(1)
    model = sigmoid_lenet(1)
    seen = view(model, gradient(model, inputs, labels))
    assert seen.update is not None
    matcher = Matcher(clipped(seen, float(np.linalg.norm(seen.update.values))), "adaptive", 1, "cpu", double=True)
    noise = torch.from_numpy(np.random.default_rng(0).standard_normal(len(matcher.target)))
    start = 3 * matcher.target + noise * matcher.target.std()
    candidate = start[None].requires_grad_()
    (slope,) = torch.autograd.grad(matcher.squared(candidate).sum(), candidate)
    along = noise / noise.norm()
    step = 1e-6 * float(start.norm())
    up, down = (float(matcher.squared((start + way * step * along)[None])[0]) for way in (1, -1))
    assert float((slope[0] * along).sum()) == pytest.approx((up - down) / (2 * step), rel=1e-3)


def test_labels_and_images_start_from_a_gradient_without_weight_decay() -> None:
    inputs, labels = digits(2)
    model = sigmoid_lenet(2)
    plain = view(model, gradient(model, inputs, labels))
    assert plain.update is not None
    assert plain.vector is not None
    clean = plain.update.as_gradient()
    decayed = dataclasses.replace(
        clean, values=-np.float32(0.1) * (clean.values + np.float32(0.05) * plain.vector),
        meaning=Meaning(lr=0.1, steps=1, weight_decay=0.05, batch_size=1, examples=1),
    )  # fmt: skip
    seen = dataclasses.replace(plain, update=decayed)
    assert Matcher(seen, "adaptive", 1, "cpu").update.values == pytest.approx(clean.values, abs=1e-6)
    assert last_layer(seen).grad_bias == pytest.approx(last_layer(plain).grad_bias, abs=1e-6)

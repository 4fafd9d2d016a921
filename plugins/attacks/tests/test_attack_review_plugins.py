"""What a clip does to attacks that compare gradients by size, and what weight decay and momentum do to their target."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from fedplug import Meaning
from fedplug_attacks._label_layer import last_layer
from fedplug_attacks._matching import Matcher
from fedplug_attacks.dlg import Idlg
from gradient_toys import digits, error, gradient, run, sigmoid_lenet, view


def test_who_knows_of_a_clip_compares_gradients_up_to_their_size() -> None:
    inputs, labels = digits(0)
    model = sigmoid_lenet(0)
    seen = view(model, gradient(model, inputs, labels))
    assert seen.update is not None
    meaning = dataclasses.replace(seen.update.meaning, clip_norm=1.0)
    small = dataclasses.replace(seen.update, values=seen.update.values * np.float32(0.01))
    unaware = Matcher(dataclasses.replace(seen, update=small), "adaptive", 1, "cpu", double=True)
    aware = Matcher(
        dataclasses.replace(seen, update=dataclasses.replace(small, meaning=meaning)), "adaptive", 1, "cpu", double=True
    )
    true = 100 * aware.target[None]
    assert float(aware.squared(true)[0]) < 1e-10
    assert float(unaware.squared(true)[0]) > 1000
    # Only down: a clip makes nothing larger.
    assert float(aware.squared(true / 200)[0]) == pytest.approx(0.25)
    report = run(Idlg, dataclasses.replace(seen, update=dataclasses.replace(small, meaning=meaning)), iterations=100)
    assert error(report, inputs) < 1e-4


def test_its_gradient_is_that_of_the_distance_with_the_best_factor() -> None:
    inputs, labels = digits(1)
    model = sigmoid_lenet(1)
    seen = view(model, gradient(model, inputs, labels))
    assert seen.update is not None
    meaning = dataclasses.replace(seen.update.meaning, clip_norm=1.0)
    seen = dataclasses.replace(seen, update=dataclasses.replace(seen.update, meaning=meaning))
    matcher = Matcher(seen, "adaptive", 1, "cpu", double=True)
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

"""Attacks use what is public: a clip of each layer does not protect images, nor does known noise protect labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from fedplug import Layout
from fedplug_attacks._matching import Matcher
from fedplug_attacks._public import Clips, least_sigma_of, sigma_of
from fedplug_attacks.api.observation import Clipped, Meaning, ObservedUpdate, Seen, all_clear
from fedplug_attacks.api.view import View
from fedplug_attacks.labels import last_layer, single_label
from fedplug_attacks.matching import Dlg, Idlg, InvertingGradients
from gradient_toys import digits, error, gradient, run, sigmoid_lenet, view
from numpy.typing import NDArray

LAYOUT = Layout.of([("a.weight", (3,)), ("b.weight", (2,))])


def layer_clipped(seen: View, norm: float, noise: float = 0.0, *, told: bool = True, seed: int = 0) -> View:
    """The view once each layer is clipped to a norm, with noise of the norm times `noise` on each value."""
    update = seen.update
    assert update is not None
    layers = len(update.layout.layers)
    layer = update.layout.per_scalar(np.arange(layers))
    lengths = np.sqrt(np.bincount(layer, update.values.astype(np.float64) ** 2))
    values = update.values * np.minimum(1.0, norm / lengths)[layer]
    values = values + norm * noise * np.random.default_rng(seed).standard_normal(len(values))
    sigma = np.full(len(values), norm * noise if told else np.nan, np.float32)
    states = np.full(update.layout.size, Seen.NOISED if noise else Seen.CLEAR, np.uint8)
    clip = Clipped((norm,) * layers, 2, np.arange(update.layout.size), noised=noise > 0)
    update = dataclasses.replace(
        update, values=values.astype(np.float32), sigma=sigma, states=states, clips=(clip,),
        meaning=dataclasses.replace(update.meaning, clip_norm=norm),
    )  # fmt: skip
    return dataclasses.replace(seen, update=update)


def without_clips(seen: View) -> View:
    assert seen.update is not None
    return dataclasses.replace(seen, update=dataclasses.replace(seen.update, clips=()))


# -- images ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
def test_a_digit_comes_back_through_a_clip_of_each_layer(told: bool) -> None:
    """As FedRE clips; noise is negligible. An attack that treats the clipped layers as a gradient finds none."""
    inputs, labels = digits(0)
    model = sigmoid_lenet(0)
    seen = layer_clipped(view(model, gradient(model, inputs, labels)), 0.05, 1e-7, told=told)
    assert error(run(Idlg, seen, iterations=6, restarts=1), inputs) < 1e-3
    if told:
        assert error(run(Idlg, without_clips(seen), iterations=6, restarts=1), inputs) > 1e-2


def test_the_angle_of_a_clipped_update_is_that_of_its_clipped_candidates() -> None:
    inputs, labels = digits(4)
    model = sigmoid_lenet(4)
    plain = view(model, gradient(model, inputs, labels))
    seen = layer_clipped(plain, 0.05)
    true = torch.from_numpy(plain.update.values.astype(np.float64))[None]  # type: ignore[union-attr]
    assert float(Matcher(seen, "adaptive", 1, "cpu", double=True).cosine(true)[0]) < 1e-9
    assert float(Matcher(without_clips(seen), "adaptive", 1, "cpu", double=True).cosine(true)[0]) > 1e-2


def test_candidates_are_clipped_layer_by_layer_in_any_order_of_norm() -> None:
    values = torch.tensor([[3.0, 0.0, 4.0, 1.0, -1.0], [0.3, 0.0, 0.4, 8.0, 6.0]], dtype=torch.float64)

    def clip(norm: Any, order: float, where: Any) -> list[list[float]]:
        clips = (Clipped(norm, order, np.array(where), noised=True),)
        return Clips(clips, LAYOUT, torch.device("cpu"), torch.float64)(values).tolist()  # type: ignore[no-any-return]

    each = clip((1.0, 5.0), 2, range(5))
    assert each[0] == pytest.approx([0.6, 0, 0.8, 1, -1])
    assert each[1] == pytest.approx([0.3, 0, 0.4, 4, 3])
    assert clip(7.0, 1, range(3))[0] == pytest.approx([3, 0, 4, 1, -1])
    assert clip(3.5, 1, range(3))[0] == pytest.approx([1.5, 0, 2, 1, -1])
    assert clip(2.0, np.inf, [2, 3])[0] == pytest.approx([3, 0, 2, 1, -1])
    assert clip((1.0, np.inf), 2, range(5))[1] == pytest.approx(values[1].tolist())


def test_weight_decay_is_clipped_with_the_gradient() -> None:
    """A step of gradient and decay together, clipped: the true candidate fits to rounding."""
    inputs, labels = digits(5)
    model = sigmoid_lenet(5)
    true, vector = gradient(model, inputs, labels), model.get_vector()
    step = -0.1 * (true + np.float32(0.05) * vector)
    seen = view(model, step, sign=-1, lr=0.1, weight_decay=0.05)
    seen = layer_clipped(seen, 0.2 * float(np.linalg.norm(step)))
    matcher = Matcher(seen, "adaptive", 1, "cpu", double=True)
    assert float(matcher.squared(torch.from_numpy(true.astype(np.float64))[None])[0]) < 1e-9


def test_class_weights_belong_to_the_loss_that_candidates_descend() -> None:
    inputs, labels = digits(0, 3)
    model, weights = sigmoid_lenet(3), torch.linspace(1, 5, 10)
    plain = view(model, gradient(model, inputs, labels), examples=3)
    logits = model.module(torch.zeros(3, 1, 8, 8))
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels), weight=weights)
    true = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)])
    assert plain.update is not None
    meaning = dataclasses.replace(plain.update.meaning, class_weights=tuple(weights.tolist()))
    seen = dataclasses.replace(plain, update=dataclasses.replace(plain.update, meaning=meaning))
    matcher = Matcher(seen, "adaptive", 3, "cpu")
    found = matcher.gradients(torch.zeros(1, 3, 1, 8, 8), matcher.one_hot([labels.tolist()]))[0][0]
    assert torch.allclose(found, true, atol=1e-6)
    assert Dlg.finds.needs.unmet(seen) == ""
    assert "weighted cross_entropy" in InvertingGradients.finds.needs.unmet(seen)


# -- noise -------------------------------------------------------------------------------------------------------------


def noisy(values: NDArray[np.float64], clips: tuple[Clipped, ...] = ()) -> ObservedUpdate:
    """An update with noise of unknown size."""
    layout = Layout.of([("a.weight", (1000,)), ("b.weight", (1000,))])
    return dataclasses.replace(
        all_clear(0, 0, layout, values.astype(np.float32), Meaning(), sigma=np.nan), clips=clips
    )  # fmt: skip


def test_noise_that_nobody_states_shows_its_size_in_each_layer() -> None:
    rng = np.random.default_rng(1)
    signal = np.where(rng.random(2000) < 0.02, 0.5, 0.0)
    noise = rng.standard_normal(2000) * np.repeat([0.1, 1.0], 1000)
    clip = Clipped((4.0, 4.0), 2, np.arange(2000), noised=True)
    update = noisy(signal + noise, (clip,))
    above, below = sigma_of(update), least_sigma_of(update)
    assert above[[0, 1000]] == pytest.approx([0.1, 1.0], rel=0.1)
    # A layer's noise of length 3.2 fits under a clip of 4, one of length 32 does not.
    assert below[[0, 1000]] == pytest.approx([0.0, 1.0], rel=0.1)
    assert np.isnan(least_sigma_of(noisy(signal + noise))).all()
    stated = dataclasses.replace(update, sigma=np.full(2000, 0.3, np.float32))
    assert np.allclose(sigma_of(stated), 0.3)
    assert np.allclose(least_sigma_of(stated), 0.3)


@pytest.mark.parametrize("told", [True, False])
def test_the_label_is_told_from_the_whole_row_where_noise_buries_its_bias(told: bool) -> None:
    """Before, the sign of a bias with noise decided: right for about as many as a guess, 1 in 10."""
    right = []
    for number in range(30):
        inputs, labels = digits(number)
        model = sigmoid_lenet(0)
        seen = layer_clipped(view(model, gradient(model, inputs, labels)), 1.0, 0.06, told=told, seed=number)
        assert seen.update is not None
        guess = single_label(seen.update, 10, "adaptive")
        right.append(guess[0] == labels[0])
    assert np.mean(right) > 0.8


def test_classes_that_noise_may_have_put_in_another_order_are_all_candidates() -> None:
    inputs, labels = digits(0)
    model = sigmoid_lenet(0)
    seen = view(model, gradient(model, inputs, labels))
    for noise, told in ((1e-6, True), (10.0, False)):
        update = layer_clipped(seen, 1.0, noise).update
        assert update is not None
        assert (len(single_label(update, 10, "adaptive")) == 1) is told


def test_restored_counts_know_the_noise_of_each_entry() -> None:
    inputs, labels = digits(0)
    model = sigmoid_lenet(0)
    plain = view(model, gradient(model, inputs, labels))
    for told in (True, False):
        layer = last_layer(layer_clipped(plain, 100.0, 0.01, told=told))
        assert layer.sigma_weight == pytest.approx(np.ones(layer.weight.shape), rel=0.2)
        assert layer.sigma == pytest.approx(1.0, rel=0.2)

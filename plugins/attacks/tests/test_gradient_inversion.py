"""DLG and iDLG: what they recover, what hiding and noise do to them, and what they do when nothing can be found."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from examples import examples
from fedplug.api.blocks import Layout
from fedplug_attacks._matching import Matcher
from fedplug_attacks._search import thinned
from fedplug_attacks.api.observation import Meaning, Seen, all_clear
from fedplug_attacks.api.view import View
from fedplug_attacks.labels import likely_labels, single_label
from fedplug_attacks.matching import Dlg, Idlg
from fedplug_kit.static import check_component
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from gradient_toys import DIGITS, attacker, digits, error, gradient, relu_net, run, sigmoid_lenet, top, view
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

QUICK = {"iterations": 30, "restarts": 5}


@pytest.mark.parametrize("name", ["attacks.dlg", "attacks.idlg"])
def test_conforms(name: str) -> None:
    check_component(name)


# -- what is recovered -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_idlg_recovers_nine_of_ten_digits(count: int) -> None:
    found = 0
    for number in range(count):
        inputs, labels = digits(number)
        model = sigmoid_lenet(number)
        report = run(Idlg, view(model, gradient(model, inputs, labels), seed=number))
        assert report.labels is not None
        assert report.labels.tolist() == labels.tolist()
        assert report.counts is not None
        assert report.counts.tolist() == np.bincount(labels, minlength=10).tolist()
        assert report.gradient_evaluations >= len(report.losses) > 0
        found += error(report, inputs) < 1e-4
    assert found >= 0.9 * count


@pytest.mark.parametrize(("share", "count"), [
    pytest.param(0.05, 1, marks=pytest.mark.slow), pytest.param(0.2, 3, marks=pytest.mark.slow), (0.5, 1),
])  # fmt: skip
def test_hiding_the_largest_entries_stops_only_who_takes_them_for_zero(share: float, count: int) -> None:
    adaptive, naive = 0, 0
    for number in range(count):
        inputs, labels = digits(number)
        model = sigmoid_lenet(number)
        update = gradient(model, inputs, labels)
        seen = view(model, update, seed=number, hidden=top(update, share))
        adaptive += error(run(Idlg, seen, **QUICK), inputs) < 1e-4
        naive += error(run(Idlg, seen, form="naive", iterations=4, restarts=1), inputs) < 1e-4
    assert (adaptive, naive) == (count, 0)


def test_dlg_recovers_two_digits_with_their_labels_and_stops_once_it_has_found_them() -> None:
    inputs, labels = digits(40, 2)
    model = sigmoid_lenet(0)
    report = run(Dlg, view(model, gradient(model, inputs, labels), 2))
    assert report.labels is not None
    assert sorted(report.labels) == sorted(labels)
    assert report.metrics["searches"] == 1
    assert 1e-10 < report.metrics["loss"] < 1e-8  # so the tolerance did not end it
    assert report.gradient_evaluations < 350
    assert error(report, inputs) < 1e-5


def test_without_a_line_search_a_start_is_lost_that_strong_wolfe_saves() -> None:
    inputs, labels = digits(6)
    model = sigmoid_lenet(6)
    seen = view(model, gradient(model, inputs, labels), seed=6)
    assert error(run(Idlg, seen, restarts=1, iterations=3), inputs) < 1e-4
    assert error(run(Idlg, seen, restarts=1, iterations=3, line_search="none"), inputs) > 1e-2


@pytest.mark.parametrize("component", [Dlg, Idlg])
def test_forms_are_equal_where_nothing_is_hidden(component: Any) -> None:
    inputs, labels = digits(3)
    model = sigmoid_lenet(3)
    seen = view(model, gradient(model, inputs, labels))
    first, second = (run(component, seen, form=form, iterations=1, restarts=1) for form in ("adaptive", "naive"))
    np.testing.assert_array_equal(first.images, second.images)
    assert first.losses == second.losses


def test_follows_the_seed() -> None:
    inputs, labels = digits(4)
    model = sigmoid_lenet(4)
    update = gradient(model, inputs, labels)
    before = model.get_vector()
    first, again, other = (run(Dlg, view(model, update, seed=seed), iterations=1, restarts=2) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.images, again.images)
    assert first.losses == again.losses != other.losses
    assert (first.seed, other.seed) == (1, 2)
    np.testing.assert_array_equal(model.get_vector(), before)


# -- noise -------------------------------------------------------------------------------------------------------------


def noisy(number: int, share: float) -> tuple[View, NDArray[np.uint8]]:
    inputs, labels = digits(number)
    model = sigmoid_lenet(number)
    update = gradient(model, inputs, labels)
    sigma = share * float(update.std())
    noise = np.random.default_rng(number).normal(0, sigma, update.shape)
    return view(model, update + noise, seed=number, sigma=sigma), inputs


def test_noise_of_a_tenth_of_the_gradient_stops_idlg() -> None:
    seen, inputs = noisy(0, 0.1)
    assert error(run(Idlg, seen, restarts=1), inputs) > 1e-3


def test_little_noise_does_not_stop_it_and_a_search_at_the_noise_floor_is_the_last() -> None:
    seen, inputs = noisy(0, 0.001)
    report = run(Idlg, seen)
    assert error(report, inputs) < 1e-4
    assert report.metrics["searches"] == 1
    assert 1e-7 < report.metrics["loss"] < 1e-5


def test_clear_entries_outweigh_noised_ones() -> None:
    """Half of the entries are noised beyond use; an attack that weights them like the others finds nothing."""
    inputs, labels = digits(5)
    model = sigmoid_lenet(5)
    update = gradient(model, inputs, labels)
    rng = np.random.default_rng(0)
    noised = rng.random(update.shape) < 0.5
    sigma = np.where(noised, update.std(), 0).astype(np.float32)
    seen = view(model, update + rng.normal(size=update.shape) * sigma)
    assert seen.update is not None
    states = np.where(noised, Seen.NOISED, Seen.CLEAR).astype(np.uint8)
    seen = dataclasses.replace(seen, update=dataclasses.replace(seen.update, states=states, sigma=sigma))
    assert error(run(Idlg, seen, restarts=1, iterations=6), inputs) < 1e-3
    assert error(run(Idlg, seen, restarts=1, iterations=6, form="naive"), inputs) > 1e-2
    unknown = dataclasses.replace(seen.update, sigma=np.where(noised, np.nan, 0).astype(np.float32))
    weights = Matcher(dataclasses.replace(seen, update=unknown), "adaptive", 1, "cpu").weight.numpy()
    assert (weights[~noised] == 1).all()
    assert (weights[noised] < 1e-3).all()


# -- what an update means ----------------------------------------------------------------------------------------------


def test_an_update_is_read_with_its_sign_rate_and_steps() -> None:
    inputs, labels = digits(7)
    model = sigmoid_lenet(7)
    update = -0.05 * gradient(model, inputs, labels)
    assert error(run(Idlg, view(model, update, sign=-1, lr=0.05)), inputs) < 1e-4
    unread = run(Idlg, view(model, update), restarts=1, iterations=5)  # as if it were the gradient itself
    assert error(unread, inputs) > 1e-2
    for component in (Dlg, Idlg):
        report = run(component, view(model, update, sign=-1, lr=None))
        assert report.status == "not_applicable"
        assert "learning rate" in report.reason


@pytest.mark.parametrize("batch", [1, 3])
def test_gradients_are_those_of_the_trainer_in_its_mode(batch: int) -> None:
    """At the true examples the distance is 0, whatever the mode; running statistics and modes of the model stay."""
    inputs, labels = digits(0, batch)
    for training in (True, False):
        model = relu_net(0, norm=True)
        model.module.train(training)
        update = gradient(model, inputs, labels)
        buffers, mode = model.get_buffers(), model.module.training
        matcher = Matcher(view(model, update, batch, training_mode=training), "adaptive", batch, "cpu", double=True)
        truth = to_tensor(inputs, DIGITS.mean, DIGITS.std)[None].double()
        found, statistics = matcher.gradients(truth, matcher.one_hot([labels.tolist()]))
        assert float(matcher.squared(found)) < 1e-10
        assert float(matcher.cosine(found)) < 1e-10
        assert float(statistics) > 0
        assert model.module.training == mode
        for name, values in model.get_buffers().items():
            np.testing.assert_array_equal(values, buffers[name])


def test_dropout_is_off_in_the_attackers_model() -> None:
    model = relu_net(0, dropout=True)
    inputs, labels = digits(0)
    matcher = Matcher(view(model, gradient(model, inputs, labels)), "adaptive", 1, "cpu")
    candidate, known = torch.zeros(1, 1, 1, 8, 8), matcher.one_hot([labels.tolist()])
    first, second = (matcher.gradients(candidate, known)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert model.module.training


def test_trials_together_are_the_trials_alone() -> None:
    inputs, labels = digits(0, 2)
    model = relu_net(1, norm=True)
    matcher = Matcher(view(model, gradient(model, inputs, labels), 2), "adaptive", 2, "cpu", double=True)
    candidates = torch.randn(3, 2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    known = matcher.one_hot([[0, 1], [2, 3], [4, 4]])
    together, statistics = matcher.gradients(candidates, known)
    assert matcher.evaluations == 3
    for trial in range(3):
        alone, own = matcher.gradients(candidates[trial : trial + 1], known[trial : trial + 1])
        torch.testing.assert_close(together[trial], alone[0])
        torch.testing.assert_close(statistics[trial], own[0])


# -- when it goes wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", [Dlg, Idlg])
def test_a_loss_that_is_not_a_number_is_said(component: Any) -> None:
    inputs, labels = digits(0)
    model = sigmoid_lenet(0)
    update = gradient(model, inputs, labels)
    update[5] = np.nan
    report = run(component, view(model, update), restarts=3)
    assert report.status == "diverged"
    assert "(3)" in report.reason
    assert report.images is None
    assert report.gradient_evaluations > 0


def test_progress_is_told_and_may_interrupt() -> None:
    inputs, labels = digits(0)
    model = sigmoid_lenet(0)
    seen = view(model, gradient(model, inputs, labels))
    calls: list[tuple[int, int, float | None]] = []
    report = Idlg(Idlg.Options(restarts=2)).attack(seen, attacker(lambda *told: calls.append(told)))
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert calls[-1][:2] == (600, 600)
    assert calls[0][2] == report.losses[0]

    def interrupt(done: int, total: int, loss: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Idlg(Idlg.Options()).attack(seen, attacker(interrupt))


@given(st.lists(st.floats(0, 1), max_size=1000))
def test_losses_are_thinned_to_two_hundred(losses: list[float]) -> None:
    kept = thinned(losses)
    assert len(kept) == min(len(losses), 200)
    assert kept[:1] == losses[:1]
    assert kept[-1:] == losses[-1:]


# -- labels from the last layer ----------------------------------------------------------------------------------------

LAST = Layout.of([("fc.weight", (6, 8)), ("fc.bias", (6,))])


def last_layer(labels: list[int], rng: np.random.Generator, hidden: float = 0.0, bias: bool = True,
               features: str = "positive", sigma: float = 0.0) -> Any:  # fmt: skip
    """The gradient of a last layer with random features and answers, some of it hidden at random."""
    answers = rng.dirichlet(np.full(6, 5.0), len(labels))
    errors = answers - np.eye(6)[labels]
    values = rng.random((len(labels), 8)) * (-1 if features == "negative" else 1)
    update = np.concatenate([(errors.T @ values).ravel(), errors.sum(0)]) / len(labels)
    mask = rng.random(LAST.size) < hidden
    mask[48:] |= not bias
    update = update + rng.normal(0, sigma or 1e-12, update.shape)
    return all_clear(0, 0, LAST, update.astype(np.float32), Meaning(sign=1), mask, sigma), answers.mean(0)


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(0, 5), st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 0.6, 0.9, 1.0]), st.booleans())
def test_the_true_label_is_among_the_classes_told(label: int, seed: int, hidden: float, bias: bool) -> None:
    """After ReLU: it is never ruled out, and told for sure where any entry of its row, or all others, are visible."""
    update, _ = last_layer([label], np.random.default_rng(seed), hidden, bias)
    guess = single_label(update, 6, "adaptive")
    assert label in guess
    if update.tensor("fc.weight").visible[label].any() or hidden == 0:
        assert guess == (label,)
    if hidden == 1:
        assert len(guess) == 6


def test_features_below_zero_are_understood() -> None:
    rng = np.random.default_rng(0)
    for label in range(6):
        for bias in (True, False):
            update, _ = last_layer([label], rng, bias=bias, features="negative")
            assert single_label(update, 6, "adaptive") == (label,)


def test_rows_within_their_noise_say_nothing() -> None:
    update, _ = last_layer([2], np.random.default_rng(0), sigma=100.0)
    assert len(single_label(update, 6, "adaptive")) > 1
    update, _ = last_layer([2], np.random.default_rng(0), sigma=1e-3)
    assert single_label(update, 6, "adaptive") == (2,)


def test_where_the_label_is_hidden_each_class_gets_a_search() -> None:
    inputs, labels = digits(9)
    model = sigmoid_lenet(9)
    hidden = np.zeros(model.layout.size, bool)
    hidden[-490:] = True
    seen = view(model, gradient(model, inputs, labels), hidden=hidden)
    report = run(Idlg, seen, restarts=1, tolerance=0, iterations=1)
    assert report.metrics["searches"] == 10
    naive = run(Idlg, seen, restarts=1, form="naive", iterations=1)
    assert naive.metrics["searches"] == 1


@pytest.mark.parametrize("form", ["adaptive", "naive"])
def test_labels_of_a_batch_from_the_bias(form: str) -> None:
    for number in range(6):
        model, (inputs, labels) = relu_net(number), digits(7 * number, 4 + number)
        matcher = Matcher(view(model, gradient(model, inputs, labels), len(labels)), form, len(labels), "cpu")
        assert likely_labels(matcher, None, 3)[0] == sorted(labels.tolist())


@pytest.mark.parametrize("hidden", [0.0, 0.3, 0.9])
def test_labels_of_a_batch_without_bias_agree_with_the_signs(hidden: float) -> None:
    """A class whose row has a visible negative entry is in every batch that is tried."""
    for number in range(4):
        model, (inputs, labels) = relu_net(number), digits(6 * number, 6)
        update = gradient(model, inputs, labels)
        mask = np.random.default_rng(number).random(len(update)) < hidden
        mask[-10:] = True
        seen = view(model, update, 6, hidden=mask)
        rows = seen.observed.tensor(seen.observed.layout.parameters[-2].name).dense(np.nan)
        there = set(np.flatnonzero((rows < 0).any(1)))
        assert there <= set(labels)
        tried = likely_labels(Matcher(seen, "adaptive", 6, "cpu"), None, 5)
        assert all(there <= set(each) and len(each) == 6 for each in tried)
        if not hidden:
            assert set(tried[0]) == set(labels)


def test_labels_of_a_batch_from_the_bias_of_a_layer_of_another_kind() -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = torch.nn.Parameter(0.1 * torch.randn(10, 16)), torch.nn.Parameter(torch.zeros(10))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs @ self.weight.T + self.bias

    with seeded(0):
        model = TorchModel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.ReLU(), Own()))
    inputs, labels = digits(5, 6)
    matcher = Matcher(view(model, gradient(model, inputs, labels), 6), "adaptive", 6, "cpu")
    assert likely_labels(matcher, None, 3)[0] == sorted(labels.tolist())


def test_a_batch_whose_last_layer_is_hidden_may_have_any_label() -> None:
    model, (inputs, labels) = relu_net(0), digits(0, 3)
    update = gradient(model, inputs, labels)
    hidden = np.zeros(len(update), bool)
    last = model.layout.parameters[-2]
    hidden[last.offset :] = True
    matcher = Matcher(view(model, update, 3, hidden=hidden), "adaptive", 3, "cpu")
    assert likely_labels(matcher, None, 8) == [[0, 1, 2]]

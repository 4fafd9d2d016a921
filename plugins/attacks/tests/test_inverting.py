"""Inverting gradients and GradInversion: masks, trials side by side, the choice among them, batch-norm statistics."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from fedplug_attacks._matching import Matcher
from fedplug_attacks._search import Descent, Matching, adam, total_variation
from fedplug_attacks.matching import Dlg, GradInversion, InvertingGradients
from fedplug_kit.static import check_component
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from gradient_toys import attacker, digits, error, gradient, relu_net, run, top, view
from pydantic import ValidationError
from torch import nn

BOTH = pytest.mark.parametrize("component", [InvertingGradients, GradInversion])
SWEEP = (1e-4, 1e-2, 1.0)


@pytest.mark.parametrize("name", ["attacks.inverting", "attacks.gradinversion"])
def test_conforms(name: str) -> None:
    check_component(name)


def test_bad_options_are_refused() -> None:
    for options in ({"tv": -1.0}, {"tv": ()}, {"tv": (0.1, math.nan)}, {"iterations": 0}, {"form": "other"}):
        with pytest.raises(ValidationError):
            InvertingGradients.Options(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize(("component", "options"), [(InvertingGradients, {"iterations": 300}), (Dlg, {"restarts": 1})])
def test_a_row_of_a_table_is_found_in_its_own_units(component: Any, options: dict[str, Any], scaled: bool) -> None:
    """Its columns have no neighbours and no range, and what nothing standardises has no mean."""
    rng = np.random.default_rng(0)
    mean, std = ((50.0, -3.0, 1000.0, 0.2), (10.0, 2.0, 300.0, 0.1)) if scaled else ((), ())
    row = rng.normal(size=(1, 4)) * (std or 2) + (mean or 0)
    with seeded(0):
        model = TorchModel(nn.Sequential(nn.Linear(4, 20), nn.Softplus(), nn.Linear(20, 10)))
    loss = nn.functional.cross_entropy(model.module(to_tensor(row, mean, std)), torch.tensor([3]))
    update = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    seen = dataclasses.replace(view(model, update), shape=(4,), mean=mean, std=std)
    found = run(component, seen, **options)
    assert found.status == "finished", found.reason
    assert found.images is not None
    np.testing.assert_allclose((found.images - row) / (std or 1), 0, atol=0.03)


# -- inverting gradients -----------------------------------------------------------------------------------------------


def test_a_mask_stops_only_who_takes_hidden_entries_for_zero() -> None:
    inputs, labels = digits(0)
    model = relu_net(0)
    update = gradient(model, inputs, labels)
    seen = view(model, update, hidden=top(update, 0.05))
    adaptive, naive = (
        run(InvertingGradients, seen, iterations=100, tv=1e-3, form=form) for form in ("adaptive", "naive")
    )
    assert error(adaptive, inputs) < 5e-3
    assert error(naive, inputs) > 10 * error(adaptive, inputs)


@pytest.mark.slow
def test_the_sweep_answers_with_the_smallest_distance_of_gradients() -> None:
    inputs, labels = digits(2)
    model = relu_net(2)
    seen = view(model, gradient(model, inputs, labels))
    alone = {tv: run(InvertingGradients, seen, iterations=80, tv=tv) for tv in SWEEP}
    sweep = run(InvertingGradients, seen, iterations=80, tv=SWEEP)
    best = min(SWEEP, key=lambda tv: alone[tv].metrics["loss"])
    assert sweep.metrics["tv"] == best
    assert sweep.metrics["searches"] == 3
    assert sweep.gradient_evaluations == 3 * 81
    assert error(sweep, inputs) < 2e-2
    assert error(alone[1.0], inputs) > 3 * error(sweep, inputs)


@BOTH
def test_trials_together_are_trials_apart(component: Any) -> None:
    """Computed at once or one by one, up to rounding, over the few steps in which a sign does not flip."""
    inputs, labels = digits(0, 2)
    model = relu_net(0)
    matcher = Matcher(view(model, gradient(model, inputs, labels), 2), "adaptive", 2, "cpu", double=True)
    starts = torch.randn(3, 2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    found = []
    for at_once in (3, 2, 1):
        search = Matching(
            matcher, attacker(), "cosine", rates=lambda steps: [0.05] * steps, tv=(0.1,), at_once=at_once,
            signed=component is InvertingGradients,
        )  # fmt: skip
        search.run(list(starts), [[0, 1]], 8)
        assert search.searches == 3
        assert search.total == 8 * math.ceil(3 / at_once)
        assert search.state is not None
        found.append((search.trial, search.state, search.best))
    for trial, candidates, best in found[1:]:
        assert trial == found[0][0]
        assert best == pytest.approx(found[0][2])
        torch.testing.assert_close(candidates, found[0][1])


def test_a_trial_that_diverges_does_not_touch_the_others() -> None:
    inputs, labels = digits(0)
    model = relu_net(0)
    matcher = Matcher(view(model, gradient(model, inputs, labels)), "adaptive", 1, "cpu")
    starts = torch.randn(2, 1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    spoilt = torch.tensor([math.nan, 0.0])

    class Spoilt(Descent):
        def objective(self, states: torch.Tensor, known: torch.Tensor, done: float) -> Any:
            distance = matcher.cosine(matcher.gradients(states, known)[0]) + spoilt
            return distance, distance

    search = Spoilt(matcher, attacker(), rates=lambda steps: [0.1] * steps, signed=True).run(list(starts), [[0]], 5)
    assert search.trial == 1
    assert (search.searches, search.diverged) == (2, 1)
    assert math.isfinite(search.best)


def test_adam_is_that_of_torch() -> None:
    start = torch.randn(5, generator=torch.Generator().manual_seed(0))
    theirs = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([theirs], lr=0.1)
    ours, moments = start.clone(), [torch.zeros(5), torch.zeros(5)]
    for step in range(1, 6):
        ours = adam(ours, torch.cos(ours), moments, step, 0.1)
        theirs.grad = torch.cos(theirs.detach())
        optimiser.step()
    torch.testing.assert_close(ours, theirs.detach())


def test_total_variation_of_a_step() -> None:
    image = torch.zeros(1, 1, 1, 4, 4)
    image[..., 2:] = 1.0  # one of three pairs of columns differs
    assert float(total_variation(image)) == pytest.approx(1 / 3)


def test_where_the_label_is_hidden_every_class_is_tried() -> None:
    inputs, labels = digits(3)
    model = relu_net(3)
    hidden = np.zeros(model.layout.size, bool)
    hidden[-5130:] = True  # the last layer
    seen = view(model, gradient(model, inputs, labels), hidden=hidden)
    report = run(InvertingGradients, seen, iterations=20, tv=1e-3)
    assert report.metrics["searches"] == 10
    assert report.labels is not None
    assert report.labels.tolist() == labels.tolist()


def test_a_batch_is_recovered_with_its_labels() -> None:
    inputs, labels = digits(10, 3)
    model = relu_net(3)
    report = run(InvertingGradients, view(model, gradient(model, inputs, labels), 3), iterations=70, tv=1e-3)
    assert report.labels is not None
    assert sorted(report.labels) == sorted(labels)
    assert error(report, inputs) < 2e-2


# -- GradInversion -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_batch_norm_statistics_make_up_for_noise() -> None:
    """The running statistics are public, and not in the update: noise on the update does not protect them."""
    inputs, labels = digits(100, 2)
    model = relu_net(4, norm=True)
    update = gradient(model, inputs, labels)
    sigma = 2 * float(update.std())
    noise = np.random.default_rng(0).normal(0, sigma, update.shape)
    seen = view(model, update + noise, 2, sigma=sigma)
    without, helped = (run(GradInversion, seen, bn=bn, iterations=80, restarts=1, lr=0.2) for bn in (0.0, 0.03))
    assert error(helped, inputs) < 0.5 * error(without, inputs)


def test_recovers_a_batch_of_distinct_digits() -> None:
    inputs, labels = digits(0, 4)
    model = relu_net(0, norm=True)
    report = run(GradInversion, view(model, gradient(model, inputs, labels), 4), iterations=100, restarts=1)
    assert report.labels is not None
    assert report.labels.tolist() == sorted(labels)
    assert error(report, inputs) < 5e-3


def test_the_group_holds_the_seeds_together() -> None:
    """With little of the gradient visible, seeds come to different images, less so the more the group weighs."""
    inputs, labels = digits(0)
    model = relu_net(0)
    update = gradient(model, inputs, labels)
    seen = view(model, update, hidden=np.random.default_rng(0).random(update.shape) < 0.999)
    contrasts = []
    for group in (0.0, 1.0):
        report = run(GradInversion, seen, iterations=20, restarts=4, group=group)
        assert report.images is not None
        assert report.gradient_evaluations >= 4 * 21
        contrasts.append(float(report.images.std()))
    # Pulled to the mean of four random starts, an image has less of the contrast that noise gives it.
    assert contrasts[1] < 0.8 * contrasts[0]


# -- both --------------------------------------------------------------------------------------------------------------


@BOTH
def test_forms_are_equal_where_nothing_is_hidden(component: Any) -> None:
    inputs, labels = digits(4)
    model = relu_net(4)
    seen = view(model, gradient(model, inputs, labels))
    first, second = (run(component, seen, form=form, iterations=5) for form in ("adaptive", "naive"))
    np.testing.assert_array_equal(first.images, second.images)
    assert first.losses == second.losses


@BOTH
def test_follows_the_seed(component: Any) -> None:
    inputs, labels = digits(5)
    model = relu_net(5)
    update = gradient(model, inputs, labels)
    first, again, other = (run(component, view(model, update, seed=s), iterations=10) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.images, again.images)
    assert not np.array_equal(first.images, other.images)


@BOTH
def test_a_loss_that_is_not_a_number_is_said(component: Any) -> None:
    inputs, labels = digits(0)
    model = relu_net(0)
    update = gradient(model, inputs, labels)
    update[5] = np.inf
    report = run(component, view(model, update), iterations=3)
    assert report.status == "diverged"
    assert "NaN or infinite" in report.reason


@BOTH
def test_a_search_that_ends_far_from_what_it_saw_says_that_it_did_not_fit(component: Any) -> None:
    inputs, labels = digits(0)
    model = relu_net(0)
    seen = view(model, gradient(model, inputs, labels))
    short = run(component, seen, iterations=1)
    assert short.unfit.startswith("the best search ended with a mismatch of ")
    assert short.metrics["loss"] > 0.1
    noisy = view(model, gradient(model, inputs, labels))
    noisy.update.sigma[:] = 100.0  # so much noise explains any mismatch
    assert run(component, noisy, iterations=1).unfit == ""


@BOTH
def test_an_unread_update_is_not_applicable_and_a_read_one_is_a_gradient(component: Any) -> None:
    inputs, labels = digits(6)
    model = relu_net(6)
    update = gradient(model, inputs, labels)
    seen = view(model, -0.01 * update, sign=-1, lr=0.01)
    report = run(component, seen, iterations=60)
    assert error(report, inputs) < 2e-2
    unknown = run(component, view(model, -0.01 * update, sign=-1, lr=0.01, steps=None))
    assert unknown.status == "not_applicable"
    assert "steps" in unknown.reason


@BOTH
def test_progress_reaches_its_total(component: Any) -> None:
    inputs, labels = digits(0)
    model = relu_net(0)
    calls: list[tuple[int, int, float | None]] = []
    seen = view(model, gradient(model, inputs, labels))
    component(component.Options(iterations=7, restarts=2)).attack(seen, attacker(lambda *told: calls.append(told)))
    assert [call[0] for call in calls] == [1, 2, 3, 4, 5, 6, 7, 7]
    assert {call[1] for call in calls} == {7}

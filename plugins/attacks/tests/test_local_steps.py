"""Local steps taken again on candidates: the update that std.sgd makes, orders of batches, and what is recovered."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fedplug import Client, ClientData, Facts
from fedplug_attacks import _matching
from fedplug_attacks._matching import Matcher, schedule_of
from fedplug_attacks.api.observation import Clipped, Meaning
from fedplug_attacks.api.view import View
from fedplug_attacks.labels import likely_labels
from fedplug_attacks.matching import GradInversion, Idlg, InvertingGradients
from fedplug_std.torch_model import TorchModel
from fedplug_std.training import Sgd
from gradient_toys import DIGITS, error, relu_net, run, sigmoid_lenet, view
from numpy.typing import NDArray


class Noted(Sgd):
    """SGD that notes its batches."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.name = "train"
        self.taken: list[tuple[torch.Tensor, torch.Tensor]] = []

    def batches(self, client: Any, model: Any, rng: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for batch in super().batches(client, model, rng):
            self.taken.append(batch)
            yield batch


@dataclasses.dataclass
class Trained:
    """What a client sent, and its candidates in the order of its first epoch."""

    view: View
    inputs: NDArray[np.uint8]
    candidates: torch.Tensor
    labels: list[int]
    orders: torch.Tensor


def trained(model: TorchModel, first: int, count: int, seed: int = 0, **options: Any) -> Trained:
    """A client trains on digits with `std.sgd`; what is seen is all of its update."""
    own = DIGITS.train.take(np.arange(first, first + count))
    trainer = Noted(Noted.Options(**options))
    client = Client(client_id=0, model=model, data=ClientData(own, own, own, **DIGITS.about))
    client.facts = Facts(0, 1, model.layout, (), 1, 1, seed, "")
    start, buffers = model.get_vector(), {name: value.copy() for name, value in model.get_buffers().items()}
    trainer.train(client, client.facts)
    update = model.get_vector() - start
    model.set_vector(start)
    model.set_buffers(buffers)
    told = trainer.learns(client.facts)
    assert told is not None
    size = min(options["batch_size"], count)
    seen = view(
        model, update, count, sign=-1, lr=told.lr, steps=options["epochs"] * -(-count // size), batch_size=size,
        epochs=told.epochs, momentum=told.momentum, weight_decay=told.weight_decay, class_weights=told.class_weights,
    )  # fmt: skip
    taken = torch.cat([inputs for inputs, _ in trainer.taken])
    candidates, labels = taken[:count], torch.cat([labels for _, labels in trainer.taken])[:count].tolist()
    places = [int((candidates == each).flatten(1).all(1).nonzero()[0, 0]) for each in taken]
    return Trained(seen, own.inputs, candidates, labels, torch.tensor(places).view(1, -1, count))


def matched(found: Trained, double: bool = False) -> tuple[Matcher, torch.Tensor]:
    """A matcher that knows the order, and what it makes of the true examples."""
    matcher = Matcher(found.view, "adaptive", len(found.labels), "cpu", double)
    if matcher.local is not None:
        matcher.local.orders = found.orders
    inputs = found.candidates[None].to(matcher.dtype)
    return matcher, matcher.gradients(inputs, matcher.one_hot([found.labels]))[0]


# -- the update of std.sgd ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "options"), [
    (1, {"epochs": 1, "batch_size": 1}),
    (1, {"epochs": 5, "batch_size": 1}),
    (3, {"epochs": 5, "batch_size": 3, "momentum": 0.9}),
    (2, {"epochs": 4, "batch_size": 8, "weight_decay": 0.1}),
    (5, {"epochs": 2, "batch_size": 2, "momentum": 0.5, "weight_decay": 0.1}),
    (3, {"epochs": 2, "batch_size": 2, "class_weights": tuple(np.linspace(1, 3, 10))}),
])  # fmt: skip
@pytest.mark.parametrize("norm", [False, True])
def test_steps_on_the_true_examples_are_those_of_sgd(count: int, options: dict[str, Any], norm: bool) -> None:
    found = trained(relu_net(1, norm=norm), 20, count, lr=0.1, **options)
    matcher, gradients = matched(found)
    assert (matcher.local is None) == (options["epochs"] == 1)
    assert found.view.update is not None
    meaning = found.view.update.meaning
    assert meaning.reach is not None
    if matcher.local is None:
        assert torch.equal(matcher.target, torch.from_numpy(matcher.update.dense(0.0)))
    made = -meaning.reach * gradients[0].numpy()
    np.testing.assert_allclose(made, found.view.update.dense(0.0), atol=1e-5, rtol=1e-4)
    assert float(matcher.squared(gradients)) < 1e-8


def test_clips_act_on_the_update_of_all_steps() -> None:
    found = trained(relu_net(2), 4, 2, lr=0.1, epochs=3, batch_size=2)
    update = found.view.update
    assert update is not None
    norm = 0.3 * float(np.linalg.norm(update.values))
    clip = Clipped(norm, 2, np.arange(update.layout.size), noised=False)
    clipped = dataclasses.replace(update, values=update.values * np.float32(0.3), clips=(clip,))
    found.view = dataclasses.replace(found.view, update=clipped)
    matcher, gradients = matched(found, double=True)
    assert float(matcher.squared(gradients)) < 1e-9


def test_trials_together_are_the_trials_alone_each_with_its_order() -> None:
    found = trained(relu_net(1, norm=True), 0, 4, lr=0.1, epochs=2, batch_size=2)
    matcher = Matcher(found.view, "adaptive", 4, "cpu", double=True)
    local = matcher.local
    assert local is not None
    candidates = torch.randn(2, 4, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    known = matcher.one_hot([[0, 1, 2, 3], [4, 4, 5, 6]])
    orders = torch.tensor([[[0, 1, 2, 3], [2, 0, 1, 3]], [[0, 1, 2, 3], [3, 1, 0, 2]]])
    local.orders = orders
    together, statistics = matcher.gradients(candidates, known)
    assert matcher.evaluations == 2 * 4
    for trial in range(2):
        one = slice(trial, trial + 1)
        local.orders = orders[one]
        alone, own = matcher.gradients(candidates[one], known[one])
        torch.testing.assert_close(together[trial], alone[0])
        torch.testing.assert_close(statistics[trial], own[0])


# -- which steps -------------------------------------------------------------------------------------------------------


def test_steps_follow_from_what_the_trainer_says_and_only_from_that() -> None:
    module = relu_net(0).module
    known = Meaning(lr=0.1, steps=6, batch_size=2, examples=5, epochs=2)
    schedule = schedule_of(known, module)
    assert schedule is not None
    assert (schedule.steps, schedule.lengths, schedule.shuffled) == (6, (2, 2, 1), True)
    merged = schedule_of(known, relu_net(0, norm=True).module)
    assert merged is not None
    assert merged.lengths == (2, 3)
    full = schedule_of(Meaning(lr=0.1, steps=4, examples=3), module)
    assert full is not None
    assert (full.epochs, full.shuffled) == (4, False)
    for changed in ({"lr": None}, {"steps": None}, {"examples": None}, {"epochs": 3}, {"steps": 1}):
        assert schedule_of(dataclasses.replace(known, **changed), module) is None


def test_too_many_steps_are_estimated_and_a_failure_then_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = trained(relu_net(0), 0, 1, lr=0.01, epochs=5, batch_size=1)
    report = run(InvertingGradients, found.view, iterations=3)
    assert report.metrics["steps_unrolled"] == 5
    assert report.gradient_evaluations == 5 * 4
    monkeypatch.setattr(_matching, "_MOST_STEPS", 4)
    report = run(InvertingGradients, found.view, iterations=3)
    assert "steps_unrolled" not in report.metrics
    assert report.gradient_evaluations == 4
    assert "5 local steps were taken for one mean gradient" in report.unfit
    monkeypatch.setattr(_matching, "_GRAPH_BYTES", 1000)
    assert "GiB" in run(InvertingGradients, found.view, iterations=1).unfit


# -- order and labels --------------------------------------------------------------------------------------------------


def test_without_an_order_each_step_takes_all_candidates() -> None:
    """Then nothing depends on which label or image is in which batch: they are as many steps on the whole batch."""
    found = trained(relu_net(3), 0, 4, lr=0.01, epochs=2, batch_size=2)
    whole = trained(relu_net(3), 0, 4, lr=0.01, epochs=4, batch_size=4)
    candidates, made = found.candidates[None].double(), []
    for seen in (found.view, whole.view):
        matcher = Matcher(seen, "adaptive", 4, "cpu", double=True)
        assert matcher.local is not None
        made.append(matcher.gradients(candidates, matcher.one_hot([found.labels]))[0])
    torch.testing.assert_close(*made)


def test_batches_are_those_that_fit_the_images() -> None:
    found = trained(relu_net(3), 0, 4, seed=1, lr=0.1, epochs=3, batch_size=2)
    matcher, _ = matched(found)
    local = matcher.local
    assert local is not None
    # The client's first epoch takes candidates in their order, the attacker's knows nothing of it.
    mixed = [2, 0, 3, 1]
    candidates, known = found.candidates[mixed][None], matcher.one_hot([[found.labels[place] for place in mixed]])
    local.begin()
    local.settle_orders(
        1, lambda: matcher.squared(matcher.gradients(candidates, known)[0]), np.random.default_rng(0)
    )
    assert local.orders is not None
    assert float(matcher.squared(matcher.gradients(candidates, known)[0])) < 1e-8
    batches = torch.tensor(mixed)[local.orders].view(3, 2, 2).sort(2).values
    assert torch.equal(batches, found.orders.view(3, 2, 2).sort(2).values)


def test_labels_settle_on_those_that_fit_the_images() -> None:
    found = trained(relu_net(3), 0, 3, lr=0.1, epochs=4, batch_size=3)
    matcher, _ = matched(found)
    assert matcher.local is not None
    candidates = found.candidates[[0, 0, 1]][None]  # as if the first were there twice
    true = torch.tensor([[found.labels[0], found.labels[0], found.labels[1]]])
    matcher.target = matcher.gradients(candidates, matcher.one_hot(true))[0][0]
    wrong = torch.tensor([[found.labels[0], found.labels[1], found.labels[1]]])

    def distance(labels: torch.Tensor) -> torch.Tensor:
        return matcher.squared(matcher.gradients(candidates, matcher.one_hot(labels))[0])

    assert torch.equal(matcher.local.settle_labels(wrong, distance, np.random.default_rng(0)), true)


def test_classes_without_a_negative_entry_are_not_there_after_steps_either() -> None:
    right = 0
    for number in range(5):
        found = trained(relu_net(number), 4 * number, 4, lr=0.1, epochs=5, batch_size=4)
        matcher = Matcher(found.view, "adaptive", 4, "cpu")
        told = likely_labels(matcher, None, 1)[0]
        assert set(told) == set(found.labels)
        right += told == sorted(found.labels)
    assert right >= 3


def test_batches_need_not_be_settled_where_a_search_is_short() -> None:
    found = trained(relu_net(3), 0, 4, lr=0.1, epochs=2, batch_size=2)
    for iterations in (1, 3):
        report = run(InvertingGradients, found.view, iterations=iterations, restarts=2)
        assert report.metrics["searches"] == 2
        assert report.labels is not None
        assert sorted(report.labels) == sorted(found.labels)


# -- what is recovered -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", [InvertingGradients, pytest.param(GradInversion, marks=pytest.mark.slow)])
def test_an_image_comes_back_from_three_steps(component: Any) -> None:
    found = trained(relu_net(8), 8, 1, lr=0.1, epochs=3, batch_size=1)
    options = {"tv": 1e-4} if component is InvertingGradients else {"restarts": 1, "tv": 1e-4, "bn": 0.0}
    report = run(component, found.view, iterations=100, **options)
    assert report.metrics["steps_unrolled"] == 3
    assert error(report, found.inputs) < 1e-3  # 30 dB
    assert found.view.update is not None
    as_one = dataclasses.replace(found.view, update=found.view.update.as_gradient())
    assert error(run(component, as_one, iterations=100, **options), found.inputs) > 3 * error(report, found.inputs)


def test_images_come_back_from_epochs_of_several_batches() -> None:
    found = trained(relu_net(8), 8, 4, lr=0.1, epochs=2, batch_size=2)
    report = run(InvertingGradients, found.view, iterations=150, tv=1e-4)
    assert report.metrics["steps_unrolled"] == 4
    assert error(report, found.inputs) < 3e-3  # 25 dB


def test_idlg_recovers_an_image_from_three_steps() -> None:
    found = trained(sigmoid_lenet(8), 8, 1, lr=0.1, epochs=3, batch_size=1)
    report = run(Idlg, found.view, restarts=2, iterations=30)
    assert report.metrics["steps_unrolled"] == 3
    assert error(report, found.inputs) < 1e-3

"""Adaptive label restoration: what each rule makes of hidden entries, sums, rounding, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from fedplug import Examples, Facts
from fedplug.api.data import PublicData
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.labels import Labels, largest_remainder
from fedplug_kit.static import check_component
from fedplug_std.datasets import Digits
from fedplug_std.models import LeNet5
from fedplug_std.torch_model import TorchModel, to_tensor
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

CLASSES, BATCH, SEEDS = 10, 30, range(5)
LAST = 84 * CLASSES + CLASSES


@functools.cache
def data() -> tuple[Examples, PublicData]:
    """Digits of 32x32 pixels for training, and 200 that are public."""
    found = Digits(Digits.Options()).load(None)
    train, test = (
        Examples(np.kron(part.inputs, np.ones((1, 1, 4, 4), np.uint8)), part.labels)
        for part in (found.train, found.test)
    )
    return train, PublicData(test.take(slice(0, 200)), **found.about)


@functools.cache
def case(seed: int) -> tuple[TorchModel, NDArray[np.int64], NDArray[np.float32]]:
    """An untrained LeNet-5, the true counts of a batch, and its gradient."""
    train, public = data()
    model: TorchModel = LeNet5(LeNet5.Options()).build((1, 32, 32), CLASSES, seed, "cpu")
    batch = train.take(np.random.default_rng(seed).choice(len(train), BATCH, replace=False))
    logits = model.module(to_tensor(batch.inputs, public.mean, public.std))
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels))
    gradient = torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()
    return model, np.bincount(batch.labels, minlength=CLASSES), gradient


def view_of(seed: int, hidden: Any = None, sigma: float = 0.0, **facts: Any) -> View:
    """What a server sees of the batch, as a plain gradient; the last layer is at the end of the vector."""
    model, _, gradient = case(seed)
    noise = np.random.default_rng(seed).normal(0, sigma, len(gradient)).astype(np.float32)
    known = {"sign": 1, "lr": 1.0, "steps": 1, "batch_size": BATCH, "examples": BATCH, **facts}
    update = all_clear(0, 0, model.layout, gradient + noise, Meaning(**known), hidden, sigma)
    public = data()[1]
    return View(
        "server", update=update, vector=model.get_vector(), model=model, num_classes=CLASSES, shape=(1, 32, 32),
        mean=public.mean, std=public.std, seed=1,
    )  # fmt: skip


def run(view: View, public: bool = True, **options: Any) -> AttackReport:
    attacker = Attacker(facts=Facts(0, 1, view.model.layout, (), 1, 1, 0, "", public=data()[1] if public else None))
    return Labels(Labels.Options(**options)).attack(view, attacker)  # type: ignore[arg-type]


def largest(seed: int, share: float) -> NDArray[np.bool_]:
    """Hides the largest entries of the last layer."""
    gradient = case(seed)[2]
    hidden = np.zeros(len(gradient), bool)
    hidden[len(gradient) - LAST + np.argsort(-np.abs(gradient[-LAST:]))[: round(share * LAST)]] = True
    return hidden


def numbers(share: float = 0.0, sigma: float = 0.0, seeds: Iterable[int] = SEEDS, **options: Any) -> float:
    """LnAcc over seeds."""
    found = []
    for seed in seeds:
        report = run(view_of(seed, largest(seed, share) if share else None, sigma), **options)
        assert report.counts is not None
        assert report.counts.sum() == BATCH
        found.append(np.mean(report.counts == case(seed)[1]))
    return float(np.mean(found))


def test_conforms() -> None:
    check_component("attacks.labels")


@pytest.mark.parametrize("method", ["rows", "bias", "simple"])
@pytest.mark.parametrize("public", [True, False])
def test_a_clear_gradient_tells_all(method: str, public: bool) -> None:
    assert numbers(method=method, public=public) > 0.95


def test_hidden_entries_protect_from_the_naive_form_only() -> None:
    for share, least in ((0.05, 0.95), (0.2, 0.75)):
        naive, adaptive = numbers(share, form="naive"), numbers(share)
        assert adaptive > least
        assert adaptive > naive + 0.3


def test_every_visible_entry_of_a_row_tells_more_than_one_feature() -> None:
    assert numbers(0.2) > numbers(0.2, method="bias") + 0.2
    assert numbers(0.5) > numbers(0.5, method="bias") + 0.1


def test_noise_is_averaged_over_the_row() -> None:
    many = range(12)
    assert numbers(sigma=0.01, seeds=many) > numbers(sigma=0.01, method="simple", seeds=many) + 0.03
    assert numbers(sigma=0.1) < 0.3


def test_a_row_of_which_nothing_is_seen_takes_what_the_others_leave() -> None:
    hidden = np.zeros(len(case(0)[2]), bool)
    hidden[-LAST:-CLASSES].reshape(CLASSES, -1)[4] = True
    hidden[-CLASSES + 4] = True
    for method in ("rows", "bias", "simple"):
        np.testing.assert_array_equal(run(view_of(0, hidden), method=method).counts, case(0)[1])  # type: ignore[arg-type]


def test_biases_alone_are_enough() -> None:
    hidden = np.zeros(len(case(3)[2]), bool)
    hidden[:-CLASSES] = True
    np.testing.assert_array_equal(run(view_of(3, hidden)).counts, case(3)[1])  # type: ignore[arg-type]


def test_classes_without_public_examples_are_found_too() -> None:
    view, public = view_of(2), data()[1]
    few = dataclasses.replace(public, examples=public.examples.take(public.examples.labels > 3))
    attacker = Attacker(facts=Facts(0, 1, view.model.layout, (), 1, 1, 0, "", public=few))
    report = Labels(Labels.Options()).attack(view, attacker)  # type: ignore[arg-type]
    np.testing.assert_array_equal(report.counts, case(2)[1])  # type: ignore[arg-type]


def test_not_applicable_with_the_reason() -> None:
    assert "number of examples" in Labels(Labels.Options()).finds.needs.unmet(view_of(0, examples=None))
    hidden = np.zeros(len(case(0)[2]), bool)
    hidden[-LAST:] = True
    for form in ("adaptive", "naive"):
        report = run(view_of(0, hidden), form=form)
        assert (report.status, report.counts) == ("not_applicable", None)
        assert "all entries of the last layer are hidden" in report.reason
    report = run(dataclasses.replace(view_of(0), num_classes=12))
    assert "for each of 12 classes" in report.reason
    assert run(view_of(0, steps=None)).status == "not_applicable"


def test_values_that_are_not_finite_are_said_to_be() -> None:
    view = view_of(0)
    assert view.update is not None
    view.update.values[-1] = np.nan
    assert run(view).status == "diverged"


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.integers(0, 500))
def test_whole_counts_sum_up_and_are_near_the_shares(shares: list[float], total: int) -> None:
    counts = largest_remainder(np.array(shares), total)
    assert counts.sum() == total
    assert (counts >= 0).all()
    positive = np.maximum(shares, 0.0)
    if positive.sum() > 0:
        assert np.abs(counts - positive / positive.sum() * total).max() < 1 + 1e-9


def test_largest_remainder_by_hand() -> None:
    assert largest_remainder(np.array([0.55, 0.25, 0.2, -0.1]), 10).tolist() == [6, 2, 2, 0]
    assert largest_remainder(np.array([-1.0, -1.0, -1.0]), 4).tolist() == [2, 1, 1]

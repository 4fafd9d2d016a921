"""Priors of public images: the distribution, what is most probable under noise, and that no information is the mean."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from fedplug import Facts, Layout
from fedplug.api.data import PublicData
from fedplug_attacks._matching import Matcher
from fedplug_attacks._priors import GaussianPrior, chosen, gaussian
from fedplug_attacks._search import Search
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.labels import _nearest_counts, likely_counts
from fedplug_attacks.linear_leak import LinearLeak
from fedplug_attacks.matching import GradInversion, Idlg, InvertingGradients
from fedplug_std.models import Mlp
from fedplug_std.torch_model import to_tensor
from gradient_toys import DIGITS, digits, error, gradient, relu_net, top, view
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

PERCEPTRON = Mlp(Mlp.Options(hidden=(64,)))


def public(count: int = 200) -> PublicData:
    """Digits that no test attacks."""
    return PublicData(DIGITS.train.take(slice(1000, 1000 + count)), **DIGITS.about)


def attacker(known: PublicData | None) -> Attacker:
    return Attacker(facts=Facts(0, 1, Layout(()), (), 1, 1, 0, "", public=known))


def run(component: Any, seen: View, known: PublicData | None, **options: Any) -> AttackReport:
    report: AttackReport = component(component.Options(**options)).attack(seen, attacker(known))
    return report


def noisy(model: Any, first: int, level: float, count: int = 1, **more: Any) -> View:
    """A gradient with noise of `level` times its root mean square."""
    update = gradient(model, *digits(first, count))
    sigma = level * float(np.sqrt(np.square(update, dtype=np.float64).mean()))
    noise = np.random.default_rng(first).normal(0, sigma, update.shape)
    seen: View = view(model, update + noise, count, seed=first, sigma=sigma, **more)
    return seen


def empty_view(shape: tuple[int, ...] = (1, 8, 8)) -> View:
    return View("server", shape=shape, mean=(0.3,) * shape[0], std=(0.4,) * shape[0], num_classes=10)


def mean_image(known: PublicData) -> NDArray[np.float64]:
    found: NDArray[np.float64] = known.examples.inputs.mean(0) / 255.0
    return found


# -- the distribution --------------------------------------------------------------------------------------------------


def covariance(prior: GaussianPrior) -> torch.Tensor:
    """L L', from what L does to unit vectors."""
    size = math.prod(prior.shape)
    columns = prior.spread(torch.eye(size, dtype=torch.float64).reshape(size, *prior.shape)).flatten(1)
    return columns.T @ columns


@pytest.mark.parametrize("count", [0, 1, 2, 5, 200])
def test_the_prior_is_proper_however_few_examples_there_are(count: int) -> None:
    known = public(count) if count else None
    prior = gaussian(empty_view(), known)
    sigma = covariance(prior)
    assert float(torch.linalg.eigvalsh(sigma)[0]) > 0
    forces = to_tensor(DIGITS.train.inputs[:7], (0.3,), (0.4,)).double()
    torch.testing.assert_close(prior.spread(prior.pulled(forces)).flatten(1), forces.flatten(1) @ sigma)
    if known is not None:
        torch.testing.assert_close(prior.mean, to_tensor(known.examples.inputs, (0.3,), (0.4,)).double().mean(0))


def test_held_out_examples_are_as_probable_as_they_should_be() -> None:
    """The mean energy of a normal vector is half of its numbers; more public examples bring it near."""
    x = to_tensor(DIGITS.train.inputs[:300], (0.3,), (0.4,)).double()

    def energy(prior: GaussianPrior) -> float:
        apart = (x - prior.mean).flatten(1)
        return float((apart * torch.linalg.solve(covariance(prior), apart.T).T).sum(1).mean()) / 2

    few, many = (energy(gaussian(empty_view(), public(count))) / 32 for count in (20, 400))
    assert many == pytest.approx(1, abs=0.15)
    assert abs(many - 1) <= abs(few - 1)


def test_colours_and_rows_of_tables_have_priors_too() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 5, 4), (6,)):
        inputs = rng.random((30, *shape), np.float32)
        examples = dataclasses.replace(DIGITS.train.take(slice(0, 30)), inputs=inputs)
        about = DIGITS.about | {"mean": (0.5,) * shape[0], "std": (0.3,) * shape[0]}
        seen = View("server", shape=shape, mean=about["mean"], std=about["std"])
        prior = gaussian(seen, PublicData(examples, **about))
        assert float(torch.linalg.eigvalsh(covariance(prior))[0]) > 0


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.floats(-3, 3))
def test_the_posterior_is_the_exact_one(seed: int, size: float) -> None:
    prior = gaussian(empty_view((1, 4, 4)), None)
    rng = torch.Generator().manual_seed(seed)
    precision = 10**size * torch.rand((1, 4, 4), generator=rng, dtype=torch.float64)
    force = torch.randn((1, 4, 4), generator=rng, dtype=torch.float64)
    found, _ = prior.posterior(precision, force)
    inverse = torch.linalg.inv(covariance(prior))
    right = force.flatten() + inverse @ prior.mean.flatten()
    exact = torch.linalg.solve(inverse + torch.diag(precision.flatten()), right)
    torch.testing.assert_close(found.flatten(), exact, rtol=1e-3, atol=1e-4)


def test_draws_have_the_variance_of_the_posterior() -> None:
    prior = gaussian(empty_view((1, 4, 4)), None)
    precision = torch.full((1, 4, 4), 3.0, dtype=torch.float64)
    rng = torch.Generator().manual_seed(0)
    found = torch.stack([prior.posterior(precision, torch.zeros_like(precision), rng)[1] for _ in range(100)]).mean(0)
    exact = torch.linalg.inv(torch.linalg.inv(covariance(prior)) + 3 * torch.eye(16, dtype=torch.float64)).diagonal()
    torch.testing.assert_close(found.flatten(), exact, rtol=0.3, atol=0)


# -- under noise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "count"), [(InvertingGradients, 1), (InvertingGradients, 2), (GradInversion, 1), (Idlg, 1)]
)
def test_infinite_noise_leaves_the_mean_image(component: Any, count: int) -> None:
    known = public()
    report = run(component, noisy(relu_net(0), 0, 1e6, count), known, iterations=5)
    assert report.images is not None
    np.testing.assert_allclose(report.images, np.broadcast_to(mean_image(known), report.images.shape), atol=1e-3)
    assert report.metrics["information"] < 1e-3


@pytest.mark.parametrize("count", [1, 3])
def test_infinite_noise_leaves_the_mean_image_of_a_linear_layer(count: int) -> None:
    known = public()
    model = PERCEPTRON.build((1, 8, 8), 10, 0, "cpu")
    for first in range(5):
        report = run(LinearLeak, noisy(model, first, 1e6, count), known)
        assert report.images is not None
        np.testing.assert_allclose(report.images, np.broadcast_to(mean_image(known), report.images.shape), atol=1e-5)


def test_a_linear_layer_under_noise_gives_more_with_a_prior() -> None:
    """Noise of three times the gradient: the quotient alone is worse than the mean image."""
    known, errors = public(), []
    for first in (0, 3):
        seen = noisy(PERCEPTRON.build((1, 8, 8), 10, first, "cpu"), first, 3.0)
        truth = digits(first)[0]
        with_prior, without = (error(run(LinearLeak, seen, known, prior=prior), truth) for prior in ("auto", "none"))
        errors.append((with_prior, without, float(np.square(mean_image(known) - truth[0] / 255.0).mean())))
    ours, alone, trivial = np.mean(errors, axis=0)
    assert ours < 0.5 * trivial < trivial < alone


def test_a_prior_changes_nothing_of_a_linear_layer_in_the_clear() -> None:
    model = PERCEPTRON.build((1, 8, 8), 10, 0, "cpu")
    seen = view(model, gradient(model, *digits(0)))
    first, second = (run(LinearLeak, seen, public(), prior=prior) for prior in ("auto", "none"))
    np.testing.assert_array_equal(first.images, second.images)


@pytest.mark.slow
def test_inversion_under_noise_gives_more_with_a_prior() -> None:
    known = public()
    seen, truth = noisy(relu_net(3), 3, 2.0), digits(3)[0]
    searches = ("auto", 50), ("none", 100)  # without a prior it needs more steps
    ours, alone = (error(run(InvertingGradients, seen, known, prior=p, iterations=n), truth) for p, n in searches)
    trivial = float(np.square(mean_image(known) - truth[0] / 255.0).mean())
    assert ours < 0.6 * min(alone, trivial)


def test_a_prior_is_taken_where_it_has_something_to_say() -> None:
    model = relu_net(0)
    clear, loud = (Matcher(noisy(model, 0, level), "adaptive", 1, "cpu") for level in (1e-6, 1.0))
    assert clear.noise < 1e-3
    assert loud.noise == pytest.approx(0.5, abs=0.05)
    either, noise, known = ("noise", "public"), ("noise",), ("public",)
    assert chosen("auto", clear, None, either) is None
    assert chosen("auto", loud, None, either) is not None
    assert chosen("auto", loud, None, known) is None
    assert chosen("auto", clear, public(), either) is not None
    assert chosen("auto", clear, public(), noise) is None
    assert chosen("none", loud, public(), either) is None


# -- floors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.1, 1.0, 10.0])
def test_the_truth_fits_what_was_seen_by_every_measure(level: float) -> None:
    model = relu_net(1)
    for first in range(4):
        matcher = Matcher(noisy(model, first, level), "adaptive", 1, "cpu")
        inputs, labels = digits(first)
        gradients, _ = matcher.gradients(
            to_tensor(inputs, DIGITS.mean, DIGITS.std)[None], matcher.one_hot([labels.tolist()])
        )
        squared, cosine = float(matcher.squared(gradients)), float(matcher.cosine(gradients))
        for measure, loss in (("squared", squared), ("distance", math.sqrt(squared)), ("cosine", cosine)):
            search = Search(matcher, attacker(None), measure)  # type: ignore[arg-type]
            assert loss <= matcher.floor_of(measure)  # type: ignore[arg-type]
            search.offer(loss, torch.zeros(1, 1, 8, 8), [0])
            assert search.unfit() == ""
            if level <= 1:  # well above what the truth reaches, though noise explains much of it
                search.best = matcher.floor_of(measure) + 0.2 * (1 - matcher.floor_of(measure))  # type: ignore[arg-type]
                assert "mismatch" in search.unfit()


# -- labels ------------------------------------------------------------------------------------------------------------


def test_counts_come_in_the_order_of_their_cost() -> None:
    expected, variance = np.array([2.4, 0.6, 1.0]), np.full(3, 0.5)
    found = _nearest_counts(expected, variance, 4, 100)
    assert found[0].tolist() == [2, 1, 1]
    costs = [float(((counts - expected) ** 2).sum()) for counts in found]
    assert costs == sorted(costs)
    assert all(counts.sum() == 4 and (counts >= 0).all() for counts in found)
    every = [(a, b, 4 - a - b) for a in range(5) for b in range(5 - a)]
    within = [each for each in every if (((np.array(each) - expected) ** 2).sum() - costs[0]) <= 6]
    assert {tuple(counts) for counts in found} == set(within)


@pytest.mark.parametrize(
    ("numbers", "iterations"), [((4,), 20), pytest.param(range(10), 50, marks=pytest.mark.slow)]
)
def test_inversion_finds_the_labels_that_the_label_attack_finds(numbers: Sequence[int], iterations: int) -> None:
    """Batches of 8, the largest 30% of all entries hidden."""
    right = {"counts": 0, "inverting": 0}
    known = public()
    for number in numbers:
        model, (inputs, labels) = relu_net(number), digits(8 * number, 8)
        update = gradient(model, inputs, labels)
        seen = view(model, update, 8, seed=number, hidden=top(update, 0.3))
        truth = np.bincount(labels, minlength=10)
        right["counts"] += np.array_equal(likely_counts([seen], known, "adaptive", 8, 1)[0], truth)
        counts = run(InvertingGradients, seen, known, iterations=iterations).counts
        right["inverting"] += counts is not None and np.array_equal(counts, truth)
    assert right["counts"] >= 0.8 * len(numbers)
    assert right["inverting"] >= right["counts"]

"""The linear leak: exact for one example, whatever is hidden of most rows; several examples; what it refuses."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from fedplug import Examples, Facts
from fedplug.api.data import PublicData
from fedplug.api.errors import MetricError, ViewError
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.image_metrics import Mse, Rows
from fedplug_attacks.linear_leak import LinearLeak
from fedplug_attacks.workshop.target_truth import scale_of
from fedplug_kit.static import check_component
from fedplug_std.datasets import BreastCancer, Digits
from fedplug_std.models import LeNet5, Mlp
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

HIDDEN, SHAPE = 32, (1, 8, 8)
PIXELS = 64
MEAN, STD = (0.3,), (0.4,)


@functools.cache
def digits() -> Examples:
    return Digits(Digits.Options()).load(None).train


def images_of(batch: Examples) -> NDArray[np.float32]:
    return batch.inputs.astype(np.float32) / 255


def perceptron(seed: int = 0) -> TorchModel:
    model: TorchModel = Mlp(Mlp.Options(hidden=(HIDDEN,))).build(SHAPE, 10, seed, "cpu")
    return model


def gradient_of(model: TorchModel, batch: Examples) -> NDArray[np.float32]:
    logits = model.module(to_tensor(batch.inputs, MEAN, STD))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels))
    return torch.cat([part.reshape(-1) for part in torch.autograd.grad(loss, model.parameters)]).numpy()


def view_of(model: TorchModel, update: NDArray[np.float32], examples: int, hidden: Any = None, sigma: float = 0.0,
            shape: tuple[int, ...] = SHAPE) -> View:  # fmt: skip
    observed = all_clear(0, 0, model.layout, update, Meaning(examples=examples), hidden, sigma)
    return View("server", update=observed, num_classes=10, shape=shape, mean=MEAN, std=STD, seed=2)


def run(view: View, form: str = "adaptive", public: Examples | None = None) -> AttackReport:
    assert view.update is not None
    known = None if public is None else PublicData(public, classes=(), mean=MEAN, std=STD)
    attacker = Attacker(facts=Facts(0, 1, view.update.layout, (), 1, 1, 0, "", public=known))
    return LinearLeak(LinearLeak.Options(form=form)).attack(view, attacker)  # type: ignore[arg-type]


def error(report: AttackReport, batch: Examples) -> float:
    assert report.images is not None
    return float(np.abs(report.images - images_of(batch)).max())


def mask(layout: Any, weights: Any = False, biases: Any = False) -> NDArray[np.bool_]:
    """Hides entries of the first layer."""
    hidden = np.zeros(layout.size, bool)
    hidden[: HIDDEN * PIXELS] = np.broadcast_to(weights, (HIDDEN, PIXELS)).reshape(-1)
    hidden[HIDDEN * PIXELS : HIDDEN * PIXELS + HIDDEN] = biases
    return hidden


def test_conforms() -> None:
    check_component("attacks.linear_leak")


@pytest.mark.parametrize("form", ["adaptive", "naive"])
@pytest.mark.parametrize("place", range(0, 60, 20))
def test_one_example_is_exact(form: str, place: int) -> None:
    batch = digits().take(slice(place, place + 1))
    model = perceptron(place)
    report = run(view_of(model, gradient_of(model, batch), 1), form)
    assert report.status == "finished"
    assert report.images is not None
    assert (report.images.shape, report.images.dtype) == ((1, *SHAPE), np.float32)
    assert error(report, batch) < 1e-5


def test_many_local_steps_on_one_example_are_exact_too() -> None:
    batch, model = digits().take(slice(7, 8)), perceptron()
    start, optimiser = model.get_vector(), torch.optim.SGD(model.parameters, 0.1, momentum=0.5)
    for _ in range(5):
        optimiser.zero_grad()
        inputs, labels = to_tensor(batch.inputs, MEAN, STD), torch.from_numpy(batch.labels)
        nn.functional.cross_entropy(model.module(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert error(run(view_of(model, model.get_vector() - start, 1)), batch) < 1e-3


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31), st.floats(0, 0.5), st.floats(0, 0.5))
def test_random_gaps_are_filled_from_other_rows(seed: int, weights: float, biases: float) -> None:
    rng, batch, model = np.random.default_rng(seed), digits().take(slice(3, 4)), perceptron()
    hidden = mask(model.layout, rng.random((HIDDEN, PIXELS)) < weights, rng.random(HIDDEN) < biases)
    report = run(view_of(model, gradient_of(model, batch), 1, hidden))
    assert report.metrics["hidden_pixels"] <= 2
    if not report.metrics["hidden_pixels"]:
        assert error(report, batch) < 1e-3


def test_hidden_rows_fool_the_naive_form_only() -> None:
    batch, model = digits().take(slice(5, 6)), perceptron()
    gradient = gradient_of(model, batch)
    largest = int(np.argmax(np.abs(gradient[HIDDEN * PIXELS : HIDDEN * PIXELS + HIDDEN])))
    hidden = mask(model.layout, weights=(np.arange(HIDDEN) == largest)[:, None])
    assert error(run(view_of(model, gradient, 1, hidden), "naive"), batch) > 0.3
    assert error(run(view_of(model, gradient, 1, hidden)), batch) < 1e-5


def test_without_biases_the_direction_and_the_range_give_the_image() -> None:
    batch, model = digits().take(slice(9, 10)), perceptron()
    assert images_of(batch).min() == 0
    assert images_of(batch).max() == 1
    view = view_of(model, gradient_of(model, batch), 1, mask(model.layout, biases=True))
    assert error(run(view), batch) < 1e-5
    naive = run(view, "naive")
    assert (naive.status, naive.images) == ("diverged", None)


def test_pixels_nobody_shows_are_counted_and_filled() -> None:
    batch, model = digits().take(slice(4, 5)), perceptron()
    gone = np.arange(PIXELS) % 8 == 3
    view = view_of(model, gradient_of(model, batch), 1, mask(model.layout, weights=gone))
    public = digits().take(slice(100, 200))
    for report, fill in (
        (run(view), images_of(batch).reshape(-1)[~gone].mean()),
        (run(view, public=public), images_of(public).mean(0).reshape(-1)[gone]),
    ):
        assert report.metrics["hidden_pixels"] == 8
        assert report.images is not None
        found = report.images.reshape(-1)
        np.testing.assert_allclose(found[~gone], images_of(batch).reshape(-1)[~gone], atol=1e-5)
        np.testing.assert_allclose(found[gone], fill, atol=1e-5)


def test_all_rows_together_average_noise() -> None:
    batch, model = digits().take(slice(11, 12)), perceptron()
    gradient = gradient_of(model, batch)
    noise = np.random.default_rng(0).normal(0, 0.003, len(gradient)).astype(np.float32)
    view = view_of(model, gradient + noise, 1, sigma=0.003)
    naive, adaptive = run(view, "naive").images, run(view).images
    assert naive is not None
    assert adaptive is not None
    squares = [float(((found - images_of(batch)) ** 2).mean()) for found in (naive, adaptive)]
    assert squares[1] < squares[0] / 2


def test_rows_of_a_single_example_leak_it_from_a_batch() -> None:
    batch = digits().take(slice(0, 4))
    with seeded(0):
        model = TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10)))
    # 20 rows see one example each, by a bias that only it exceeds; the others see all of them.
    inputs = to_tensor(batch.inputs, MEAN, STD).reshape(4, -1)
    weight, bias = model.parameters[:2]
    with torch.no_grad():
        weight[:20] = inputs.repeat(5, 1)
        products = (inputs @ inputs.T).fill_diagonal_(-torch.inf)
        bias[:20] = (-(products.max(1).values + (inputs**2).sum(1)) / 2).repeat(5)
    gradient = gradient_of(model, batch)
    hidden = mask(model.layout, weights=np.random.default_rng(1).random((HIDDEN, PIXELS)) < 0.2)
    for view in (view_of(model, gradient, 4), view_of(model, gradient, 4, hidden)):
        report = run(view)
        assert report.images is not None
        assert len(report.images) == 4
        assert report.metrics["agreeing_rows"] >= 20
        for image in images_of(batch):
            assert np.abs(report.images - image).max(axis=(1, 2, 3)).min() < 1e-3
    assert len(run(view_of(model, gradient, 40)).images) == 40  # type: ignore[arg-type]


def test_refused_with_the_reason() -> None:
    batch, model = digits().take(slice(0, 3)), perceptron()
    gradient = gradient_of(model, batch)
    blind = run(view_of(model, gradient, 3, mask(model.layout, biases=True)))
    assert blind.status == "not_applicable"
    assert "3 examples have no common direction" in blind.reason
    wide = run(view_of(model, gradient, 1, shape=(3, 8, 8)))
    assert "an input for each of the 192 values" in wide.reason
    lenet = LeNet5(LeNet5.Options()).build((1, 32, 32), 10, 0, "cpu")
    needs = LinearLeak(LinearLeak.Options()).finds.needs
    view = view_of(lenet, np.zeros(lenet.layout.size, np.float32), 1)
    assert "no fully connected first weight" in needs.unmet(view)
    hidden = mask(model.layout, weights=True)
    assert f"all {HIDDEN * PIXELS} entries" in needs.unmet(view_of(model, gradient, 1, hidden))
    assert "number of examples" in needs.unmet(view_of(model, gradient, None))  # type: ignore[arg-type]
    zero = run(view_of(model, np.zeros_like(gradient), 1))
    assert (zero.status, zero.images) == ("not_applicable", None)
    gradient[0] = np.nan
    assert run(view_of(model, gradient, 3)).status == "diverged"


def test_a_view_says_what_it_lacks() -> None:
    view, facts = View("eavesdropper"), Facts(0, 1, perceptron().layout, (), 1, 1, 0, "")
    unseen = LinearLeak(LinearLeak.Options()).attack(view, Attacker(facts=facts))
    assert unseen.status == "not_applicable"
    assert unseen.reason == "the adversary eavesdropper saw no update of this target"
    with pytest.raises(ViewError, match="eavesdropper does not know the model"):
        view.start  # noqa: B018


@pytest.mark.parametrize("standardised", [True, False])
def test_a_row_of_a_table_comes_back_in_the_units_of_its_columns(standardised: bool) -> None:
    table = BreastCancer(BreastCancer.Options()).load(None)
    mean, std = (table.mean, table.std) if standardised else ((), ())
    batch = table.train.take(slice(3, 4))
    if not standardised:
        batch = Examples(batch.inputs / np.asarray(table.std, np.float32), batch.labels)
    model: Any = Mlp(Mlp.Options(hidden=(16,))).build((30,), 2, 0, "cpu")
    logits = model.module(to_tensor(batch.inputs, mean, std))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(batch.labels))
    parts = torch.autograd.grad(loss, model.parameters)
    observed = all_clear(
        0, 0, model.layout, torch.cat([part.reshape(-1) for part in parts]).numpy(), Meaning(examples=1)
    )
    view = View("server", update=observed, num_classes=2, shape=(30,), mean=mean, std=std, seed=2)
    report = run(view)
    assert report.images is not None
    np.testing.assert_allclose(report.images, batch.inputs, rtol=1e-3, atol=1e-3)
    spreads = scale_of(batch, std)
    truth = Truth(batch.inputs, batch.labels, 2, scale=spreads)
    scored = Rows(Rows.Options()).score(report, truth)
    assert scored["rows_recovered"] == 1
    assert scored["worst_column_error"] < 1e-3
    moved = AttackReport("finished", images=batch.inputs + 2 * np.asarray(spreads))
    assert Rows(Rows.Options()).score(moved, truth) == pytest.approx(
        {"rows_recovered": 0.0, "column_error": 2.0, "worst_column_error": 2.0}, rel=1e-3
    )
    assert Mse(Mse.Options()).score(moved, truth)["mse"] == pytest.approx(4.0, rel=1e-3)


def test_what_is_no_row_of_a_table_has_no_number_of_rows() -> None:
    pictures = np.zeros((1, 1, 8, 8), np.float32)
    with pytest.raises(MetricError, match="compares rows of a table, but these are images; use"):
        Rows(Rows.Options()).score(AttackReport("finished", images=pictures), Truth(pictures, np.zeros(1, int), 10))

"""iLRG: what it restores on a clear gradient, what zero-filling hides, noise, training, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import fedplug_attacks.labels
import numpy as np
import pytest
import torch
from fedplug import Examples, Facts
from fedplug.api.data import PublicData
from fedplug_attacks.api.observation import Meaning, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.api.view import Attacker, View
from fedplug_attacks.label_metrics import LabelAccuracy
from fedplug_attacks.labels import Ilrg
from fedplug_kit.static import check_component
from fedplug_std.datasets import Digits, Mnist
from fedplug_std.models import LeNet5, Mlp
from fedplug_std.torch_model import TorchModel, seeded, to_tensor
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn

CLASSES, BATCH, SEEDS = 10, 30, range(6)
WEIGHT, BIAS = "fc3.weight", "fc3.bias"


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    """Training examples, of which batches are drawn, and 200 other examples that are public."""

    train: Examples
    public: PublicData

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train.inputs.shape[1:])


@functools.cache
def digits() -> Data:
    """Digits of 32x32 pixels, as LeNet-5 wants them."""
    found = Digits(Digits.Options()).load(None)

    def enlarged(examples: Examples) -> Examples:
        return Examples(np.kron(examples.inputs, np.ones((1, 1, 4, 4), np.uint8)), examples.labels)

    public = enlarged(found.test).take(slice(0, 200))
    return Data(enlarged(found.train), PublicData(public, **found.about))


@functools.cache
def mnist() -> Data:
    found = Mnist(Mnist.Options()).load(None)
    return Data(found.train, PublicData(found.test.take(slice(0, 200)), **found.about))


def lenet(data: Data, seed: int, steps: int = 0) -> TorchModel:
    """LeNet-5, trained for this number of SGD steps."""
    model: TorchModel = LeNet5(LeNet5.Options()).build(data.shape, CLASSES, seed, "cpu")
    optimiser, rng = torch.optim.SGD(model.parameters, 0.05, momentum=0.9), np.random.default_rng(seed)
    for _ in range(steps):
        optimiser.zero_grad()
        loss_of(model, data, data.train.take(rng.integers(0, len(data.train), 32))).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model


def loss_of(model: TorchModel, data: Data, batch: Examples) -> torch.Tensor:
    inputs = to_tensor(batch.inputs, data.public.mean, data.public.std)
    return nn.functional.cross_entropy(model.module(inputs), torch.from_numpy(batch.labels))


def gradient_of(model: TorchModel, data: Data, batch: Examples) -> NDArray[np.float32]:
    gradients = torch.autograd.grad(loss_of(model, data, batch), model.parameters)
    return torch.cat([gradient.reshape(-1) for gradient in gradients]).numpy()


@functools.cache
def case(make: Any, seed: int, steps: int = 0) -> tuple[TorchModel, Examples, NDArray[np.float32]]:
    """A model, a batch, and its gradient."""
    data = make()
    model = lenet(data, seed, steps)
    batch = data.train.take(np.random.default_rng(seed).choice(len(data.train), BATCH, replace=False))
    return model, batch, gradient_of(model, data, batch)


def view_of(model: TorchModel, data: Data, gradient: NDArray[np.float32], hidden: Any = None, sigma: float = 0.0,
            **facts: Any) -> View:  # fmt: skip
    """What a server sees of one step of plain gradient descent with lr 0.5."""
    known = {"sign": -1, "lr": 0.5, "steps": 1, "batch_size": BATCH, "examples": BATCH, **facts}
    update = all_clear(0, 0, model.layout, -0.5 * gradient, Meaning(**known), hidden, 0.5 * sigma)
    return View(
        "server", update=update, vector=model.get_vector(), model=model, num_classes=CLASSES, shape=data.shape,
        mean=data.public.mean, std=data.public.std, seed=5,
    )  # fmt: skip


def run(view: View, form: str = "adaptive", public: PublicData | None = None) -> AttackReport:
    attacker = Attacker(facts=Facts(0, 1, view.model.layout, (), 1, 1, 0, "", public=public))
    return Ilrg(Ilrg.Options(form=form)).attack(view, attacker)  # type: ignore[arg-type]


def accuracy(report: AttackReport, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    truth = Truth(np.zeros((len(labels), 1, 1, 1), np.float32), labels, CLASSES)
    score = LabelAccuracy(LabelAccuracy.Options()).score(report, truth)
    return np.array([score["le_acc"], score["ln_acc"]])


def mean_accuracy(form: str, hide: Any = None, sigma: float = 0.0, steps: int = 0, seeds: Any = SEEDS,
                  make: Any = digits, public: bool = True) -> tuple[float, float]:  # fmt: skip
    """LeAcc and LnAcc over seeds. `hide` makes a mask of model and gradient."""
    found = []
    for seed in seeds:
        model, batch, gradient = case(make, seed, steps)
        noise = np.random.default_rng(seed).normal(0, sigma, len(gradient)).astype(np.float32)
        hidden = None if hide is None else hide(model, gradient)
        view = view_of(model, make(), gradient + noise, hidden, sigma)
        found.append(accuracy(run(view, form, make().public if public else None), batch.labels))
    le_acc, ln_acc = np.mean(found, 0)
    return float(le_acc), float(ln_acc)


def last_layer_of(model: TorchModel) -> NDArray[np.intp]:
    places = [np.arange(p.slice.start, p.slice.stop) for p in model.layout.parameters if p.name in (WEIGHT, BIAS)]
    return np.concatenate(places)


def largest(share: float) -> Any:
    """Hides the largest entries of the last layer."""

    def hide(model: TorchModel, gradient: NDArray[np.float32]) -> NDArray[np.bool_]:
        hidden, places = np.zeros(len(gradient), bool), last_layer_of(model)
        hidden[places[np.argsort(-np.abs(gradient[places]))[: round(share * len(places))]]] = True
        return hidden

    return hide


def biases(model: TorchModel, gradient: NDArray[np.float32]) -> NDArray[np.bool_]:
    hidden = np.zeros(len(gradient), bool)
    hidden[last_layer_of(model)[-CLASSES:]] = True
    return hidden


def test_conforms() -> None:
    check_component("attacks.ilrg")


@pytest.mark.parametrize("form", ["adaptive", "naive"])
def test_restores_the_batch_of_an_untrained_lenet(form: str) -> None:
    le_acc, ln_acc = mean_accuracy(form)
    assert le_acc >= 0.99
    assert ln_acc >= 0.95


@pytest.mark.data
@pytest.mark.parametrize("form", ["adaptive", "naive"])
def test_restores_the_batch_of_an_untrained_lenet_on_mnist(form: str) -> None:
    assert mean_accuracy(form, make=mnist)[1] >= 0.95
    adaptive, naive = (mean_accuracy(which, largest(0.05), make=mnist)[1] for which in ("adaptive", "naive"))
    assert adaptive > naive + 0.7


def test_zero_filling_hides_what_the_adaptive_form_finds() -> None:
    for hide in (largest(0.05), biases):
        naive, adaptive = mean_accuracy("naive", hide), mean_accuracy("adaptive", hide)
        assert naive[0] < 0.5, "below the guess that every class is there"
        assert naive[1] < 0.15
        assert adaptive[0] > 0.95
        assert adaptive[1] > 0.8


def test_hidden_biases_need_no_public_data() -> None:
    assert mean_accuracy("adaptive", biases, public=False)[1] > 0.9


def test_a_single_hidden_bias_follows_from_the_sum() -> None:
    model, _, gradient = case(digits, 1)
    hidden = np.zeros(len(gradient), bool)
    hidden[last_layer_of(model)[-3]] = True
    clear, partial = (run(view_of(model, digits(), gradient, mask)).counts for mask in (None, hidden))
    np.testing.assert_array_equal(clear, partial)  # type: ignore[arg-type]


def test_noise_of_a_tenth_destroys_the_numbers_but_little_noise_does_not() -> None:
    assert mean_accuracy("adaptive", sigma=0.001)[1] > 0.9
    assert mean_accuracy("adaptive", sigma=0.1)[1] < 0.3
    assert mean_accuracy("naive", sigma=0.1)[1] < 0.3


def test_training_blunts_it() -> None:
    untrained, trained = (mean_accuracy("naive", steps=steps, seeds=range(2))[1] for steps in (0, 60))
    assert untrained > 0.9
    assert trained < 0.5


def test_the_scale_of_the_update_does_not_matter() -> None:
    model, _, gradient = case(digits, 2)
    one = run(view_of(model, digits(), gradient)).counts
    many = run(view_of(model, digits(), 4 * gradient, steps=4)).counts
    np.testing.assert_array_equal(one, many)  # type: ignore[arg-type]


def test_counts_are_not_renormalised_and_those_above_the_batch_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = np.array([31.0, 30.4, -2.0, 0.4, 0.6, 2.5, 1.5, 0, 0, 0])
    monkeypatch.setattr(fedplug_attacks.labels, "_solve", lambda *_: solved)
    model, _, gradient = case(digits, 0)
    report = run(view_of(model, digits(), gradient), "naive")
    assert report.counts is not None
    assert report.counts.tolist() == [0, 30, 0, 0, 1, 2, 2, 0, 0, 0]
    assert report.metrics["surplus"] == 5


def test_quotients_of_nothing_are_kept_within_ten_powers_of_ten() -> None:
    weight = np.array([[0.02, -3e-20, 0.0], [4.0, 2.0, 1.0]])
    quotients = fedplug_attacks.labels._quotients(weight, np.array([0.0, 0.5]))
    np.testing.assert_allclose(quotients, [[2e10, -3e10, 0.0], [8.0, 4.0, 2.0]])


def test_leaves_the_model_as_it_was() -> None:
    with seeded(3):
        module = nn.Sequential(
            nn.Flatten(), nn.Linear(1024, 20), nn.BatchNorm1d(20), nn.ReLU(), nn.Dropout(), nn.Linear(20, 10)
        )
    model = TorchModel(module.eval())
    batch = digits().train.take(slice(0, BATCH))
    view = view_of(model, digits(), gradient_of(model, digits(), batch))
    before, random = model.get_buffers(), torch.random.get_rng_state()
    first, second = run(view).counts, run(view).counts
    np.testing.assert_array_equal(first, second)  # type: ignore[arg-type]
    assert not module.training
    assert torch.equal(random, torch.random.get_rng_state())
    for name, values in model.get_buffers().items():
        np.testing.assert_array_equal(values, before[name])


def test_not_applicable_with_the_reason() -> None:
    model, _, gradient = case(digits, 0)
    attack = Ilrg(Ilrg.Options())
    assert "number of examples" in attack.finds.needs.unmet(view_of(model, digits(), gradient, examples=None))
    assert attack.finds.needs.unmet(view_of(model, digits(), gradient)) == ""
    wrong = dataclasses.replace(view_of(model, digits(), gradient), num_classes=7)
    report = run(wrong)
    assert report.status == "not_applicable"
    assert report.reason.startswith(
        "the last layer (fc3.weight, 10x84) is not fully connected with one output for each of 7"
    )
    hidden = np.zeros(len(gradient), bool)
    hidden[last_layer_of(model)] = True
    for form in ("naive", "adaptive"):
        report = run(view_of(model, digits(), gradient, hidden), form)
        assert (report.status, report.counts) == ("not_applicable", None)
        assert "all entries of the last layer are hidden (fc3.weight, fc3.bias)" in report.reason
    assert "learning rate" in run(view_of(model, digits(), gradient, lr=None)).reason
    with seeded(0):
        bare = TorchModel(nn.Sequential(nn.Flatten(), nn.Linear(1024, 10, bias=False)))
    view = view_of(bare, digits(), gradient_of(bare, digits(), digits().train.take(slice(0, BATCH))))
    assert "has no bias" in run(view, "naive").reason
    assert run(view, "adaptive").status == "finished"


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_said_to_be(bad: float) -> None:
    model = Mlp(Mlp.Options(hidden=())).build(digits().shape, CLASSES, 0, "cpu")
    gradient = np.zeros(model.layout.size, np.float32)
    gradient[-1] = bad
    for form in ("naive", "adaptive"):
        report = run(view_of(model, digits(), gradient), form)
        assert (report.status, report.counts) == ("diverged", None)
        assert "not finite" in report.reason


def test_describes_itself_and_refuses_other_forms() -> None:
    assert "naive" in Ilrg(Ilrg.Options(form="naive")).describe()
    with pytest.raises(ValidationError):
        Ilrg.Options(form="zero")  # type: ignore[arg-type]

"""AdamW and FedProx: steps are those of torch and of the paper; rates and small batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from fedplug_std.optimisers import AdamW, FedProx
from fedplug_std.training import Sgd
from test_std_training import client_with, data_of, mlp, sgd, train
from torch import nn


def made(kind: type[Sgd], **options: Any) -> Any:
    trainer = kind(kind.Options(**options))
    trainer.name = "train"
    return trainer


def test_steps_of_adamw_are_those_of_torch_optim_adamw() -> None:
    data, model, reference = data_of(40), mlp(), mlp()
    party = client_with(model, data)
    trainer = made(AdamW, epochs=2, batch_size=16, lr=0.01, weight_decay=0.1, beta1=0.8, beta2=0.95, eps=1e-6)
    train(trainer, party)
    rng = party.rng(trainer)
    rng.integers(2**63)
    optimiser = torch.optim.AdamW(
        reference.module.parameters(), lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1
    )
    for _ in range(2):
        order = rng.permutation(40)
        for start in range(0, 40, 16):
            batch = data.train.take(order[start : start + 16])
            inputs = torch.tensor((batch.inputs / 255 - 0.3) / 0.4, dtype=torch.float32)
            optimiser.zero_grad()
            nn.functional.cross_entropy(reference.module(inputs), torch.tensor(batch.labels)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    np.testing.assert_allclose(model.get_vector(), reference.get_vector(), atol=2e-6)


def test_adamw_begins_anew_in_every_round() -> None:
    data = data_of(20)
    once, again = mlp(), mlp()
    party = client_with(again, data)
    trainer = made(AdamW, batch_size=20, lr=0.01)
    train(trainer, client_with(once, data))
    train(trainer, party)
    start = again.get_vector().copy()
    again.set_vector(mlp().get_vector())
    train(trainer, party)
    np.testing.assert_array_equal(again.get_vector(), start)


def test_the_proximal_term_pulls_back_as_its_equation_says() -> None:
    """One full batch twice: the second step has the gradient of mu/2 |w - w_t|^2, mu (w_1 - w_t), on top."""
    data, lr, mu = data_of(16), 0.1, 0.5
    plain, pulled = mlp(), mlp()
    start = plain.get_vector().copy()
    train(sgd(epochs=1, batch_size=16, lr=lr, micro_batch=16), client_with(plain, data))
    first = plain.get_vector().copy()
    plain.set_vector(start)
    train(sgd(epochs=2, batch_size=16, lr=lr, micro_batch=16), client_with(plain, data))
    train(made(FedProx, epochs=2, batch_size=16, lr=lr, mu=mu), client_with(pulled, data))
    np.testing.assert_allclose(pulled.get_vector(), plain.get_vector() - lr * mu * (first - start), atol=2e-6)


def test_without_a_pull_fedprox_is_sgd() -> None:
    data, one, other = data_of(30), mlp(), mlp()
    train(sgd(batch_size=8, lr=0.1, micro_batch=8), client_with(one, data))
    train(made(FedProx, batch_size=8, lr=0.1, mu=0.0), client_with(other, data))
    np.testing.assert_allclose(one.get_vector(), other.get_vector(), atol=1e-6)


@pytest.mark.parametrize("weights", [None, True])
@pytest.mark.parametrize("at_once", [1, 5, 16, 100])
def test_gradients_of_small_batches_add_up_to_that_of_the_batch(at_once: int, weights: bool | None) -> None:
    """Class weights too, by which the mean of a batch divides."""
    data, whole, parts = data_of(40), mlp(), mlp()
    options: dict[str, Any] = {"epochs": 2, "batch_size": 16, "lr": 0.1, "momentum": 0.5}
    options["class_weights"] = weights and tuple(1.0 + 3 * k for k in range(len(data.classes)))
    told = train(sgd(**options), client_with(whole, data))
    same = train(sgd(**options, micro_batch=at_once), client_with(parts, data))
    np.testing.assert_allclose(parts.get_vector(), whole.get_vector(), atol=5e-6)
    assert same["loss"] == pytest.approx(told["loss"], rel=1e-5)


def test_the_rate_warms_up_and_follows_half_a_cosine() -> None:
    """9 rounds, 2 of them of warm-up: 1/3, 2/3, then (1 + cos(pi t / 7)) / 2."""
    trainer = sgd(lr=1.0, schedule="cosine", warm_up=2)
    rates = [trainer.learning_rate(client_with(mlp(), data_of(4), round=round).facts) for round in range(9)]
    after = [(1 + math.cos(math.pi * t / 7)) / 2 for t in range(7)]
    assert rates == pytest.approx([1 / 3, 2 / 3, *after])
    plain = sgd(lr=1.0, lr_decay=0.5)
    assert plain.learning_rate(client_with(mlp(), data_of(4), round=3).facts) == 0.125


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_schedule_over_the_steps_of_a_round_is_torchs_anew_in_every_round(kind: str) -> None:
    """2 epochs of 3 batches: one step of warm-up at half the rate, then torch's cosine over the five others."""
    data, model, reference = data_of(40), mlp(), mlp()
    options: Any = {"epochs": 2, "batch_size": 16, "lr": 0.1, "schedule": "cosine", "warm_up": 1}
    trainer = made({"sgd": Sgd, "adamw": AdamW}[kind], schedule_over="steps", weight_decay=0.01, **options)
    party = client_with(model, data, round=3)
    train(trainer, party)
    rng = party.rng(trainer)
    rng.integers(2**63)
    made_of = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind]
    optimiser: Any = made_of(reference.module.parameters(), lr=0.1, weight_decay=0.01)  # type: ignore[operator]
    after = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=5)
    for number, start in enumerate([0, 16, 32] * 2):
        if start == 0:
            order = rng.permutation(40)
        batch = data.train.take(order[start : start + 16])
        inputs = torch.tensor((batch.inputs / 255 - 0.3) / 0.4, dtype=torch.float32)
        kept = optimiser.param_groups[0]["lr"]
        if number == 0:
            optimiser.param_groups[0]["lr"] = kept / 2
        optimiser.zero_grad()
        nn.functional.cross_entropy(reference.module(inputs), torch.tensor(batch.labels)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.param_groups[0]["lr"] = kept
        if number > 0:
            after.step()
    np.testing.assert_allclose(model.get_vector(), reference.get_vector(), atol=5e-6)
    said = trainer.learns(party.facts)
    assert said is not None
    assert said.lr is None


def test_attacks_are_told_what_is_descended() -> None:
    facts = client_with(mlp(), data_of(4)).facts
    assert made(AdamW).learns(facts).descends == "cross_entropy by AdamW"
    assert made(FedProx, mu=0.1).learns(facts).descends == "cross_entropy and a proximal term"
    assert made(FedProx, mu=0.0).learns(facts).descends == "cross_entropy"

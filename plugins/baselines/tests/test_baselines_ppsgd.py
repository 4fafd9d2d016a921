"""PPSGD: its step by the equations of the authors' code, its offsets, and its account."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug import ClientData, Examples
from fedplug.api import codec
from fedplug.api.errors import ProtectionError, RecipeError
from fedplug.recipe.recipe import Recipe
from fedplug_baselines.ppsgd import Ppsgd
from fedplug_std.models import Mlp
from fedplug_std.per_sample import mean_gradient
from toy_components import recipe_of, toy_catalog
from toy_protocol import initial_vector, run_protocol

PPSGD = {"use": "baselines.ppsgd", "lr": 0.5, "local_lr": 0.2, "batch_size": None}


def trainer(**options: Any) -> Ppsgd:
    found = Ppsgd(Ppsgd.Options(**({"lr": 0.5, "local_lr": 0.2, "batch_size": None} | options)))
    found.name = "baselines.ppsgd"
    return found


def client_of(make_client: Any, hidden: tuple[int, ...] = (6,)) -> Any:
    model = Mlp(Mlp.Options(hidden=hidden)).build((1, 8, 8), 4, 5, "cpu")
    examples = Examples(np.random.default_rng(3).random((12, 1, 8, 8), np.float32), np.arange(12) % 4)
    data = ClientData(examples, examples, examples, classes=tuple("abcd"), mean=(0.5,), std=(0.5,))
    return make_client(model.layout, model=model, data=data, vector=model.get_vector())


def one_round(component: Ppsgd, client: Any) -> None:
    """What the core does around a trainer."""
    component.personalise(client, client.facts)
    client.model.set_vector(client.start)
    component.train(client, client.facts)
    client.update = client.model.get_vector() - client.start


def gradient_at(client: Any, vector: Any) -> Any:
    return mean_gradient(client.model, client.data.train, client.data, vector=vector)


# -- steps -------------------------------------------------------------------------------------------------------------


def test_two_rounds_are_those_of_the_equations(make_client: Any) -> None:
    """theta -= 0.2 g and an update of -0.5 g, with g at w + theta; the offset has no clip and no noise."""
    client, component = client_of(make_client), trainer()
    w, theta = client.vector, np.zeros_like(client.vector)
    for move in (0.0, 0.03):  # the global model moves between the rounds
        client.vector = w = w + np.float32(move)
        g = gradient_at(client, w + theta)
        one_round(component, client)
        assert np.array_equal(client.start, w + theta)
        assert np.allclose(client.update, -0.5 * g, atol=1e-6)
        theta = theta - np.float32(0.2) * g
        assert np.allclose(client.memory(component)["theta"], theta, atol=1e-7)
    component.personalise(client, client.facts)
    assert np.allclose(client.personal, w + theta, atol=1e-7)


def test_an_offset_to_the_last_layer_leaves_the_rest_to_all(make_client: Any) -> None:
    client, component = client_of(make_client), trainer(personal="output")
    last = client.facts.layout.layer_slices()[client.facts.layout.layers[-1]]
    outside = np.ones(client.facts.layout.size, bool)
    for part in last:
        outside[part] = False
    assert 0 < outside.sum() < len(outside)
    g = gradient_at(client, client.vector)
    one_round(component, client)
    component.personalise(client, client.facts)
    assert np.array_equal(client.personal[outside], client.vector[outside])
    assert np.allclose(client.personal[~outside], (client.vector - np.float32(0.2) * g)[~outside], atol=1e-7)
    assert np.allclose(client.update, -0.5 * g, atol=1e-6)  # shared parts and output are one update, clipped jointly


def test_without_a_local_step_all_have_one_model(make_client: Any) -> None:
    client, component = client_of(make_client), trainer(local_lr=0)
    for _ in range(2):
        one_round(component, client)
        assert np.array_equal(client.personal, client.vector)


def test_minibatches_differ_between_rounds_and_clients(make_client: Any) -> None:
    updates = []
    for round, client_id in ((0, 0), (0, 0), (1, 0), (0, 1)):
        client = client_of(make_client)
        client.client_id = client_id
        client.facts = make_client(client.facts.layout, round=round).facts
        one_round(trainer(batch_size=3), client)
        updates.append(client.update)
    assert np.array_equal(updates[0], updates[1])
    assert not np.allclose(updates[0], updates[2])
    assert not np.allclose(updates[0], updates[3])


def test_a_gradient_that_is_not_finite_does_not_spoil_the_offset(make_client: Any) -> None:
    client, component = client_of(make_client), trainer()
    one_round(component, client)
    kept = client.memory(component)["theta"].copy()
    client.vector = np.full_like(client.vector, np.nan)
    with pytest.raises(ProtectionError, match=r"client 0: its gradient: \d+ of \d+ are NaN .* lower lr"):
        one_round(component, client)
    assert np.array_equal(client.memory(component)["theta"], kept)


def test_it_tells_attacks_how_it_learns(make_client: Any) -> None:
    client, component = client_of(make_client), trainer(batch_size=3)
    told = component.learns(client.facts)
    assert (told.lr, told.batch_size, told.one_step, told.training_mode) == (0.5, 3, True, False)
    probe = component.one_batch(client, client.facts, 12)
    one_round(probe, client)  # all twelve examples at once
    assert np.allclose(client.update, -0.5 * gradient_at(client, client.start), atol=1e-6)


# -- runs --------------------------------------------------------------------------------------------------------------


def private(norm: float = 0.4, **changes: Any) -> dict[str, Any]:
    noise = {"use": "std.central_gaussian", "norm": norm, "noise_multiplier": 0.0}
    plain = recipe_of(
        "noised",
        [{"use": "std.clip", "norm": norm}],
        train=PPSGD,
        aggregate={"use": "std.mean", "weighting": "uniform"},
        postprocess={"noised": [noise]},
    )
    return plain | changes


def test_the_global_step_is_the_mean_of_jointly_clipped_gradients() -> None:
    """w -= lr / L sum_i g_i min(1, C / |g_i|), where the recipe clips updates to lr C = 0.5 * 0.8."""
    plain, gradients = private(norm=0.4, rounds=1), []

    def collect(protocol: Any, engine: Any) -> None:
        gradients.extend(gradient_at(client, client.vector) for client in engine.clients.clients.values())

    outcome = run_protocol(plain, prepare=collect)
    norms = [float(np.linalg.norm(g)) for g in gradients]
    assert max(norms) > 0.8  # so the clip matters
    mean = np.mean([g * min(1.0, 0.8 / norm) for g, norm in zip(gradients, norms, strict=True)], axis=0)
    assert np.allclose(outcome.vector, initial_vector(plain) - 0.5 * mean, atol=1e-6)


def test_offsets_stay_at_the_clients_and_both_engines_agree() -> None:
    clients: list[Any] = []
    outcome = run_protocol(private(), prepare=lambda _, engine: clients.extend(engine.clients.clients.values()))
    other = run_protocol(private(), "processes")
    assert np.array_equal(outcome.vector, other.vector)
    assert outcome.rows[-1].personal_accuracy == other.rows[-1].personal_accuracy
    offsets = [client.state["baselines.ppsgd"]["theta"] for client in clients]
    assert all(np.abs(offset).max() > 1e-3 for offset in offsets)
    for client, offset in zip(clients, offsets, strict=True):
        assert np.allclose(client.start, outcome.vector + offset)
        for message in outcome.sent(receiver="server"):
            assert codec.encode(offset)[-200:] not in codec.encode(message.decode())


def test_a_client_that_is_not_sampled_keeps_its_offset() -> None:
    plain, clients = private(rounds=1, sampling={"scheme": "fixed", "rate": 0.5}), []
    outcome = run_protocol(plain, prepare=lambda _, engine: clients.extend(engine.clients.clients.values()))
    trained = ["theta" in client.state.get("baselines.ppsgd", {}) for client in clients]
    assert sum(trained) == 2
    for client, has_trained in zip(clients, trained, strict=True):
        assert np.array_equal(client.start, outcome.vector) != has_trained


def test_a_zone_that_stays_would_make_a_second_personal_model() -> None:
    plain = recipe_of(
        train=PPSGD,
        negotiate_mask={"use": "baselines.feddpa", "zone": "clear"},
        protect={"clear": []},
        postprocess={"retained": [{"use": "toy.keep"}]},
    )
    with pytest.raises(RecipeError, match=r"remove postprocess.retained"):
        Recipe.from_plain(plain, toy_catalog())

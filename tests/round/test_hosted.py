"""Clients of one process share one model, and each has its own state whenever it is asked."""

from __future__ import annotations

import numpy as np
from fedplug.api.reports import Reports
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.hosted import HostedKeyServer
from fedplug.round.parties import ClientHost
from toy_components import recipe_of, toy_catalog


def host() -> ClientHost:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(), catalog)
    return ClientHost(recipe, Composition(recipe), [0, 1, 2], None, "cpu")


def test_clients_share_a_model_object_and_never_its_values() -> None:
    first, second, _ = host().clients.values()
    size = first.vector.size
    first.update, second.update = np.ones(size, np.float32), np.full(size, 2, np.float32)
    model = first.model
    assert np.array_equal(model.get_vector(), first.vector + 1)
    assert second.model is model
    assert np.array_equal(model.get_vector(), second.vector + 2)
    model.set_vector(np.zeros(size, np.float32))  # as training does
    assert np.array_equal(second.model.get_vector(), np.zeros(size))
    second.forget_model()
    assert np.array_equal(second.model.get_vector(), second.vector + 2)
    assert np.array_equal(first.model.get_vector(), first.vector + 1)


def test_clients_that_hold_equal_models_hold_one_array() -> None:
    first, second, third = host().clients.values()
    moved = first.vector + 1
    first.take_vector(moved.copy())
    second.take_vector(moved.copy())
    assert first.vector is second.vector
    assert not np.array_equal(third.vector, first.vector)
    third.take_vector(moved + 1)
    assert np.array_equal(first.vector, moved)


def test_reports_are_told_once() -> None:
    client = next(iter(host().clients.values()))
    with client.timed("train"):
        pass
    client.reports.train["loss"] = 1.0
    told = client.collect_reports()
    assert (told.seconds.keys(), told.train) == ({"train"}, {"loss": 1.0})
    assert client.collect_reports() == Reports()
    with client.timed("open"), client.operation("decrypt", 3):
        client.saved(1000.0)  # which another client has done for both
    told, operations = client.collect_reports(), dict(client.operations)
    assert told.seconds["open"] > 999 < told.seconds_total
    assert not operations
    key_server = HostedKeyServer(counts=True)
    with key_server.operation("decrypt", 3):
        pass
    assert key_server.collect_reports().operations["decrypt"][0] == 3
    assert key_server.collect_reports() == HostedKeyServer(counts=False).collect_reports() == Reports()


def test_work_that_another_client_has_done_counts_for_both() -> None:
    client = next(iter(host().clients.values()))
    client.saved(2.0)
    client.took("open", 3.0, spent=0.5)
    told = client.collect_reports()
    assert (told.seconds_total, told.seconds) == (4.5, {"open": 3.0})

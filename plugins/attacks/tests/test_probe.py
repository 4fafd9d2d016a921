"""A probe's batch: the client's own examples, drawn anew for each number, and put back afterwards."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug.api.errors import ViewError
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug.round.hosted import HostedClient
from fedplug.round.parties import ClientHost
from fedplug_attacks.views.probe import OneBatch
from toy_components import Push, recipe_of, toy_catalog


def client() -> HostedClient:
    catalog = toy_catalog()
    recipe = Recipe.from_plain(recipe_of(train={"use": "std.sgd", "lr": 0.1}), catalog)
    return next(iter(ClientHost(recipe, Composition(recipe), [0], None, "cpu").clients.values()))


def test_a_batch_follows_from_seed_round_and_number() -> None:
    one = client()
    batches = [OneBatch(5, number).indices(one) for number in range(6)]
    assert all(len(set(batch)) == 5 and np.array_equal(batch, np.sort(batch)) for batch in batches)
    assert len({tuple(batch) for batch in batches}) > 1
    assert np.array_equal(batches[0], OneBatch(5).indices(client()))
    assert np.array_equal(OneBatch(10**6).indices(one), np.arange(one.num_examples))
    labels = one.data.train.labels
    assert len(set(labels[OneBatch(8, classes=1).indices(one)])) == 1
    assert len(set(labels)) > 1


def test_the_client_has_its_data_again_and_the_trainer_makes_one_step() -> None:
    one = client()
    data, trainer = one.data, one.facts.components["std.sgd"]
    with OneBatch(3).on_one_batch(one, trainer) as solver:
        assert one.num_examples == 3
        learns = solver.learns(one.facts)
        assert learns is not None
        assert (learns.epochs, learns.batch_size) == (1, 3)
        assert solver.name != trainer.name
    assert one.data is data
    with pytest.raises(ZeroDivisionError), OneBatch(3).on_one_batch(one, trainer):
        raise ZeroDivisionError
    assert one.data is data


def test_a_trainer_without_a_batch_cannot_be_probed() -> None:
    one = client()
    trainer = Push(Push.Options())
    trainer.name = "toy.push"
    probed = OneBatch(3).on_one_batch(one, trainer)
    with pytest.raises(ViewError, match=r"toy\.push cannot make one step on a batch"), probed:
        pass

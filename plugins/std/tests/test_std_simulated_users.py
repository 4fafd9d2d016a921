"""Simulated users: every training example is somebody's, the same one's in all runs, and counts follow Zipf's law."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug import Dataset
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.composition import Composition
from fedplug.recipe.recipe import Recipe
from fedplug_std.datasets import Digits


def dealt(**options: float) -> Dataset:
    plain = {
        "name": "users", "seed": 1, "rounds": 1, "min_clients": 2, "model": "std.logistic",
        "data": {"use": "std.simulated_users", "of": "std.digits", **options, "clients": 2, "partition": "std.by_user"},
        "train": {"use": "std.sgd"}, "protect": {"clear": []}, "aggregate": "std.mean",
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"},
    }  # fmt: skip
    recipe = Recipe.from_plain(plain, Catalog.discover())
    given: Dataset = Composition(recipe).components[recipe.data.name].load(None)
    return given


def test_every_training_example_has_a_user_and_is_as_it_was() -> None:
    plain, data = Digits(Digits.Options()).load(None), dealt(users=50)
    np.testing.assert_array_equal(data.train.inputs, plain.train.inputs)
    assert data.train.users is not None
    assert data.train.users.dtype == np.int64
    assert data.test.users is None
    counts = np.bincount(data.train.users, minlength=50)
    assert counts.sum() == len(plain.train)
    assert abs(counts / counts.mean() - 1).max() < 5 / np.sqrt(counts.mean())
    np.testing.assert_array_equal(data.train.users, dealt(users=50).train.users)
    assert (data.train.users != dealt(users=50, seed=2).train.users).any()


@pytest.mark.parametrize("skew", [0.5, 1.5])
def test_their_numbers_follow_zipfs_law(skew: float) -> None:
    users = dealt(users=20, skew=skew).train.users
    assert users is not None
    shares = np.arange(1, 21) ** -skew
    expected = len(users) * shares / shares.sum()
    assert (abs(np.bincount(users, minlength=20) - expected) < 5 * np.sqrt(expected)).all()

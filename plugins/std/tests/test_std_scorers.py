"""Scorers: what they say, and whose randomness it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.blocks import Layout
from fedplug.api.facts import Facts
from fedplug.api.parties import Client
from fedplug_std.scorers import Magnitude, Random

SIZE = 20_000


def client(client_id: int, round: int = 0, seed: int = 7) -> Client:
    party = Client(client_id=client_id)
    party.facts = Facts(
        round=round, rounds=3, layout=Layout.of([("w", (SIZE,))]), zones=("clear",), num_clients=2, min_clients=1,
        seed=seed, digest="d",
    )  # fmt: skip
    return party


def scores(component: Any, party: Client) -> np.ndarray[Any, Any]:
    got = component.score_parameters(party, party.facts)
    assert got.dtype == np.float32
    assert got.shape == (SIZE,)
    return np.asarray(got)


def make(component: Any, **options: Any) -> Any:
    made = component(component.Options(**options))
    made.name = component.__name__
    return made


def test_magnitude_is_the_absolute_update_and_leaves_it_alone() -> None:
    party = client(0)
    update = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    party.update = update.copy()
    np.testing.assert_array_equal(scores(make(Magnitude), party), np.abs(update))
    np.testing.assert_array_equal(party.update, update)


def test_magnitude_without_an_update() -> None:
    with pytest.raises(ValueError, match="has not trained"):
        make(Magnitude).score_parameters(client(0), client(0).facts)


@pytest.mark.parametrize("shared", [False, True])
def test_random_repeats_for_a_seed_and_changes_with_round_and_seed(shared: bool) -> None:
    random = make(Random, shared=shared)
    first = scores(random, client(0))
    np.testing.assert_array_equal(first, scores(random, client(0)))
    assert np.array_equal(first, scores(random, client(1))) is shared
    others = [scores(random, client(0, round=1)), scores(random, client(0, seed=8))]
    renamed = make(Random, shared=shared)
    renamed.name = "another"
    for other in [*others, scores(renamed, client(0))]:
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.05


def test_random_is_uniform() -> None:
    """Kolmogorov-Smirnov distance of n uniform values exceeds 1.95 / sqrt(n) once in a thousand times."""
    values = np.sort(scores(make(Random), client(0)))
    assert np.abs(values - np.arange(SIZE) / SIZE).max() < 1.95 / np.sqrt(SIZE)

"""On which examples clients judge models: slices of the common test set, and test data like their own."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from fedplug.api.data import Dataset, Examples
from fedplug.round.world import client_data
from fedplug_runs import evaluation
from fedplug_runs.evaluation import matched_test, slice_of_test
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray


def labels_of(counts: list[int], seed: int = 0) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))


@settings(max_examples=examples(80), deadline=None)
@given(
    train=st.lists(st.integers(0, 50), min_size=3, max_size=6).filter(lambda c: sum(c) > 0),
    test=st.lists(st.integers(0, 50), min_size=3, max_size=6).filter(lambda c: sum(c) > 0),
    size=st.integers(1, 80),
    seed=st.integers(0, 2**32),
)
def test_matched_test_has_the_mix_of_the_training_labels(
    train: list[int], test: list[int], size: int, seed: int
) -> None:
    test_labels = labels_of(test)
    chosen = matched_test(labels_of(train), test_labels, size, np.random.default_rng(seed))
    assert len(np.unique(chosen)) == len(chosen) <= size
    width = max(len(train), len(test))
    wanted = np.pad(np.array(train), (0, width - len(train))) * (np.pad(np.array(test), (0, width - len(test))) > 0)
    if not wanted.any():
        assert not len(chosen)
        return
    assert len(chosen) >= 1
    got = np.bincount(test_labels[chosen], minlength=width)
    mix = wanted / wanted.sum()
    assert np.abs(got - mix * len(chosen)).max() <= 1 + 1e-9
    enough = np.all(mix * size <= np.pad(np.array(test), (0, width - len(test))))
    if enough:
        assert len(chosen) == size


def test_matched_test_worked_example() -> None:
    train = np.array([0] * 6 + [2] * 3 + [3])
    chosen = matched_test(train, np.repeat(np.arange(4), 100), 20, np.random.default_rng(0))
    np.testing.assert_array_equal(np.bincount(np.repeat(np.arange(4), 100)[chosen]), [12, 0, 6, 2])


@given(n=st.integers(0, 200), parties=st.integers(1, 40))
def test_slices_of_the_test_set_tile_it(n: int, parties: int) -> None:
    slices = [slice_of_test(position, parties, n) for position in range(parties)]
    np.testing.assert_array_equal(np.concatenate([np.arange(n)[part] for part in slices]), np.arange(n))
    sizes = [part.stop - part.start for part in slices]
    assert max(sizes) - min(sizes) <= 1


def test_client_data() -> None:
    def part(count: int) -> Examples:
        labels = np.arange(count) % 4
        return Examples(np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1), labels)

    dataset = Dataset(part(200), part(80), classes=("a", "b", "c", "d"), mean=(0.5,), std=(0.25,))
    assignment = [np.flatnonzero(dataset.train.labels < 2), np.flatnonzero(dataset.train.labels >= 2)]
    data = client_data(dataset, assignment, 1, 2, 3, evaluation)
    np.testing.assert_array_equal(data.train.inputs.ravel(), assignment[1])
    assert set(data.own_test.labels) == {2, 3}
    assert len(data.own_test) == 40
    assert data.shared_test is dataset.test
    assert (data.classes, data.mean, data.std) == (dataset.classes, dataset.mean, dataset.std)
    again, other = (client_data(dataset, assignment, 1, 2, seed, evaluation) for seed in (3, 4))
    np.testing.assert_array_equal(again.own_test.inputs, data.own_test.inputs)
    assert len(other.own_test) == 40
    with pytest.raises(ValueError, match="no share"):
        client_data(dataset, assignment, 2, 3, seed=3)

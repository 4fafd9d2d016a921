"""On which examples clients judge models: slices of the common test set, and test data like their own."""

from __future__ import annotations

import math
from typing import Any

import fedplug
import numpy as np
import pytest
from examples import examples
from fedplug.api.data import Dataset, Examples
from fedplug.api.events import ModelDelivered
from fedplug.round.world import client_data
from fedplug_runs import evaluation
from fedplug_runs.evaluation import Evaluated, matched_test, slice_of_test
from fedplug_std._answers import BATCH
from fedplug_std.datasets import Digits
from fedplug_std.torch_model import TorchModel
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


def test_a_process_has_the_global_model_answer_for_the_common_test_set_once(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, answered = list[int](), TorchModel._outputs_for
    parts, held = TorchModel.evaluate_parts, list[Any]()

    def outputs_for(model: TorchModel, examples: Examples, **kind: Any) -> Any:
        passed.append(len(examples))
        return answered(model, examples, **kind)

    def evaluate_parts(model: TorchModel, sets: Any, places: list[NDArray[np.int64]], *rest: Any) -> Any:
        held.extend(place.base for place in places)
        return parts(model, sets, places, *rest)

    monkeypatch.setattr(TorchModel, "_outputs_for", outputs_for)
    monkeypatch.setattr(TorchModel, "evaluate_parts", evaluate_parts)
    monkeypatch.setattr(TorchModel, "evaluate_each", lambda *_: pytest.fail("a client asked for its part alone"))
    recipe = {
        "name": "once", "seed": 1, "rounds": 2, "train": {"use": "std.sgd", "epochs": 1, "batch_size": 60, "lr": 0.1},
        "data": {"use": "std.digits", "clients": 5, "partition": "std.iid"}, "model": "std.logistic",
        "negotiate_mask": {"use": "std.single_zone", "zone": "clear"}, "protect": {"clear": []},
        "aggregate": "std.mean",
    }  # fmt: skip
    delivered = [event for event in fedplug.protocol(recipe) if isinstance(event, ModelDelivered)]
    assert len(delivered) == 1
    total = len(Digits(Digits.Options()).load(None).test)
    assert passed == [BATCH] * (2 + 2 * math.ceil(total / BATCH))  # two of them to try whether it may be asked so
    assert held == [None] * (5 * 2 * 2), "a client's places are views of an array of all places"


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
    np.testing.assert_array_equal(data.shared_test.take(data.own_places).inputs, data.own_test.inputs)
    assert data.shared_test is dataset.test
    assert (data.classes, data.mean, data.std) == (dataset.classes, dataset.mean, dataset.std)
    again, other = (client_data(dataset, assignment, 1, 2, seed, evaluation) for seed in (3, 4))
    np.testing.assert_array_equal(again.own_test.inputs, data.own_test.inputs)
    assert len(other.own_test) == 40
    with pytest.raises(ValueError, match="no share"):
        client_data(dataset, assignment, 2, 3, seed=3)


@given(st.integers(0, 50), st.integers(0, 50))
def test_there_are_no_more_right_answers_than_questions(correct: int, count: int) -> None:
    plain = {"correct": correct, "count": count, "loss": 0.0, "own_correct": 0, "own_count": 0}
    if correct <= count:
        assert Evaluated.from_plain(plain).correct == correct
    else:
        with pytest.raises(ValueError, match=f"evaluation.correct is {correct}.* of {count}.* examples"):
            Evaluated.from_plain(plain)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 3.5}, {"count": math.nan}, {"count": math.inf}, {"correct": -1}, {"correct": math.nan},
        {"own_correct": 3}, {"personal_correct": 5}, {"personal_own_correct": 3}, {"count": 2.0**53},
        {"own_count": 1e300},
    ],
    ids=str,
)  # fmt: skip
def test_an_evaluation_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    right = {"correct": 1, "count": 4, "loss": 0.0, "own_correct": 0, "own_count": 2}
    with pytest.raises(ValueError, match=r"evaluation\..* examples"):
        Evaluated.from_plain({**right, **changes})


@pytest.mark.parametrize(("loss", "fits"), [(math.nan, True), (math.inf, True), (1e300, True), (-math.inf, False)])
def test_a_loss_may_diverge_and_not_be_less_than_any_number(loss: float, fits: bool) -> None:
    plain = {"correct": 1, "count": 4, "loss": loss, "own_correct": 0, "own_count": 2}
    if fits:
        assert repr(Evaluated.from_plain(plain).loss) == repr(loss)
    else:
        with pytest.raises(ValueError, match=r"evaluation\.loss is -inf"):
            Evaluated.from_plain(plain)


def test_shares_are_of_one_answer() -> None:
    own = {"personal_correct": 2, "personal_own_correct": 2, "personal_task": {"pixels": 2.0}}
    assert Evaluated(3, 4, 2.0, 1, 2, task={"pixels": 6.0}, **own).shares() == Evaluated(
        0.75, 1, 0.5, 0.5, 1, personal_correct=0.5, personal_own_correct=1.0, task={"pixels": 1.5},
        personal_task={"pixels": 0.5},
    )  # fmt: skip
    assert Evaluated(0, 0, 0.0, 0, 0).shares() == Evaluated(0, 0, 0.0, 0, 0)


def test_a_task_of_many_labels_is_counted() -> None:
    """Three counts a label: a service of one message is not held to the names that rows show."""
    counts = {f"label {number} {what}": 1.0 for number in range(400) for what in ("hits", "misses", "alarms")}
    plain = {"correct": 1.0, "count": 4.0, "loss": 1.0, "own_correct": 1.0, "own_count": 4.0, "task": counts}
    assert Evaluated.from_plain(plain).task == counts

"""Figures that rare classes cannot hide behind: right values, what clients send, and who leads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api.data import ACCURACY, Examples, Figure
from fedplug_runs import by_class
from fedplug_runs.by_class import (
    BALANCED,
    ByClass,
    auc,
    balanced,
    counted,
    figure_named,
    figures_by_class,
    in_order_of_classes,
    rarest,
    recalls_of,
)
from fedplug_runs.evaluation import Evaluated
from fedplug_runs.rows import no_better
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score


def of(outputs: NDArray[Any], answers: NDArray[Any], classes: int | None = None) -> ByClass:
    found = counted(outputs, answers, classes or outputs.shape[1])
    assert found is not None
    return found


def drawn(n: int, classes: int, seed: int, coarse: bool) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    answers = np.concatenate([np.arange(classes), rng.integers(0, classes, n)])
    outputs = rng.normal(size=(len(answers), classes))
    outputs[np.arange(len(answers)), answers] += 0.7
    return (np.round(outputs) if coarse else outputs).astype(np.float32), answers.astype(np.int64)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(3, 80), st.integers(2, 6), st.integers(0, 2**32), st.booleans())
def test_one_set_of_examples_gives_the_figures_of_scikit_learn(n: int, classes: int, seed: int, coarse: bool) -> None:
    outputs, answers = drawn(n, classes, seed, coarse)
    found, said = of(outputs, answers), outputs.argmax(1)
    assert balanced([found]) == pytest.approx(balanced_accuracy_score(answers, said))
    assert recalls_of([found]) == pytest.approx(recall_score(answers, said, average=None))
    likely = np.exp(outputs.astype(np.float64) - outputs.max(1, keepdims=True))
    likely /= likely.sum(1, keepdims=True)
    if classes == 2:
        expected = roc_auc_score(answers, outputs[:, 1].astype(np.float64) - outputs[:, 0])
    else:
        expected = roc_auc_score(answers, likely, multi_class="ovr", average="macro")
    assert auc([found]) == pytest.approx(expected, abs=1e-9)


@given(st.integers(1, 60), st.integers(2, 12), st.integers(0, 999), st.booleans())
@settings(max_examples=examples(40), deadline=None)
def test_pairs_and_ranks_count_the_same(n: int, classes: int, seed: int, coarse: bool) -> None:
    rng = np.random.default_rng(seed)
    outputs, answers = rng.standard_normal((n, classes)), rng.integers(0, classes, n)
    outputs = outputs.round() if coarse else outputs  # with many equal scores
    by_pairs = counted(outputs, answers, classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_class, "_PAIRED", 0)
        assert counted(outputs, answers, classes) == by_pairs


def test_shares_of_a_test_set_add_up_and_pairs_within_them_give_nearly_the_same_auc() -> None:
    outputs, answers = drawn(4000, 2, 1, coarse=False)
    parts = [of(outputs[k::5], answers[k::5]) for k in range(5)]
    whole = of(outputs, answers)
    assert balanced(parts) == balanced([whole])
    assert auc(parts) == pytest.approx(auc([whole]), abs=0.01)


def test_shares_of_one_class_each_have_no_auc_and_a_test_set_in_order_of_classes_is_seen() -> None:
    outputs, answers = drawn(400, 2, 1, coarse=False)
    order = np.argsort(answers, kind="stable")
    shares = np.array_split(order, 4)
    found = figures_by_class([of(outputs[share], answers[share]) for share in shares])
    assert found.keys() == {BALANCED.name}, "few pairs, all from one share, would say little"
    for labels, said in ((answers[order], True), (answers, False), (answers[:0], False), (np.zeros(9, int), False)):
        assert in_order_of_classes(Examples(np.zeros((len(labels), 1), np.float32), labels.astype(np.int64))) is said


def test_a_model_that_says_the_commonest_class_alone_finds_none_of_36() -> None:
    answers = np.repeat([0, 1], [2064, 36])
    found = of(np.tile(np.array([[1.0, -1.0]], np.float32), (2100, 1)), answers)
    assert recalls_of([found]) == [1.0, 0.0]
    assert figures_by_class([found]) == {"balanced accuracy": 0.5, "AUC": 0.5}
    judged = {"accuracy": 2064 / 2100, "balanced accuracy": 0.5}
    guess = {"accuracy": 2064 / 2100, "balanced accuracy": 0.5}
    assert no_better(judged, guess, BALANCED) == no_better(judged, guess, ACCURACY) == "balanced accuracy"
    assert no_better({**judged, "balanced accuracy": 0.51}, guess, BALANCED) == ""
    assert no_better({"accuracy": 0.98}, guess, ACCURACY) == "accuracy"
    assert no_better({"accuracy": None}, guess, ACCURACY) == no_better(judged, {}, ACCURACY) == ""


@pytest.mark.parametrize(
    ("counts", "found"),
    [
        ([90, 10], None), ([91, 9], (1, 0.09)), ([10, 90], None), ([5, 0, 95], (0, 0.05)), ([100], None), ([0], None),
        ([30, 30, 31, 9], (3, 0.09)),
        ([10] * 10, None), ([11] * 9 + [9], None), ([20] * 9 + [4], (9, 4 / 184)), ([3] * 9 + [1], None),
    ],
)  # fmt: skip
def test_which_class_is_rare(counts: list[int], found: tuple[int, float] | None) -> None:
    answers = np.repeat(np.arange(len(counts)), counts)
    assert rarest(answers) == (pytest.approx(found) if found else None)


def test_scores_that_are_no_numbers_have_no_auc() -> None:
    found = of(np.array([[np.nan, 1], [0, 1]], np.float32), np.array([0, 1]))
    assert found.above == []
    assert figures_by_class([found, of(*drawn(9, 2, 0, coarse=False))]).keys() == {BALANCED.name}


@pytest.mark.parametrize(
    ("outputs", "answers"),
    [(None, np.array([0])), (np.zeros((2, 2)), np.array([0])), (np.zeros((1, 2)), np.array([[0]])),
     (np.zeros((1, 2)), np.array([2])), (np.zeros((0, 2)), np.zeros(0, int)), (np.zeros((1, 1)), np.array([0])),
     (np.zeros((1, 1001)), np.array([0]))],
)  # fmt: skip
def test_what_is_no_class_an_example_is_not_counted(outputs: Any, answers: Any) -> None:
    assert counted(outputs, answers, 1001 if outputs is not None and outputs.shape[1] > 2 else 2) is None


def test_outputs_beyond_the_classes_are_wrong_answers() -> None:
    outputs = np.array([[1, 0, 2], [2, 0, 1], [0, 2, 1]], np.float32)
    found = of(outputs, np.array([0, 0, 1]), 2)
    assert (found.are, found.right) == ([2, 1], [1, 1])
    assert found.above == [4, 4]
    assert counted(outputs[:, :1], np.array([0, 0, 0]), 2) is None


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"are": [1, 2], "right": [1]}, "the same classes"),
        ({"are": [1, 2], "right": [2, 2]}, "more right answers"),
        ({"are": [1, 2], "right": [1, 2], "above": [4, 5]}, "pairs in the right order"),
        ({"are": [1, 2], "right": [1, 2], "above": [4]}, "the same classes"),
        ({"are": [2**40, 0], "right": [0, 0]}, "more than anybody counts"),
        ({"are": [1, 1], "right": [1, 1]}, "other examples than the 3"),
        ({"are": [-1, 4], "right": [0, 0]}, "are.0"),
    ],
)
def test_counts_of_a_client_that_cannot_be_do_not_count(plain: Any, said: str) -> None:
    sent = {"correct": 3, "count": 3, "loss": 1.0, "own_correct": 1, "own_count": 1, "by_class": plain}
    with pytest.raises(ValueError, match=said):
        Evaluated.from_plain(sent)


def test_a_site_sends_means_of_its_classes_and_no_counts() -> None:
    counts = Evaluated(1, 4, 2.0, 1, 4, own_balanced=0.5, own_auc=0.75, rare=True)
    counts.by_class = ByClass([2, 2], [1, 0])
    sent = counts.shares().to_plain()
    assert {"by_class", "are", "right"}.isdisjoint(sent)
    assert (sent["own_balanced"], sent["own_auc"], sent["rare"]) == (0.5, 0.75, True)
    with pytest.raises(ValueError, match=r"own_auc is 1\.5, and must be from 0 to 1"):
        Evaluated.from_plain({**sent, "own_auc": 1.5})


def test_the_clients_own_models_are_judged_as_a_figure_says() -> None:
    declared = (Figure("IoU", better="higher"), Figure("RMSE", better="lower", unit="m"))
    assert figure_named("RMSE", declared) == declared[1]
    assert figure_named("IoU, own models", declared) == declared[0]
    assert figure_named("recall", declared) is None

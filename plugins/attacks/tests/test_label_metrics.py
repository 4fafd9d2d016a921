"""LeAcc, LnAcc, recall and precision on worked examples, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.errors import MetricError
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.label_metrics import LabelAccuracy, LabelRecall, PresenceAuc
from hypothesis import given
from hypothesis import strategies as st


def truth_of(counts: list[int]) -> Truth:
    labels = np.repeat(np.arange(len(counts)), counts)
    return Truth(np.zeros((len(labels), 1, 1, 1), np.float32), labels, len(counts))


def scores(counts: Any, true: list[int], labels: Any = None) -> dict[str, float]:
    report = AttackReport(
        "finished",
        counts=None if counts is None else np.array(counts),
        labels=None if labels is None else np.array(labels),
    )
    found: dict[str, float] = {}
    for metric in (LabelAccuracy, LabelRecall):
        numbers = metric(metric.Options()).score(report, truth_of(true))
        assert numbers.keys() == metric.measures.better.keys()
        found |= numbers
    return found


def test_worked_example() -> None:
    # Classes 0, 1 and 3 are there; 0 is found in the right number, 1 in another, 3 not at all, 2 wrongly.
    found = scores([2, 5, 1, 0, 0], [2, 3, 0, 4, 0])
    assert found["le_acc"] == pytest.approx(3 / 5)
    assert found["ln_acc"] == pytest.approx(2 / 5)
    assert found["label_recall"] == pytest.approx(2 / 3)
    assert found["label_precision"] == pytest.approx(2 / 3)
    assert found["instance_recall"] == pytest.approx(5 / 9)


def test_all_classes_equally_has_the_share_of_classes_present_for_le_acc() -> None:
    found = scores([3] * 10, [12, 0, 3, 3, 0, 4, 2, 1, 0, 5])
    assert found["le_acc"] == found["label_precision"] == pytest.approx(0.7)
    assert found["ln_acc"] == pytest.approx(0.2)
    assert found["label_recall"] == 1


def test_counts_may_be_fractions_and_need_not_sum_up() -> None:
    found = scores([0.0, 2.5], [0, 2])
    assert (found["le_acc"], found["ln_acc"], found["instance_recall"]) == (1, 0.5, 1)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=12).filter(any))
def test_the_truth_scores_one_and_labels_are_as_good_as_counts(true: list[int]) -> None:
    assert set(scores(true, true).values()) == {1}
    labels = np.repeat(np.arange(len(true)), true)[::-1]
    assert scores(None, true, labels) == scores(true, true)


def test_finding_nothing() -> None:
    found = scores([0, 0, 0], [0, 1, 2])
    assert found == {
        "le_acc": pytest.approx(1 / 3), "ln_acc": pytest.approx(1 / 3), "label_recall": 0, "label_precision": 0,
        "instance_recall": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "labels", "message"),
    [
        (None, None, "neither"),
        ([1, 2], None, r"shape \[2\].*each of 3 classes"),
        ([1, np.nan, 2], None, "finite"),
        (None, [0, 3], "0 to 3 must lie in 0 to 2"),
        (None, [-1], "must lie in 0 to 2"),
    ],
)
def test_refused(counts: Any, labels: Any, message: str) -> None:
    with pytest.raises(MetricError, match=message):
        scores(counts, [1, 1, 1], labels)


def test_recall_of_nobody_is_not_defined() -> None:
    with pytest.raises(MetricError, match="without examples"):
        scores([1, 1], [0, 0])


def area(true: list[int], *, counts: Any = None, presence: Any = None) -> float:
    report = AttackReport("finished", counts=counts, presence=presence)
    return PresenceAuc(PresenceAuc.Options()).score(report, truth_of(true))["presence_auc"]


def test_presence_is_the_share_of_pairs_in_the_right_order_and_ties_count_half() -> None:
    # Present 0.9 and 0.4, absent 0.5 and 0.4: of four pairs two are right, one is a tie, one is wrong.
    assert area([3, 0, 1, 0], presence=np.array([0.9, 0.5, 0.4, 0.4])) == pytest.approx(2.5 / 4)
    assert area([3, 0, 1, 0], presence=np.ones(4)) == 0.5


def test_counts_stand_in_for_scores_and_scores_come_first() -> None:
    assert area([3, 0, 1, 0], counts=np.array([2, 0, 1, 1])) == pytest.approx(3.5 / 4)
    assert area([3, 0, 1, 0], counts=np.array([0, 1, 0, 1]), presence=np.array([2.0, 0, 1, 0])) == 1


@pytest.mark.parametrize(("true", "said"), [([1, 2, 3], "every class"), ([0, 0, 0], "no class")])
def test_presence_is_not_defined_where_no_class_differs(true: list[int], said: str) -> None:
    with pytest.raises(MetricError, match=said):
        area(true, presence=np.arange(3.0))


def test_presence_needs_a_score_for_each_class() -> None:
    with pytest.raises(MetricError, match="one a class"):
        area([1, 0, 3], presence=np.arange(2.0))

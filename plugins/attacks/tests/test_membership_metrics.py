"""Area under the ROC curve and TPR at 1% FPR, compared with scikit-learn's, and refused inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug import MetricError
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.membership_metrics import MembershipRoc, clopper_pearson
from fedplug_kit.static import check_component
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score, roc_curve


def score(scores: NDArray[Any] | None, members: NDArray[Any] | None) -> dict[str, Any]:
    truth = Truth(np.zeros((1, 1, 2, 2), np.float32), np.zeros(1, np.int64), 2, members=members)
    return MembershipRoc(MembershipRoc.Options()).score(AttackReport("finished", members=scores), truth)


def test_conforms() -> None:
    check_component("attacks.membership_roc", "metric")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 700), st.integers(1, 40), st.floats(0.05, 0.95))
def test_agrees_with_scikit_learn_with_and_without_ties(seed: int, count: int, levels: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    members = rng.random(count) < share
    assume(members.any() and not members.all())
    scores = rng.integers(0, levels, count) + 0.7 * members if seed % 2 else rng.normal(size=count) + members
    found = score(scores.astype(np.float64), members)
    assert found["membership_auc"] == pytest.approx(roc_auc_score(members, scores), abs=1e-12)
    assert (found["members"], found["non_members"]) == (members.sum(), (~members).sum())
    if (~members).sum() >= 100:
        fpr, tpr, _ = roc_curve(members, scores, drop_intermediate=False)
        assert found["tpr_at_1_fpr"] == pytest.approx(tpr[fpr <= 0.01].max(), abs=1e-12)
    else:
        assert "tpr_at_1_fpr" not in found


def test_a_rate_that_so_few_non_members_cannot_resolve_is_left_out() -> None:
    scores = np.random.default_rng(0).random(3000)
    few, many = (score(scores[:count], np.arange(count) % 2 == 0) for count in (1998, 2000))
    assert "tpr_at_01_fpr" not in few
    assert 0 <= many["tpr_at_01_fpr_low"] <= many["tpr_at_01_fpr"] <= many["tpr_at_01_fpr_high"] < 0.02


def test_intervals_are_those_of_the_binomial_test() -> None:
    for successes, trials in ((0, 20), (3, 20), (20, 20), (16, 1000)):
        exact = binomtest(successes, trials).proportion_ci(0.95, "exact")
        assert clopper_pearson(successes, trials) == pytest.approx((exact.low, exact.high))


def test_a_coin_a_seer_and_a_liar() -> None:
    members = np.arange(1000) < 500
    coin = score(np.random.default_rng(0).random(1000), members)
    assert coin["membership_auc"] == pytest.approx(0.5, abs=0.05)
    assert coin["tpr_at_1_fpr"] < 0.04
    assert score(np.zeros(1000), members) == {
        "membership_auc": 0.5, "tpr_at_1_fpr": 0.0, "members": 500.0, "non_members": 500.0,
        "tpr_at_1_fpr_low": 0.0, "tpr_at_1_fpr_high": pytest.approx(1 - 0.025 ** (1 / 500)),
    }  # fmt: skip
    assert score(members.astype(float), members)["membership_auc"] == 1.0
    assert score(members.astype(float), members)["tpr_at_1_fpr"] == 1.0
    assert score(-members.astype(float), members)["membership_auc"] == 0.0


def test_being_sure_of_a_few_shows_only_at_low_false_alarms() -> None:
    members = np.arange(2000) < 1000
    scores = np.random.default_rng(1).random(2000)
    scores[:100] = 2.0
    found = score(scores, members)
    assert found["membership_auc"] < 0.58
    assert found["tpr_at_1_fpr"] > 0.1


def test_one_false_alarm_is_allowed_among_a_hundred() -> None:
    members = np.arange(200) < 100
    scores = np.concatenate([np.linspace(1, 2, 100), np.zeros(100)])
    scores[150] = 9.0
    assert score(scores, members)["tpr_at_1_fpr"] == 1.0
    scores[151] = 9.0
    assert score(scores, members)["tpr_at_1_fpr"] == 0.0


@pytest.mark.parametrize(
    ("scores", "members", "told"),
    [
        (None, np.array([True, False]), "gave no membership scores"),
        (np.zeros(2), None, "no membership challenge"),
        (np.zeros(3), np.array([True, False]), "3 scores for 2 candidates"),
        (np.array([0.0, np.nan]), np.array([True, False]), "1 of 2 membership scores"),
        (np.zeros(2), np.array([True, True]), "2 members and 0 non-members"),
        (np.zeros(2), np.array([False, False]), "0 members and 2 non-members"),
    ],
)
def test_refuses_what_it_is_not_defined_for(scores: Any, members: Any, told: str) -> None:
    with pytest.raises(MetricError, match=told):
        score(scores, members)

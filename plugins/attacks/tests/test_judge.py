"""What counts as found: intervals of the attack's own measure against the guess, and one criterion for images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.image_metrics import Ssim, similarity
from fedplug_attacks.membership_metrics import MembershipRoc
from fedplug_attacks.workshop.judge import judged, of_area, of_draws, of_rate, recovered, recovered_rows
from fedplug_attacks.workshop.records import Evidence, Outcome, Success
from target_toys import an_outcome

AREA = Success("membership_auc", ">=", 0.6)


def area(value: float, members: int, others: int) -> Outcome:
    return with_evidence(of_area("membership_auc", value, members, others))


def with_evidence(*evidence: Evidence) -> Outcome:
    outcome = an_outcome("failed")
    outcome.evidence = [*evidence]
    return outcome


def test_a_weak_attack_on_many_candidates_is_a_success_and_says_how_large() -> None:
    """AUC 0.582 over five challenges of 400 is six standard deviations from a coin, whatever else was looked at."""
    found = judged([area(0.582, 200, 200)] * 5, AREA, looks=20)
    assert found.state == "success"
    assert found.guess == 0.5
    assert found.low == pytest.approx(0.582 - 3.023 * 0.01292, abs=2e-4)
    assert found.high == pytest.approx(0.582 + 3.023 * 0.01292, abs=2e-4)


def test_a_perfect_attack_on_few_candidates_is_a_success() -> None:
    assert judged([area(1.0, 30, 30)], AREA, looks=20).state == "success"


def test_few_candidates_that_show_nothing_are_inconclusive_and_many_a_failure() -> None:
    assert judged([area(0.51, 30, 30)], AREA).state == "inconclusive"
    assert judged([area(0.51, 200, 200)] * 10, AREA, looks=20).state == "failed"
    assert judged([area(0.5, 200, 200)] * 10, AREA, looks=20).state == "failed"


def test_a_rate_at_few_false_alarms_is_judged_by_its_own_distribution() -> None:
    """8 of 200 members above all but 2 of 200 others: a guess has as many in 11 cases of 200 (negative binomial)."""
    one = of_rate("tpr_at_1_fpr", 0.04, 200, 200, 100)
    assert one.guess == pytest.approx(3 / 201)
    assert judged([with_evidence(one)], AREA).state == "inconclusive"  # neither luck alone nor shown
    assert judged([with_evidence(one)] * 5, AREA, looks=4).state == "success"


def test_guesses_rarely_pass_for_members() -> None:
    """Of 100 run-like sets of random scores at most one in 20 is called a success, as the level says."""
    rng, wrong = np.random.default_rng(0), 0
    roc, members = MembershipRoc(MembershipRoc.Options()), np.arange(200) < 100
    truth = Truth(np.zeros((0, 1)), np.zeros(0, np.int64), 1, members=members)
    for _ in range(100):
        outcomes = []
        for _ in range(3):
            numbers = roc.score(AttackReport("finished", members=rng.random(200)), truth)
            outcomes.append(with_evidence(
                of_area("membership_auc", numbers["membership_auc"], 100, 100),
                of_rate("tpr_at_1_fpr", numbers["tpr_at_1_fpr"], 100, 100, 100),
            ))  # fmt: skip
        wrong += judged(outcomes, AREA, looks=2).state == "success"
    assert wrong <= 5


@pytest.mark.parametrize(("value", "state"), [(0.9, "success"), (0.25, "failed"), (0.45, "inconclusive")])
def test_other_measures_are_compared_with_random_guesses(value: float, state: str) -> None:
    draws = np.random.default_rng(1).normal(0.4, 0.1, 500).tolist()
    one = of_draws("ln_acc", value, draws, [0.3], high=True)
    assert one is not None
    assert judged([with_evidence(one)] * 3, Success("ln_acc", ">=", 0.5), looks=2).state == state


def test_low_is_better_where_an_error_is_measured() -> None:
    draws = np.abs(np.random.default_rng(1).normal(0, 0.3, 500)).tolist()
    rule = Success("share_error", "<=", 0.1)
    for value, state in ((0.02, "success"), (0.4, "failed"), (0.17, "inconclusive")):
        one = of_draws("share_error", value, draws, [], high=False)
        assert one is not None
        assert judged([with_evidence(one)] * 12, rule).state == state


def test_nothing_known_of_guesses_leaves_the_attacks_own_rule() -> None:
    assert of_draws("own", 1.0, [], [], high=True) is None
    assert judged([an_outcome("success"), an_outcome("failed")], None).state == "success"
    unfit = an_outcome("inconclusive", "it did not fit")
    assert judged([unfit], None).state == "inconclusive"
    assert judged([unfit, unfit, an_outcome("failed")], None).state == "inconclusive"
    assert judged([unfit, an_outcome("failed"), an_outcome("failed")], None).state == "failed"
    assert judged([an_outcome("not_applicable", "hidden")], None).state == "not_applicable"


def test_a_recovered_person_is_a_success_whatever_the_numbers() -> None:
    assert judged([an_outcome("success", recovered=[3])], None, looks=50).state == "success"


def faces(count: int, side: int = 16) -> Any:
    rng = np.random.default_rng(3)
    smooth = rng.random((count, 1, side // 4, side // 4))
    return np.kron(smooth, np.ones((4, 4))).astype(np.float32)


def test_an_image_is_recovered_if_it_is_nearer_than_the_mean_image_and_every_stranger() -> None:
    true, strangers = faces(3)[:1], faces(60)[10:]
    mean = strangers.mean(0, keepdims=True)
    noise = np.random.default_rng(4).normal(0, 0.1, true.shape).astype(np.float32)
    assert recovered(true, np.clip(true + noise, 0, 1), mean, strangers).all()
    for guess in (mean, strangers[:1], np.full_like(true, 0.5)):
        assert not recovered(true, guess, mean, strangers).any()
    # Nearer by squared error alone: the structure of the mean image.
    assert not recovered(true, mean + 0.02 * (true - mean), mean, strangers).any()


def test_of_a_batch_an_image_must_be_twice_as_near() -> None:
    strangers = faces(60)[10:]
    true, mean = faces(4), strangers.mean(0, keepdims=True)
    near = np.square(np.concatenate([mean, strangers]) - true[0]).mean((1, 2, 3)).min()
    away = np.sign(0.5 - true) * np.float32(np.sqrt(0.8 * near))
    assert recovered(true[:1], (true + away)[:1], mean, strangers)[0]
    assert not recovered(true, true + away, mean, strangers)[0]


def test_similarity_is_that_of_the_metric_and_has_one_window_for_small_images() -> None:
    a, b = faces(3), np.clip(faces(3) + 0.1, 0, 1)
    truth = Truth(b, np.zeros(3, np.int64), 2)
    (metric,) = Ssim(Ssim.Options()).score(AttackReport("finished", images=a), truth).values()
    assert similarity(a, b).mean() == pytest.approx(metric, abs=1e-6)
    assert similarity(a[..., :8, :8], a[..., :8, :8]) == pytest.approx(1.0)


def test_a_row_is_recovered_to_a_small_part_of_the_spreads() -> None:
    true = np.array([[1.0, -1.0], [0.0, 0.0]])
    mean = np.zeros((1, 2))
    assert recovered_rows(true, true + 0.02, mean).tolist() == [True, False]
    assert recovered_rows(true, true + 0.05, mean).tolist() == [False, False]


@pytest.mark.parametrize(("relation", "value", "skew"), [("<=", 0.03, 2.5), (">=", 0.01, -2.5)])
def test_no_number_that_is_worse_than_the_guess_is_a_success_however_skewed_guesses_are(
    relation: Any, value: float, skew: float
) -> None:
    found = [judged([with_evidence(Evidence("error", value, 0.02, 0.05, skew))], Success("error", relation, 0.5), looks)
             for looks in (1, 10, 1000)]  # fmt: skip
    assert not [one for one in found if one.state == "success" or not one.low < value < one.high]
    assert [one.high - one.low for one in found] == sorted(one.high - one.low for one in found)


def test_targets_that_share_their_strangers_are_no_independent_targets() -> None:
    """Ten challenges with the same 100 test examples: a fifth of all sets of random scores was called a success."""
    rng, members, wrong = np.random.default_rng(0), np.arange(200) < 100, 0
    roc = MembershipRoc(MembershipRoc.Options())
    truth = Truth(np.zeros((1, 1, 1, 1), np.float32), np.zeros(1, np.int64), 2, members=members)
    for _ in range(60):
        strangers, outcomes = rng.random(100), []
        for _ in range(10):
            scores = np.concatenate([rng.random(100), strangers])
            found = roc.score(AttackReport("finished", members=scores), truth)
            outcomes.append(with_evidence(
                of_area("membership_auc", found["membership_auc"], 100, 100, common=1.0),
                of_rate("tpr_at_1_fpr", found["tpr_at_1_fpr"], 100, 100, 100, common=1.0),
            ))  # fmt: skip
        wrong += judged(outcomes, AREA, looks=2).state == "success"
    assert wrong <= 3
    alone, together = of_area("a", 0.6, 100, 100), of_area("a", 0.6, 100, 100, common=1.0)
    assert judged([with_evidence(alone)], AREA).low == judged([with_evidence(together)], AREA).low

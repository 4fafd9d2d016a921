"""The shares of epsilon among layers, their joint cost, and the noise that eq. 9 gives them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import gaussian_epsilon, gaussian_noise_multiplier
from fedplug.api.errors import ProtectionError
from fedplug_fedre.budgets import FLOOR, budgets, floored, literal_limit, released_multiplier, shares
from fedplug_ledger.accounting import effective_multiplier
from hypothesis import given, settings
from hypothesis import strategies as st

DELTA = 1e-5
SCORES = np.array([1.0, 2.0, 4.0])
ALLOCATIONS = ("exact", "sum", "as_published")
positive = st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=8).map(np.array)
amounts = st.floats(0.01, 200)
allocations: Any = st.sampled_from(ALLOCATIONS)


# -- the worked example ------------------------------------------------------------------------------------------------


def test_eq_6_for_the_scores_1_2_4() -> None:
    assert shares(SCORES, 10).tolist() == pytest.approx([10 / 1.75, 5 / 1.75, 2.5 / 1.75])


def test_eq_9_costs_5_97_together_where_10_is_the_sum() -> None:
    """Three layers, epsilon 10, one round: 5.97 for zero-out, 13.93 for replace-one, both at delta 1e-5."""
    found = budgets(SCORES, 10, DELTA, 1, "as_published", 3)
    assert found.epsilons.sum() == pytest.approx(10)
    assert found.cost(DELTA) == pytest.approx(5.97, abs=0.005)
    assert found.cost(DELTA, "replace_one") == pytest.approx(13.93, abs=0.005)


def test_the_other_allocations_of_the_same_shares() -> None:
    exact, by_sum = (budgets(SCORES, 10, DELTA, 1, allocation, 3) for allocation in ("exact", "sum"))  # type: ignore[arg-type]
    assert exact.cost(DELTA) == pytest.approx(10)
    assert exact.cost(DELTA, "replace_one") == pytest.approx(24.39, abs=0.005)
    assert (exact.sigmas * shares(SCORES, 10)).tolist() == pytest.approx([exact.sigmas[0] * 10 / 1.75] * 3)
    assert by_sum.cost(DELTA) == pytest.approx(6.55, abs=0.005)
    assert by_sum.costs(DELTA / 3).tolist() == pytest.approx(shares(SCORES, 10).tolist())


def test_eq_9_as_printed() -> None:
    """With all of epsilon for one layer, and with T rounds."""
    one = budgets(np.ones(1), 2.0, DELTA, 30, "as_published", 1)
    assert one.sigmas[0] == pytest.approx(math.sqrt(2 * 30 * math.log(1 / DELTA)) / 2.0)
    three = budgets(SCORES, 10, DELTA, 4, "as_published", 3)
    assert three.sigmas.tolist() == pytest.approx(
        [math.sqrt(8 * math.log(3 / DELTA)) / epsilon for epsilon in three.epsilons]
    )


@pytest.mark.parametrize(("epsilon", "delta", "really"), [(28.6, DELTA / 3, 41.1), (50, DELTA, 97.9)])
def test_eq_9_does_not_give_a_large_epsilon(epsilon: float, delta: float, really: float) -> None:
    sigma = math.sqrt(2 * math.log(1 / delta)) / epsilon
    assert gaussian_epsilon(sigma, delta) == pytest.approx(really, abs=0.05)
    assert epsilon > literal_limit(delta)


def test_where_eq_9_ends() -> None:
    limit = literal_limit(DELTA)
    assert limit == pytest.approx(7.97, abs=0.005)
    for factor, holds in ((0.999, True), (1.001, False)):
        for rounds in (1, 10):
            found = budgets(np.ones(1), factor * limit, DELTA, rounds, "as_published", 1)
            assert (found.cost(DELTA) <= factor * limit) is holds


def test_many_equal_layers_have_far_more_noise_each_than_the_model_as_a_whole() -> None:
    """60 layers, epsilon 10: eps_l = 0.17. Eq. 9 and adding up waste most of the budget. The exact factor does not."""
    found = {one: budgets(np.ones(60), 10, DELTA, 1, one, 60) for one in ALLOCATIONS}  # type: ignore[arg-type]
    assert found["as_published"].epsilons[0] == pytest.approx(1 / 6)
    assert found["as_published"].sigmas[0] == pytest.approx(33.5, abs=0.1)
    assert found["exact"].sigmas[0] == pytest.approx(math.sqrt(60) * gaussian_noise_multiplier(10, DELTA))
    assert found["exact"].sigmas[0] < 0.16 * found["sum"].sigmas[0] < 0.2 * found["as_published"].sigmas[0]


# -- what holds for all scores -----------------------------------------------------------------------------------------


@given(positive, amounts, st.floats(1e-3, 1e3))
def test_shares_add_up_and_do_not_depend_on_the_unit_of_scores(scores: Any, epsilon: float, factor: float) -> None:
    found = shares(scores, epsilon)
    assert found.sum() == pytest.approx(epsilon)
    assert (found >= 0).all()
    assert shares(factor * scores, epsilon).tolist() == pytest.approx(found.tolist())
    order = np.argsort(scores, kind="stable")
    assert (np.diff(found[order]) <= 1e-12 * epsilon).all()  # a higher score never gets more


@given(st.floats(1e-6, 1e6), st.integers(1, 9), amounts)
def test_equal_scores_get_equal_budgets(score: float, count: int, epsilon: float) -> None:
    assert shares(np.full(count, score), epsilon).tolist() == pytest.approx([epsilon / count] * count)


@settings(max_examples=40, deadline=None)
@given(positive, amounts, st.integers(1, 30), allocations, st.randoms())
def test_the_joint_cost_does_not_depend_on_the_order_of_layers(
    scores: Any, epsilon: float, rounds: int, allocation: Any, random: Any
) -> None:
    shuffled = scores.copy()
    random.shuffle(shuffled)
    layers = len(scores)
    one, other = (budgets(s, epsilon, DELTA, rounds, allocation, layers) for s in (scores, shuffled))
    assert one.multiplier == pytest.approx(other.multiplier)
    assert sorted(one.sigmas) == pytest.approx(sorted(other.sigmas))


@settings(max_examples=40, deadline=None)
@given(positive, amounts, allocations, st.integers(2, 6))
def test_splitting_a_layer_into_equal_parts_of_the_same_joint_noise_costs_the_same(
    scores: Any, epsilon: float, allocation: Any, parts: int
) -> None:
    found = budgets(scores, epsilon, DELTA, 3, allocation, len(scores))
    split = [*found.sigmas[1:], *[math.sqrt(parts) * found.sigmas[0]] * parts]
    assert effective_multiplier(split) == pytest.approx(found.multiplier)


@settings(max_examples=40, deadline=None)
@given(positive, amounts, st.integers(1, 30), allocations)
def test_all_layers_together_cost_at_least_what_each_costs(
    scores: Any, epsilon: float, rounds: int, allocation: Any
) -> None:
    found = budgets(scores, epsilon, DELTA, rounds, allocation, len(scores))
    assert found.cost(DELTA) >= found.costs(DELTA).max() * (1 - 1e-9)
    if allocation == "sum":  # basic composition is valid, and a bound
        assert found.cost(DELTA) <= epsilon * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(positive, amounts, st.floats(1e-9, 0.1), st.integers(1, 100), allocations, st.integers(0, 20))
def test_the_ledger_is_never_told_of_more_noise_than_there_is(
    scores: Any, epsilon: float, delta: float, rounds: int, allocation: Any, absent: int
) -> None:
    """Even where the zone holds only some of the model's layers, and for any scores."""
    layers = len(scores) + absent
    found = budgets(scores, epsilon, delta, rounds, allocation, layers)
    released = released_multiplier(epsilon, delta, rounds, allocation, layers)
    assert released <= found.multiplier * (1 + 1e-13 if allocation == "as_published" else 1)
    if allocation == "exact":
        assert released == pytest.approx(found.multiplier)
        assert gaussian_epsilon(released / math.sqrt(rounds), delta) <= epsilon * (1 + 1e-9)


# -- scores that cannot be ---------------------------------------------------------------------------------------------


def test_a_layer_with_zero_score_is_floored() -> None:
    assert floored(np.array([0.0, 3.0, 5e-300])).tolist() == [3 * FLOOR, 3.0, 3 * FLOOR]
    found = budgets(floored(np.array([0.0, 3.0])), 10, DELTA, 1, "exact", 2)
    assert np.isfinite(found.sigmas).all()
    assert found.cost(DELTA) == pytest.approx(10)


@pytest.mark.parametrize(
    ("scores", "problem"),
    [
        ([0.0, 0.0], "all 2 layer scores are 0.*the privacy-sensitive region does not reach any gradient"),
        ([1.0, math.nan, -1.0], "2 of 3 layer scores are NaN, infinite or negative"),
        ([math.inf], "1 of 1 layer scores are NaN, infinite or negative.*lower lr"),
    ],
)
def test_scores_that_say_nothing_are_refused(scores: list[float], problem: str) -> None:
    with pytest.raises(ProtectionError, match=problem):
        floored(np.array(scores))

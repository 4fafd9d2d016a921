"""The estimators: the paper's printed values, brute force, and their confidence on draws from known distributions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from fedplug_audit.estimators import dp_epsilon, dp_p_value, estimate, most_shown, normal_mu, right_guesses
from hypothesis import given
from hypothesis import strategies as st


def test_the_papers_own_values() -> None:
    """Steinke, Nasr, Jagielski (2023), Appendix D: printed to three digits."""
    assert dp_p_value(100, 100, 75, math.log(3), 0) == pytest.approx(0.553, abs=5e-4)
    assert dp_epsilon(100, 100, 75, 0, 0.05) == pytest.approx(0.702, abs=5e-4)
    assert dp_epsilon(100, 100, 75, 1e-4, 0.05) == pytest.approx(0.699, abs=5e-4)
    assert dp_epsilon(1000, 100, 75, 1e-4, 0.05) == pytest.approx(0.673, abs=5e-4)


@given(guesses=st.integers(1, 9), epsilon=st.floats(0, 4), delta=st.floats(0, 0.01), data=st.data())
def test_the_p_value_is_that_of_all_outcomes_counted_one_by_one(
    guesses: int, epsilon: float, delta: float, data: st.DataObject
) -> None:
    right, canaries = data.draw(st.integers(0, guesses)), guesses + 3
    chance = math.exp(epsilon) / (1 + math.exp(epsilon))
    mass = [0.0] * (guesses + 1)
    for outcome in itertools.product((0, 1), repeat=guesses):
        mass[sum(outcome)] += chance ** sum(outcome) * (1 - chance) ** (guesses - sum(outcome))
    steepest = max((sum(mass[right - i : right]) / i for i in range(1, right + 1)), default=0.0)
    expected = min(1.0, sum(mass[right:]) + 2 * canaries * delta * steepest)
    assert dp_p_value(canaries, guesses, right, epsilon, delta) == pytest.approx(expected, abs=1e-12)


def test_randomised_response_is_bounded_by_its_own_epsilon_and_by_nothing_much_smaller() -> None:
    """The mechanism for which the theorem is tight: each coin is told rightly with e^eps / (1 + e^eps)."""
    rng, epsilon, count = np.random.default_rng(1), 1.5, 2000
    found = []
    for _ in range(100):
        right = int(rng.binomial(count, math.exp(epsilon) / (1 + math.exp(epsilon))))
        found.append(dp_epsilon(count, count, right, 0.0, 0.05))
    assert 0.01 < np.mean(np.array(found) > epsilon) < 0.1
    assert 1.25 < np.median(found) < epsilon


def test_all_right_shows_what_can_be_shown() -> None:
    """With p^r = level for p = e^eps / (1 + e^eps), in closed form."""
    p = 0.05 ** (1 / 100)
    assert dp_epsilon(100, 100, 100, 0.0, 0.05) == pytest.approx(math.log(p / (1 - p)), abs=1e-9)
    scores, inside = np.arange(100.0), np.arange(100) >= 50
    assert estimate(scores, inside, 1e-5, 0.05).any_mechanism == most_shown(100, 1e-5, 0.05)


@pytest.mark.parametrize(("right", "guesses", "canaries"), [(3, 2, 5), (-1, 2, 5), (2, 6, 5)])
def test_counts_that_cannot_be_are_refused(right: int, guesses: int, canaries: int) -> None:
    with pytest.raises(ValueError, match=f"right={right}, guesses={guesses}, canaries={canaries}"):
        dp_p_value(canaries, guesses, right, 1.0, 0.0)


@pytest.mark.parametrize("mu", [0.0, 0.9, pytest.param(3.0, marks=pytest.mark.slow)])
def test_the_normal_bound_exceeds_the_truth_as_often_as_its_level_says(mu: float) -> None:
    rng, bounds = np.random.default_rng(4), []
    for _ in range(200):
        inside = rng.random(100) < 0.5
        bounds.append(normal_mu(5 * (rng.standard_normal(100) + mu * inside), inside, 0.05))
    above = np.mean(np.array(bounds) > mu)
    assert 0.02 < above < 0.09
    # What Student's statistic lets one expect: 1.645 standard errors below.
    assert np.median(bounds) == pytest.approx(max(0, mu - 1.645 * math.sqrt(4 / 100 + mu**2 / 200)), abs=0.08)


def test_the_normal_bound_of_scores_without_noise_is_its_largest_and_of_one_side_nothing() -> None:
    inside = np.arange(20) < 9
    assert normal_mu(inside.astype(np.float64), inside, 0.05) == 32
    assert normal_mu(np.zeros(20), inside, 0.05) == 0
    assert normal_mu(-inside.astype(np.float64), inside, 0.05) == 0
    assert normal_mu(np.arange(20.0), np.ones(20, np.bool_), 0.05) == 0


def test_guesses_are_as_many_of_the_highest_as_of_the_lowest() -> None:
    inside = np.array([True, False, False, True, True, False])
    scores = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert right_guesses(scores, inside, 1.0) == (6, 4)
    assert right_guesses(scores, inside, 0.7) == (4, 2)

"""The Gaussian curve against worked numbers, an independent implementation and its own laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fedplug_ledger.accounting import (
    effective_multiplier,
    epsilon_with_slack,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_noise_multiplier,
    gaussian_rdp_epsilon,
)  # fmt: skip
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr  # type: ignore[import-untyped]

DELTA = 1e-5
multipliers = st.floats(1e-2, 1e3)
deltas = st.floats(1e-12, 0.5)


def test_worked_numbers_of_the_specification() -> None:
    """Values computed beforehand with dp_accounting's exact Gaussian."""
    assert math.sqrt(10) * gaussian_noise_multiplier(1, DELTA) == pytest.approx(11.7973, abs=5e-5)
    assert gaussian_noise_multiplier(1, DELTA) == pytest.approx(3.7306, abs=5e-5)
    assert gaussian_epsilon(1.1 / math.sqrt(10), DELTA) == pytest.approx(15.7827, abs=5e-5)
    assert gaussian_epsilon(effective_multiplier([1.5, 2, 3, 8]), DELTA) == pytest.approx(3.9069, abs=5e-5)
    assert gaussian_epsilon(200 / math.sqrt(10), DELTA) == pytest.approx(0.045, abs=5e-4)
    replaced = 11.8 / math.sqrt(10) / 2  # replace-one: twice the sensitivity
    assert gaussian_epsilon(replaced, DELTA) == pytest.approx(2.15, abs=5e-3)


@given(st.floats(0, 20), multipliers)
def test_delta_is_the_formula_of_balle_and_wang(epsilon: float, multiplier: float) -> None:
    first = log_ndtr(0.5 / multiplier - epsilon * multiplier)
    second = epsilon + log_ndtr(-0.5 / multiplier - epsilon * multiplier)
    # Where the two terms nearly cancel the textbook form keeps few digits; ours is compared within what it keeps.
    assert gaussian_delta(epsilon, multiplier) == pytest.approx(
        math.exp(first) - math.exp(second), rel=1e-9, abs=1e-12 * math.exp(first) + 1e-300
    )


def without_cancelling(epsilon: float, multiplier: float) -> float:
    """phi(x) integral over u > 0 of e^(x u - u^2 / 2) (1 - e^(-u / s)), x = 1/2s - e s: the difference of two Mills
    ratios as an integral of what is positive.
    """
    x = 0.5 / multiplier - epsilon * multiplier
    top = max(x, 0.0) + 40
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.linspace(0, top, 81)
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    u = (middle[:, None] + half[:, None] * nodes).ravel()
    terms = np.exp(x * u - u * u / 2 - x * x / 2) * -np.expm1(-u / multiplier)
    return float(terms @ (half[:, None] * weights).ravel()) / math.sqrt(2 * math.pi)


@pytest.mark.parametrize("multiplier", [0.05, 0.3, 1.0, 20.0, 900.0, 1500.0, 1e5, 1e8, 1e10, 1e12, 1e14])
@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-12, 1e-15, 1e-18, 1e-30])
def test_epsilon_is_right_to_ten_digits_at_every_multiplier_and_delta(multiplier: float, delta: float) -> None:
    """The Mills ratios at two places that are 1e-8 apart have eight digits in common."""
    epsilon = gaussian_epsilon(multiplier, delta)
    if epsilon == 0:
        assert without_cancelling(0.0, multiplier) <= delta * (1 + 1e-10)
    else:
        assert without_cancelling(epsilon * (1 + 1e-10), multiplier) <= delta * (1 + 1e-14)
        assert without_cancelling(epsilon * (1 - 1e-9), multiplier) >= delta * (1 - 1e-12)


@given(multipliers, deltas)
def test_epsilon_inverts_delta_from_above(multiplier: float, delta: float) -> None:
    epsilon = gaussian_epsilon(multiplier, delta)
    assert gaussian_delta(epsilon, multiplier) <= delta
    if epsilon > 1e-6:
        assert gaussian_delta(epsilon * (1 - 1e-9), multiplier) >= delta * (1 - 1e-6)


@given(st.floats(1e-2, 1e3), deltas)
def test_calibration_is_sufficient_and_no_larger_than_needed(epsilon: float, delta: float) -> None:
    multiplier = gaussian_noise_multiplier(epsilon, delta)
    assert gaussian_delta(epsilon, multiplier) <= delta
    assert gaussian_delta(epsilon, multiplier * (1 - 1e-9)) > delta * (1 - 1e-12)


@given(multipliers, multipliers, deltas)
def test_epsilon_falls_with_noise_and_grows_with_rounds(one: float, other: float, delta: float) -> None:
    """Item 21."""
    assert gaussian_epsilon(max(one, other), delta) <= gaussian_epsilon(min(one, other), delta)
    assert gaussian_epsilon(effective_multiplier([one] * 5), delta) >= gaussian_epsilon(one, delta)


@given(st.lists(multipliers, min_size=1, max_size=8))
def test_composition_knows_no_order_and_no_splitting(multipliers: list[float]) -> None:
    """Item 22, as far as it concerns Gaussians: order, splitting one release in two, joint at least each."""
    joint = effective_multiplier(multipliers)
    assert effective_multiplier(reversed(multipliers)) == pytest.approx(joint, rel=1e-12)
    halves = [multipliers[0] * math.sqrt(2)] * 2
    assert effective_multiplier([*halves, *multipliers[1:]]) == pytest.approx(joint, rel=1e-12)
    assert gaussian_epsilon(joint, DELTA) >= max(gaussian_epsilon(m, DELTA) for m in multipliers) * (1 - 1e-12)


@given(multipliers, deltas)
def test_rdp_is_an_upper_bound(multiplier: float, delta: float) -> None:
    assert gaussian_rdp_epsilon(multiplier, delta) >= gaussian_epsilon(multiplier, delta) * (1 - 1e-12)


@given(multipliers, st.floats(1.0001, 1000))
def test_rdp_takes_the_best_order(multiplier: float, order: float) -> None:
    """Lemma 2 of SelectiveShield at any order is no better than what is returned."""
    lemma = order / (2 * multiplier**2) + math.log((order - 1) / order)
    lemma -= (math.log(DELTA) + math.log(order)) / (order - 1)
    assert gaussian_rdp_epsilon(multiplier, DELTA) <= max(0.0, lemma) * (1 + 1e-9) + 1e-12


def test_no_noise_and_no_release() -> None:
    assert gaussian_epsilon(0, DELTA) == gaussian_rdp_epsilon(0, DELTA) == math.inf
    assert gaussian_epsilon(math.inf, DELTA) == gaussian_rdp_epsilon(math.inf, DELTA) == 0
    assert gaussian_delta(1, 0) == 1
    assert gaussian_delta(1, math.inf) == 0
    assert gaussian_noise_multiplier(math.inf, DELTA) == 0
    assert effective_multiplier([]) == math.inf
    assert effective_multiplier([2.0, 0.0]) == 0
    assert effective_multiplier([2.0, math.inf]) == 2


@pytest.mark.parametrize("multiplier", [1e-120, 1e-8, 1e-3, 1e6])
def test_extreme_noise_gives_finite_numbers(multiplier: float) -> None:
    epsilon = gaussian_epsilon(multiplier, 1e-9)
    assert 0 <= epsilon < math.inf
    assert epsilon <= gaussian_rdp_epsilon(multiplier, 1e-9) < math.inf


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gaussian_noise_multiplier(0, DELTA), "epsilon=0 must be > 0"),
        (lambda: gaussian_noise_multiplier(1, 0), "delta=0 must lie between 0 and 1"),
        (lambda: gaussian_epsilon(-1, DELTA), "noise_multiplier=-1 must be >= 0"),
        (lambda: gaussian_epsilon(math.nan, DELTA), "noise_multiplier=nan"),
        (lambda: gaussian_delta(-1, 1), "epsilon=-1 must be >= 0"),
    ],
)
def test_bad_numbers_are_refused_with_value_and_rule(call: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()  # type: ignore[operator]


def test_a_mechanism_that_takes_of_delta_leaves_less_for_epsilon() -> None:
    def epsilon_at(delta: float) -> float:
        return gaussian_epsilon(1.0, delta)

    assert epsilon_with_slack(epsilon_at, 1e-5, 0.0) == epsilon_at(1e-5)
    assert epsilon_with_slack(epsilon_at, 1e-5, 2.0e-3) == math.inf  # the slack alone is more than delta
    for slack in (1e-12, 1e-10, 1e-9):
        epsilon = epsilon_with_slack(epsilon_at, 1e-5, slack)
        spent = gaussian_delta(epsilon, 1.0) + (1 + math.exp(epsilon)) * slack
        assert epsilon > epsilon_at(1e-5)
        assert spent <= 1e-5 * (1 + 1e-9)
        assert spent == pytest.approx(1e-5, rel=1e-3)

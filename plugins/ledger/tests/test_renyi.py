"""Renyi DP of Laplace and pure releases, and their composition."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import pytest
from fedplug_ledger.accounting import composed_epsilon, gaussian_epsilon, gaussian_rdp_epsilon, laplace_rdp, pure_rdp
from hypothesis import given
from hypothesis import strategies as st
from ledger_toys import DELTA
from scipy import integrate

MULTIPLIERS = st.floats(0.2, 50)


@pytest.mark.parametrize(("order", "multiplier"), [(1.5, 0.7), (2.0, 1.0), (8.0, 3.0), (64.0, 20.0)])
def test_renyi_dp_of_laplace_is_the_integral(order: float, multiplier: float) -> None:
    def integrand(x: float) -> float:
        here, there = -abs(x) / multiplier, -abs(x - 1) / multiplier
        return math.exp(order * here + (1 - order) * there) / (2 * multiplier)

    ends = [-60 * multiplier, 0, 1, 60 * multiplier]
    whole = sum(integrate.quad(integrand, low, high)[0] for low, high in itertools.pairwise(ends))
    assert laplace_rdp(order, multiplier) == pytest.approx(math.log(whole) / (order - 1), rel=1e-6)


@pytest.mark.parametrize("multiplier", [0.5, 30.0, 1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("order", [1.5, 2.0, 40.0, 1e4, 1e6])
def test_renyi_dp_of_tiny_losses_keeps_its_digits(order: float, multiplier: float) -> None:
    """The logarithm of a moment is that of one and a little, of which floating point keeps only the one."""
    if order > 1e4 * multiplier:
        return
    with localcontext() as context:
        context.prec = 80
        a, loss = Decimal(order), 1 / Decimal(multiplier)
        moment = a / (2 * a - 1) * ((a - 1) * loss).exp() + (a - 1) / (2 * a - 1) * (-a * loss).exp()
        stay, leave = 1 / (1 + (-loss).exp()), 1 / (1 + loss.exp())
        logs = a * stay.ln() + (1 - a) * leave.ln(), a * leave.ln() + (1 - a) * stay.ln()
        of_laplace = moment.ln() / (a - 1)
        of_pure = (logs[0].exp() + logs[1].exp()).ln() / (a - 1)
    assert laplace_rdp(order, multiplier) == pytest.approx(float(of_laplace), rel=1e-10)
    assert pure_rdp(order, 1 / multiplier) == pytest.approx(float(of_pure), rel=1e-10)


def test_very_many_tiny_releases_cost_what_gaussian_ones_of_their_variance_do() -> None:
    """1e13 releases of loss 1e-8: a loss has the variance of Gaussian noise with that multiplier. The sum was 0.4% less
    than it is.
    """
    for mechanism in ("laplace", "pure"):
        found = composed_epsilon(0.0, [(mechanism, 1e8, 10**13)], 1e-12)
        assert found == pytest.approx(gaussian_rdp_epsilon(1e8 / math.sqrt(1e13), 1e-12), rel=1e-6)


@given(MULTIPLIERS, st.floats(1.01, 500))
def test_laplace_costs_no_more_than_any_pure_mechanism_of_its_epsilon(multiplier: float, order: float) -> None:
    assert laplace_rdp(order, multiplier) <= pure_rdp(order, 1 / multiplier) + 1e-12
    assert pure_rdp(order, 1 / multiplier) <= 1 / multiplier + 1e-12


def test_one_pure_release_costs_its_epsilon_at_most() -> None:
    assert composed_epsilon(0.0, [("pure", 2.0, 1)], 1e-9) == pytest.approx(0.5)
    assert composed_epsilon(0.0, [("laplace", 0.25, 1)], 1e-9) == pytest.approx(4.0, abs=0.01)


def test_many_small_releases_cost_less_than_their_sum() -> None:
    assert composed_epsilon(0.0, [("laplace", 50.0, 400)], DELTA) < 0.5 * 8


@given(MULTIPLIERS, st.integers(1, 50), st.floats(0, 4))
def test_composition_grows_with_everything_that_is_added(multiplier: float, count: int, gaussian: float) -> None:
    alone = composed_epsilon(gaussian, [("laplace", multiplier, count)], DELTA)
    assert composed_epsilon(gaussian, [("laplace", multiplier, count + 1)], DELTA) >= alone
    assert composed_epsilon(gaussian + 1, [("laplace", multiplier, count)], DELTA) >= alone
    assert alone >= gaussian_epsilon(math.inf if gaussian == 0 else gaussian**-0.5, DELTA) - 1e-9


def test_gaussian_alone_is_close_to_its_own_bound() -> None:
    assert composed_epsilon(0.25, [], DELTA) == pytest.approx(
        min(gaussian_rdp_epsilon(2, DELTA), gaussian_epsilon(2, DELTA)), rel=1e-6
    )


def test_no_noise_and_unknown_mechanisms() -> None:
    assert math.isinf(composed_epsilon(math.inf, [("pure", 1.0, 1)], DELTA))
    assert math.isinf(composed_epsilon(0.0, [("laplace", 0.0, 1)], DELTA))
    with pytest.raises(ValueError, match="must be laplace or pure"):
        composed_epsilon(0.0, [("staircase", 1.0, 1)], DELTA)

"""The price of noise in whole numbers: worked numbers of the papers, and Renyi divergences computed exactly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug_ledger.accounting import composed_epsilon, gaussian_epsilon, gaussian_noise_multiplier
from fedplug_ledger.integers import concentrated_multiplier, std_of_sum, sum_gap, sum_multiplier
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

MECHANISMS: Any = st.sampled_from(["discrete_gaussian_sum", "skellam_sum"])


def renyi(law: NDArray[np.float64], shift: int, order: float) -> float:
    """Renyi divergence of a law of whole numbers, as logarithms, from itself shifted."""
    one, other = law[shift:], law[: len(law) - shift]
    kept = (one > -650) & (other > -650)
    terms = order * one[kept] + (1 - order) * other[kept]
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def gaussian_sum(std: float, clients: int) -> NDArray[np.float64]:
    """The exact law of a sum of discrete Gaussian variables, by convolution, as logarithms."""
    reach = int(40 * std * math.sqrt(clients)) + 60
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * std * std))
    one /= one.sum()
    law = one
    for _ in range(clients - 1):
        law = np.convolve(law, one, mode="same")
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(law), -700.0)


def test_the_gap_of_a_sum_on_worked_numbers() -> None:
    """tau = 10 (exp(-pi^2 s^2) + exp(-4 pi^2 s^2 / 3)) for three clients."""
    assert sum_gap(1.0, 1) == 0
    assert sum_gap(1.0, 3) == pytest.approx(10 * (math.exp(-math.pi**2) + math.exp(-4 * math.pi**2 / 3)))
    assert sum_gap(1.0, 3) == pytest.approx(5.365e-4, rel=1e-4)
    assert sum_gap(4.0, 10_000) < 1e-66, "from four steps on it is nothing"
    assert sum_gap(0.5, 2) == math.inf


@pytest.mark.parametrize("std", [0.75, 1.0, 1.5])
@pytest.mark.parametrize("clients", [2, 3, 10])
def test_a_sum_of_discrete_gaussian_noise_lies_within_the_gap(std: float, clients: int) -> None:
    reach = int(6 * std * math.sqrt(clients))
    law = gaussian_sum(std, clients)
    at = np.arange(len(law)) - len(law) // 2
    wide = -(at**2) / (2 * clients * std * std)
    wide = wide - np.logaddexp.reduce(wide)
    near = np.abs(at) <= reach
    assert np.abs(law - wide)[near].max() <= sum_gap(std, clients)


@pytest.mark.parametrize("std", [0.71, 0.8, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("clients", [1, 2, 5, 10])
def test_no_exact_divergence_of_discrete_gaussian_sums_exceeds_the_price(std: float, clients: int) -> None:
    law = gaussian_sum(std, clients)
    for shift in (1, 2, 5):
        price = sum_multiplier("discrete_gaussian_sum", std, shift, 1, clients) ** -2 / 2
        for order in (2, 3, 4, 8, 32):
            assert renyi(law, shift, order) <= order * price * (1 + 1e-9)


@pytest.mark.parametrize("variance", [0.5, 1.0, 2.0, 8.0, 64.0])
def test_no_exact_divergence_of_skellam_noise_exceeds_the_paper_or_the_price(variance: float) -> None:
    """Agarwal, Kairouz & Liu 2021, Theorem 3.5, in one dimension."""
    at = np.arange(-900, 901)
    law = np.maximum(np.nan_to_num(stats.skellam.logpmf(at, variance / 2, variance / 2), neginf=-700.0), -700.0)
    for shift in (1, 2, 5, 10):
        price = sum_multiplier("skellam_sum", math.sqrt(variance / 4), shift, 1, 4) ** -2 / 2
        for order in (2, 3, 4, 8, 32):
            more = min(((2 * order - 1) * shift**2 + 6 * shift) / (4 * variance**2), 3 * shift / (2 * variance))
            paper = order * shift**2 / (2 * variance) + more
            assert renyi(law, shift, order) <= paper <= order * price * (1 + 1e-12)


@given(st.lists(st.integers(-6, 6), min_size=1, max_size=6).filter(any), st.sampled_from([2.0, 9.0, 40.0]))
@settings(max_examples=30, deadline=None)
def test_no_exact_divergence_of_skellam_vectors_exceeds_the_price(shifts: list[int], variance: float) -> None:
    """Coordinates are independent, so divergences add up. The L1 norm is at most the price's assumption."""
    at = np.arange(-900, 901)
    law = np.maximum(np.nan_to_num(stats.skellam.logpmf(at, variance / 2, variance / 2), neginf=-700.0), -700.0)
    norm, size = math.hypot(*shifts), len(shifts)
    assert sum(map(abs, shifts)) <= min(math.sqrt(size) * norm, norm**2) * (1 + 1e-12)
    price = sum_multiplier("skellam_sum", math.sqrt(variance / 9), norm, size, 9) ** -2 / 2
    for order in (2, 4, 16):
        assert sum(renyi(law, abs(shift), order) for shift in shifts if shift) <= order * price * (1 + 1e-9)


def test_prices_on_worked_numbers() -> None:
    """D2 = 10 steps, d = 4, so D1 = 20, and mu = 4 * 5^2 = 100."""
    cost = 100 / 100 + min((2 * 100 + 120 - 100) / (2 * 100**2), 3 * 20 / 100)
    assert sum_multiplier("skellam_sum", 5.0, 10.0, 4, 4) == pytest.approx(cost**-0.5)
    assert cost == 1.011
    tau = sum_gap(1.0, 3)
    assert sum_multiplier("discrete_gaussian_sum", 1.0, 2.0, 100, 3) == pytest.approx(
        1 / min(math.sqrt(4 / 3 + 100 * tau), 2 / math.sqrt(3) + 10 * tau)
    )
    assert sum_multiplier("discrete_gaussian_sum", 0.5, 2.0, 100, 3) == 0, "nothing is known"
    assert sum_multiplier("discrete_gaussian_sum", 0.5, 2.0, 100, 1) == pytest.approx(0.25), "of one variable it is"


@given(MECHANISMS, st.floats(0.8, 1e3), st.floats(1, 1e4), st.integers(1, 10**6), st.integers(1, 500))
def test_a_price_falls_with_noise_and_clients_and_is_never_below_that_of_gaussian_noise(
    mechanism: Any, std: float, norm: float, size: int, clients: int
) -> None:
    found = sum_multiplier(mechanism, std, norm, size, clients)
    assert found <= math.sqrt(clients) * std / norm * (1 + 1e-12)
    assert sum_multiplier(mechanism, 1.1 * std, norm, size, clients) >= found
    assert sum_multiplier(mechanism, std, 1.1 * norm, size, clients) <= found
    assert sum_multiplier(mechanism, std, norm, 2 * size, clients) <= found
    # Twice the sensitivity costs at most four times as much. This is the price of replace-one.
    assert sum_multiplier(mechanism, std, 2 * norm, size, clients) >= found / 2 * (1 - 1e-12)
    if mechanism == "skellam_sum" or std >= 4:
        assert sum_multiplier(mechanism, std, norm, size, clients + 1) >= found


@given(MECHANISMS, st.floats(0.05, 50), st.floats(1, 1e4), st.integers(1, 10**6), st.integers(1, 500))
def test_the_least_noise_of_a_multiplier_has_it(
    mechanism: Any, multiplier: float, norm: float, size: int, clients: int
) -> None:
    std = std_of_sum(mechanism, multiplier, norm, size, clients)
    assert sum_multiplier(mechanism, std, norm, size, clients) >= multiplier
    assert sum_multiplier(mechanism, std * (1 - 1e-9), norm, size, clients) <= multiplier * (1 + 1e-12)


def test_no_noise_of_no_multiplier() -> None:
    with pytest.raises(ValueError, match="mechanism='laplace' must be one of discrete_gaussian_sum, skellam_sum"):
        std_of_sum("laplace", 1.0, 1.0, 1, 1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="multiplier=0"):
        std_of_sum("skellam_sum", 0, 1.0, 1, 1)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 20), st.sampled_from([1e-5, 1e-8]))
def test_concentrated_noise_is_calibrated_by_renyi_dp_of_whole_orders(epsilon: float, delta: float) -> None:
    multiplier = concentrated_multiplier(epsilon, delta)
    cost = multiplier**-2
    assert composed_epsilon(cost, (), delta, concentrated=True) <= epsilon * (1 + 1e-12)
    best = min(
        a * cost / 2 + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in range(2, 3000)
    )
    assert best == pytest.approx(epsilon, rel=2e-3)
    assert 1 < multiplier / gaussian_noise_multiplier(epsilon, delta) < 1.25


def test_concentrated_dp_promises_less_than_gaussian_noise_of_the_same_multiplier() -> None:
    assert composed_epsilon(1.0, (), 1e-5, concentrated=True) > gaussian_epsilon(1.0, 1e-5)
    assert composed_epsilon(1.0, [("laplace", 5.0, 2)], 1e-5, concentrated=True) > composed_epsilon(
        1.0, [("laplace", 5.0, 2)], 1e-5
    )
    assert composed_epsilon(math.inf, (), 1e-5, concentrated=True) == math.inf

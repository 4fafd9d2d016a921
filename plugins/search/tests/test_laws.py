"""What the best of a drawn number of trials costs: dp-accounting's numbers, and tiny cases worked out."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent, RepeatAndSelectDpEvent
from dp_accounting.rdp import RdpAccountant
from fedplug_ledger.accounting import ORDERS, pure_rdp, renyi, renyi_epsilon
from fedplug_search.laws import Law
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare, nbinom, poisson

LAWS = [Law(1.0, 10), Law(0.0, 10), Law(0.5, 20), Law(None, 10), Law(1.0, 1000), Law(None, 2)]


def chances(law: Law, most: int = 4000) -> np.ndarray:
    """By Definition 1 of the paper, from 0 to a number beyond which nothing is left; Poisson's by scipy."""
    if law.eta is None:
        return np.asarray(poisson.pmf(np.arange(most), law.mean))
    k, gamma = np.arange(1, most), math.exp(law.log_gamma)
    if law.eta == 0:
        found = (1 - gamma) ** k / (k * math.log(1 / gamma))
    else:
        products = np.cumsum(np.log((k - 1 + law.eta) / k))
        found = np.exp(k * math.log1p(-gamma) + products) / (gamma**-law.eta - 1)
    return np.concatenate([[0.0], found])


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_epsilon_is_that_of_dp_accounting(law: Law) -> None:
    orders = ORDERS[(ORDERS > 1.001) & (ORDERS < 3000)].tolist()
    accountant = RdpAccountant(orders)
    shape = math.inf if law.eta is None else law.eta
    accountant.compose(RepeatAndSelectDpEvent(GaussianDpEvent(2.0), law.mean, shape))
    found = renyi_epsilon(law.renyi(renyi(0.25, [])), 1e-5)
    assert found == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_mean_is_as_asked_and_draws_follow_the_law(law: Law) -> None:
    exact = chances(law, 60_000)
    assert exact.sum() == pytest.approx(1, abs=1e-6)
    assert exact @ np.arange(len(exact)) == pytest.approx(law.mean, rel=1e-4)
    if law.mean > 100:
        return
    drawn = Counter(law.draw() for _ in range(3000))
    seen = np.array([drawn[number] for number in range(6)])
    expected = 3000 * exact[:6]
    kept = expected > 0
    both = ([*each[kept], 3000 - each[kept].sum()] for each in (seen, expected))
    assert chisquare(*both).pvalue > 1e-6


@given(eta=st.floats(-0.99, 900, allow_subnormal=False), mean=st.integers(2, 10**6))
@example(eta=-0.99, mean=1287)
def test_every_law_has_its_mean_and_chances_of_1(eta: float, mean: int) -> None:
    """Also where the chance of one trial is none in float64, as scipy's laws have it."""
    law = Law(eta, mean)
    gamma, power = math.exp(law.log_gamma), eta * law.log_gamma
    below = max(power, 0.0) + np.log(-np.expm1(-abs(power))) if eta else 0.0  # of |1 - gamma^eta|, which may overflow
    excess = np.log(abs(eta)) + np.log1p(-gamma) - below if eta else 0.0
    assert not eta or excess - law.log_gamma == pytest.approx(math.log(mean), abs=1e-6)


@pytest.mark.parametrize("law", [Law(None, 800), Law(900.0, 5000), Law(50.0, 3)], ids=str)
def test_many_trials_are_drawn_too(law: Law) -> None:
    """A number that is always the same would be one that everybody knows."""
    numbers, each = zip(*itertools.takewhile(lambda pair: pair[1] < 1, law._chances()), strict=True)
    if law.eta is None:
        exact = poisson(law.mean).pmf(numbers)
    else:
        whole = nbinom(law.eta, math.exp(law.log_gamma))
        exact = whole.pmf(numbers) / whole.sf(0)
    assert each == pytest.approx(exact, rel=1e-6, abs=1e-12)
    assert sum(each) == pytest.approx(1, abs=1e-9)
    assert len({law.draw() for _ in range(20)}) > 1


@pytest.mark.parametrize("law", [Law(1.0, 10), Law(0.0, 5), Law(None, 8)], ids=str)
@given(bias=st.floats(0.05, 3), order=st.sampled_from([2, 4, 8, 32]))
def test_a_tiny_case_by_enumeration(law: Law, bias: float, order: int) -> None:
    """A run says 1 with chance p, on a neighbour 1 - p, and 1 is the better answer: randomised response.

    The best of K runs is 0 only if all are, with chance E[(1 - p)^K]. Poisson's K may be 0: then there is no answer.
    """
    p = 1 / (1 + math.exp(-bias))
    exact = chances(law, 3000)

    def best(one: float) -> list[float]:
        none = exact[0]
        zeros = float(exact @ (1 - one) ** np.arange(len(exact))) - none
        return [none, zeros, 1 - none - zeros]

    there, here = best(p), best(1 - p)
    bound = law.renyi(pure_rdp(ORDERS, bias))[np.searchsorted(ORDERS, order)]
    for one, other in ((there, here), (here, there)):
        moment = sum(a**order * b ** (1 - order) for a, b in zip(one, other, strict=True) if a > 0)
        assert math.log(moment) / (order - 1) <= bound + 1e-9


def test_geometric_stops_cost_three_times_a_pure_epsilon_at_most() -> None:
    """Liu and Talwar (2019), and (2 + eta) epsilon as Papernot and Steinke have it, in the limit of large orders."""
    for eta, most in ((1.0, 3), (0.0, 2)):
        costs = Law(eta, 10).renyi(pure_rdp(ORDERS, 0.5))
        assert costs[-1] == pytest.approx(most * 0.5, abs=1e-4)


@pytest.mark.parametrize(
    ("text", "mean", "says"), [("cosy", 10, "no law"), ("geometric", 1, "mean above 1"), ("-1", 5, "no law")]
)
def test_what_is_no_law_is_refused(text: str, mean: float, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Law.read(text, mean)

"""The credit for a round's noise in a zone."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug.api.known import Release
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_ledger.costs import _STEPS_PER_STD, noise_of_others, strongest, strongest_other
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_toys import DELTA, LOCAL, SIGMA, enter, exact, held, ledger_of, shares
from numpy.typing import NDArray
from scipy import stats


@pytest.mark.parametrize(
    ("release", "said"),
    [
        # The noise has a standard deviation of sqrt(10) * 3.7306 = 11.797: 1 + 9 * 11.797 = 107.2.
        (held(108.0, 2.0**-17), None),
        (held(math.inf, 0.0), None),
        (held(107.0, 2.0**-17), "saturates at 107, .* from range: 108 on"),
        (held(108.0, 6.0), "rounded to 6, too coarse for noise of 11.8"),
        (dataclasses.replace(held(108.0, 0.0), clipping_norm=math.nan), "names no single clipping norm"),
        (dataclasses.replace(LOCAL, uncredited="odd.link states no effect"), "odd.link states no effect"),
    ],
)
def test_noise_of_others_counts_only_if_the_encryption_holds_it(release: Release, said: str | None) -> None:
    """At a range of 1, noise of deviation 11.8 leaves only signs, and 20 signs hide less than 20 noises."""
    ledger = ledger_of(key_holders={"encrypted": "key_server"})
    enter(ledger, {"encrypted": 1000}, {"encrypted": [release]})
    credit = 1 if said else math.sqrt(20)
    assert exact(ledger, "released_model") == pytest.approx(gaussian_epsilon(SIGMA * credit / math.sqrt(10), DELTA))
    warned = ledger.report().warnings
    assert len(warned) == (said is not None)
    assert said is None or re.search(said, warned[0])


@settings(max_examples=examples(30))
@given(shares, st.integers(0, 7))
def test_dropping_a_client_after_its_noise_never_lowers_epsilon(weights: list[float], dropped: int) -> None:
    """Item 41, in every view and for any weights."""
    asked = list(range(len(weights)))
    everyone = dict(enumerate(weights))
    fewer = {client_id: weight for client_id, weight in everyone.items() if client_id != dropped % len(weights)}
    facts = {"num_clients": len(weights), "key_holders": {"encrypted": "clients"}, "delta": 0.01}
    zones, releases = {"encrypted": 500, "noised": 500}, {"encrypted": [LOCAL], "noised": [LOCAL]}
    full = enter(ledger_of(**facts), zones, releases, 3, asked, everyone)
    less = enter(ledger_of(**facts), zones, releases, 3, asked, fewer)
    for view in {*full.report().views} - {"key_holder"}:  # every client holds the key
        assert exact(less, view) >= exact(full, view) * (1 - 1e-9)
    assert less.epsilon() == full.epsilon()


def test_the_noise_of_others_is_that_of_the_lightest_who_surely_contributed() -> None:
    equal = dict.fromkeys(range(9), 1.0)
    assert noise_of_others(9, list(range(9)), equal) == (3.0, math.sqrt(8))
    assert noise_of_others(4, list(range(9)), equal) == (2.0, math.sqrt(3)), "of the fewest behind any value"
    assert noise_of_others(0, [0, 1], {}) == (1.0, 1.0)
    # A client that was charged and is missing counts as weight 1: sqrt(2 / 4) is below one's own noise.
    assert noise_of_others(2, [0, 1, 2], {0: 0.5, 1: 0.5}) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("mechanism", "trust", "beside", "found"),
    [
        ("laplace", "local", 0.0, ("laplace", 3.0)),
        ("odd.noise", "local", 0.0, ("odd.noise", 3.0)),  # whose curve is stated
        ("staircase", "local", 0.0, None),
        ("laplace", "central", 0.0, None),
        ("laplace", "local", 1.0, None),  # Gaussian noise of the same chain is counted instead
    ],
)
def test_noise_that_is_not_gaussian_counts_where_it_is_local_and_alone(
    mechanism: str, trust: Any, beside: float, found: list[Any] | None
) -> None:
    chain = [Release(mechanism, 2.0, 1.0, trust=trust), Release(mechanism, 3.0, 1.0, trust=trust)]
    assert strongest_other([*chain, Release("gaussian", beside, 1.0)], ["odd.noise"]) == found
    assert strongest(chain) == 0.0, "none of it is Gaussian"
    assert strongest([]) is None


def rounded(std: float, at: float, fine: float) -> NDArray[np.float64]:
    """The law of a Gaussian value on a fine grid, rounded to whole numbers, ties to even ones."""
    reach, parts = int(30 * std) + 10, round(1 / fine)
    grid = np.arange(-reach * parts, reach * parts + 1) * fine
    up, low = (grid + fine / 2 - at) / std, (grid - fine / 2 - at) / std
    mass = np.where(low > 0, stats.norm.sf(low) - stats.norm.sf(up), stats.norm.cdf(up) - stats.norm.cdf(low))
    return np.bincount(np.rint(grid).astype(int) + reach, mass, 2 * reach + 1)


@pytest.mark.parametrize("fine", [1.0, 0.5, 0.25])
def test_a_sum_of_rounded_values_costs_no_more_than_the_exact_one_from_some_steps_on(fine: float) -> None:
    """Renyi divergences of sums of rounded Gaussian values, computed exactly; half a step a deviation is too coarse."""

    def excess(std: float, clients: int, apart: float, order: float) -> float:
        here, there = (rounded(std, at, fine) for at in (0.0, apart))
        for _ in range(clients - 1):
            here, there = np.convolve(here, rounded(std, 0.0, fine)), np.convolve(there, rounded(std, 0.0, fine))
        middle, far = len(here) // 2, int(20 * std * clients**0.5)
        one, other = (np.log(law[middle - far : middle + far + 1]) for law in (here, there))
        found = max(np.logaddexp.reduce(order * p + (1 - order) * q) for p, q in ((one, other), (other, one)))
        return float(found / (order - 1) / (order * apart**2 / (2 * clients * std**2)))

    every = [(n, x, a) for n in (2, 3) for x in (0.3, 1.0) for a in (2, 8)]
    for std in (_STEPS_PER_STD, _STEPS_PER_STD / 2):
        assert max(excess(std, *one) for one in every) <= 1
    assert fine == 1 or max(excess(0.5, *one) for one in every) > 1.2


def test_so_many_colluders_know_their_noise() -> None:
    equal = dict.fromkeys(range(9), 1.0)
    assert noise_of_others(9, list(range(9)), equal, 5) == (3.0, 2.0)
    assert noise_of_others(9, list(range(9)), equal, 50) == (3.0, 1.0)
    assert noise_of_others(3, [0, 1, 2], {0: 1.0, 1: 0.5, 2: 0.1}, 1)[1] == 1.0, "the heaviest is the one who looks"

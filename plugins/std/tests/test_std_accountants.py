"""Epsilon of sampled and of composed releases against known numbers, Opacus, closed forms and convolutions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
from fedplug_ledger.accounting import composed_epsilon, gaussian_epsilon, gaussian_rdp_epsilon, rdp_to_epsilon
from fedplug_std import accountants
from fedplug_std.accountants import Pld
from fedplug_std.loss_distributions import Gaussian, epsilon_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

DELTA = 1e-5


@pytest.fixture(scope="module")
def pld() -> Pld:
    return Pld(Pld.Options())


@pytest.fixture
def only_pld(monkeypatch: pytest.MonkeyPatch) -> Pld:
    """One without Renyi DP, which takes most of the time."""
    monkeypatch.setattr(accountants, "_rdp", lambda *_: None)
    return Pld(Pld.Options())


def epsilon(multiplier: float, rate: float, rounds: int, adjacency: str = "zero_out") -> dict[str, float]:
    return Pld(Pld.Options()).compose([("gaussian", multiplier, rate, rounds)], DELTA, adjacency)


def test_worked_numbers_of_the_specification() -> None:
    """Values computed beforehand with Opacus and dp_accounting."""
    assert epsilon(1.1, 0.1, 100)["pld"] == pytest.approx(5.913, abs=1e-3)
    assert epsilon(1.1, 0.1, 100)["rdp"] == pytest.approx(6.614, abs=1e-3)
    assert epsilon(3.942, 0.1, 100)["pld"] == pytest.approx(1.0, abs=1e-3)
    assert epsilon(1.1, 1, 10)["pld"] == pytest.approx(15.783, abs=1e-3)
    assert epsilon(1.1, 1, 10)["rdp"] == pytest.approx(16.857, abs=2e-3)


def test_replace_one_doubles_the_sensitivity_in_both_methods() -> None:
    """The trap of section 3: at sigma 4 RDP says 1.01 where PLD says 1.99, unless its caller halves the multiplier."""
    found = epsilon(4, 1, 1, "replace_one")
    assert found["pld"] == pytest.approx(1.99, abs=5e-3)
    assert found["pld"] == pytest.approx(gaussian_epsilon(2, DELTA), abs=1e-3)
    assert found["rdp"] == pytest.approx(gaussian_rdp_epsilon(2, DELTA), rel=1e-3)
    sampled = epsilon(4, 0.1, 10, "replace_one")
    assert list(sampled) == ["pld"], "Opacus knows no sampling under replace-one, so no RDP figure may be given"
    assert epsilon(4, 0.1, 10)["pld"] < sampled["pld"] < gaussian_epsilon(2 / math.sqrt(10), DELTA)


@settings(max_examples=15, deadline=None)
@given(st.floats(0.8, 20), st.integers(1, 30))
def test_lemma_2_is_opacus(multiplier: float, rounds: int) -> None:
    """Item 20: the closed form at Opacus' orders is Opacus; at the best order it is no larger."""
    from opacus.accountants.analysis import rdp as opacus_rdp

    orders = [1 + k / 10 for k in range(1, 100)] + list(range(12, 64))
    curve = opacus_rdp.compute_rdp(q=1, noise_multiplier=multiplier, steps=rounds, orders=orders)
    ours = [rounds * order / (2 * multiplier**2) for order in orders]
    assert list(curve) == pytest.approx(ours)
    theirs = min(rdp_to_epsilon(order, value, DELTA) for order, value in zip(orders, ours, strict=True))
    opacus, _ = opacus_rdp.get_privacy_spent(orders=orders, rdp=curve, delta=DELTA)
    assert float(opacus) == pytest.approx(theirs)
    assert gaussian_rdp_epsilon(multiplier / math.sqrt(rounds), DELTA) <= theirs * (1 + 1e-9)


def test_no_sampling_is_the_exact_curve() -> None:
    """Item 21: q=1 is the no-sampling case."""
    for multiplier in (1.0, 5.0, 40.0):
        assert epsilon(multiplier, 1, 10)["pld"] == pytest.approx(
            gaussian_epsilon(multiplier / math.sqrt(10), DELTA), abs=1e-3
        )


def test_epsilon_grows_with_rate_and_rounds_and_falls_with_noise() -> None:
    """Item 21."""
    for method in ("pld", "rdp"):
        by_rate = [epsilon(2, rate, 20)[method] for rate in (0, 0.1, 1)]
        by_rounds = [epsilon(2, 0.1, rounds)[method] for rounds in (1, 20, 40)]
        by_noise = [epsilon(multiplier, 0.1, 20)[method] for multiplier in (0, 2, 10, math.inf)]
        assert by_rate == sorted(by_rate)
        assert by_rounds == sorted(by_rounds)
        assert by_noise == sorted(by_noise, reverse=True)
        assert by_rate[0] == by_noise[-1] == 0
        assert by_noise[0] == math.inf


def test_rounds_may_differ_and_their_order_does_not_matter(only_pld: Pld) -> None:
    releases = [("gaussian", multiplier, 1.0, 1) for multiplier in (1.5, 2.0, 3.0, 8.0)]
    found = only_pld.compose(releases, DELTA, "zero_out")["pld"]
    assert found == pytest.approx(3.9069, abs=1e-3)
    assert only_pld.compose(releases[::-1], DELTA, "zero_out")["pld"] == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize(
    ("release", "adjacency", "exact"),
    [
        (("gaussian", 1.1, 0.004267, 14_062), "zero_out", 2.38181),
        (("gaussian", 1.1, 0.004267, 14_062), "replace_one", 4.22168),
        (("gaussian", 1.1, 0.004267, 100_000), "zero_out", 7.27147),
        (("gaussian", 0.5, 0.001, 2000), "zero_out", 3.65336),
        (("gaussian", 0.3, 0.001, 2000), "zero_out", 22.2955),
        (("gaussian", 2.0, 1e-5, 100_000), "zero_out", 0.00360089),
        (("gaussian", 10.0, 0.5, 200), "zero_out", 2.96777),
        (("gaussian", 0.01, 0.1, 10), "zero_out", 30_594.85),
        (("laplace", 100.0, 1.0, 10_000), "zero_out", 4.36799),
        (("laplace", 0.7, 0.05, 100), "zero_out", 2.97522),
        (("pure", 1 / 0.05, 1.0, 100_000), "zero_out", 191.494),
    ],
)
def test_epsilon_is_at_most_a_thousandth_too_high_however_many_releases(
    only_pld: Pld, release: tuple[str, float, float, int], adjacency: str, exact: float
) -> None:
    """Values of grids with 500 to 4000 points in the standard deviation of one release, which dp_accounting composed;
    the first is 2.38181 with its own grids of 1e-5 and 5e-6 too. Of multiplier 0.01 it is a sum over how many releases
    a client was in.
    """
    found = only_pld.compose([release], DELTA, adjacency)["pld"]
    assert exact * (1 - 1e-5) <= found <= exact * 1.001


def test_kinds_of_very_different_size_are_no_looser_together() -> None:
    """Many small releases and a few large ones: what each kind adds to the variance on the way adds up."""
    few = [(Gaussian(1.0, 0.1), 3)]
    many = [(Gaussian(30.0 * 1.01**n, 0.1), 1) for n in range(30)]
    exact = 2.08765  # on a grid of 2^-16
    assert exact * (1 - 1e-5) <= epsilon_of(few + many, DELTA) <= exact * 1.001  # Renyi DP of so many takes seconds


@pytest.mark.parametrize(
    ("multiplier", "rate", "adjacency", "said"),
    [
        (1.0, 1.5, "zero_out", r"sampling rate=1.5 in \[0, 1\]"),
        (-1.0, 0.5, "zero_out", "multiplier=-1.0 must be >= 0"),
        (1.0, 0.5, "add_remove", "adjacency='add_remove' must be zero_out or replace_one"),
    ],
)
def test_bad_input_is_refused(pld: Pld, multiplier: float, rate: float, adjacency: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pld.compose([("gaussian", multiplier, rate, 1)], DELTA, adjacency)


# -- Laplace and pure releases -----------------------------------------------------------------------------------------


def composed(*releases: tuple[str, float, float, int], delta: float = DELTA, adjacency: str = "zero_out") -> float:
    return Pld(Pld.Options()).compose(list(releases), delta, adjacency)["pld"]


def solved(delta_of: Callable[[float], float], delta: float, high: float) -> float:
    """The epsilon at which a falling curve reaches delta."""
    low = 0.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(middle) <= delta else (middle, high)
    return high


def two_point_delta(epsilon: float, loss: float, count: int) -> float:
    """Hockey-stick divergence of `count` randomised responses: any (loss, 0)-DP mechanism is one of them, processed."""
    p = 1 / (1 + math.exp(-loss))
    total = 0.0
    for lies in range(count + 1):
        gain = (count - 2 * lies) * loss
        if gain > epsilon:
            total += math.comb(count, lies) * p ** (count - lies) * (1 - p) ** lies * -math.expm1(epsilon - gain)
    return total


def laplace_losses(scale: float, grid: float, up: bool) -> tuple[int, NDArray[np.float64]]:
    """Probabilities of the privacy loss of Lap(0, b) against Lap(1, b), rounded up or down to the grid.

    The loss is 1/b up to x = 0, falls as (1 - 2x) / b, and is -1/b from x = 1 on. Gives the index of the lowest loss.
    """
    edges = np.arange(round(-1 / scale / grid), round(1 / scale / grid) + 1)
    x = (1 - edges * grid * scale) / 2  # where the loss is that edge, from 1 to 0
    beyond = np.exp(-np.clip(x, 0, None) / scale) / 2  # P(X > x)
    inside = np.diff(beyond)  # between two neighbouring losses
    masses = np.zeros(len(edges))
    masses[0], masses[-1] = math.exp(-1 / scale) / 2, 0.5
    masses[1 if up else 0 : len(edges) if up else -1] += inside
    return int(edges[0]), masses


@pytest.mark.parametrize("scale", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-2])
def test_one_laplace_release_is_the_closed_form(scale: float, delta: float) -> None:
    """delta(epsilon) = 1 - exp((epsilon - 1/b) / 2)."""
    exact = max(0.0, 1 / scale + 2 * math.log1p(-delta))
    assert exact - 1e-9 <= composed(("laplace", scale, 1, 1), delta=delta) <= exact * 1.001
    doubled = max(0.0, 2 / scale + 2 * math.log1p(-delta))
    found = composed(("laplace", scale, 1, 1), delta=delta, adjacency="replace_one")
    assert doubled - 1e-9 <= found <= doubled + 1e-3


@pytest.mark.parametrize("scale", [1.0, 8.0])
def test_ten_laplace_releases_lie_between_two_convolutions(scale: float) -> None:
    """The loss distribution, convolved here on a grid: rounded down it bounds epsilon from below, up from above."""
    grid = 1 / scale / 1000

    def bound(up: bool) -> float:
        lowest, one = laplace_losses(scale, grid, up)
        assert one.sum() == pytest.approx(1)
        total = one
        for _ in range(9):
            total = np.convolve(total, one)
        losses = (10 * lowest + np.arange(len(total))) * grid
        return solved(lambda e: float(np.sum(total * np.clip(-np.expm1(e - losses), 0, None))), 1e-3, 10 / scale)

    bounds = bound(False), bound(True)
    found = composed(("laplace", scale, 1, 10), delta=1e-3)
    assert bounds[1] - bounds[0] < 0.02
    assert bounds[0] - 1e-6 <= found <= bounds[1] + 2e-3
    assert found < 10 / scale, "and it is less than the plain sum"


@pytest.mark.parametrize(("loss", "count"), [(1.0, 1), (0.1, 10), (0.5, 10), (0.05, 100)])
def test_pure_releases_compose_as_randomised_responses(loss: float, count: int) -> None:
    for factor, adjacency in ((1, "zero_out"), (2, "replace_one")):
        each = factor * loss
        exact = solved(functools.partial(two_point_delta, loss=each, count=count), DELTA, each * count)
        found = composed(("pure", 1 / loss, 1, count), adjacency=adjacency)
        assert exact * (1 - 1e-6) <= found <= min(exact * 1.001, factor * loss * count + 1e-9)


def test_mechanisms_compose_together() -> None:
    """A Gaussian and a randomised response: epsilon shifts by plus or minus the loss of the response."""

    def gaussian_delta(epsilon: float, s: float) -> float:
        upper, lower = 1 / (2 * s) - epsilon * s, -1 / (2 * s) - epsilon * s
        return math.erfc(-upper / math.sqrt(2)) / 2 - math.exp(epsilon) * math.erfc(-lower / math.sqrt(2)) / 2

    loss, sigma = 0.7, 2.5
    p = 1 / (1 + math.exp(-loss))
    exact = solved(lambda e: p * gaussian_delta(e - loss, sigma) + (1 - p) * gaussian_delta(e + loss, sigma), DELTA, 9)
    found = composed(("gaussian", sigma, 1, 1), ("pure", 1 / loss, 1, 1))
    assert exact - 1e-6 <= found <= exact + 2e-3
    assert found < gaussian_epsilon(sigma, DELTA) + loss
    assert composed(("gaussian", sigma * math.sqrt(10), 1, 10), ("pure", 1 / loss, 1, 1)) == pytest.approx(found)


def test_a_bound_on_the_l1_norm_is_worst_in_one_coordinate() -> None:
    """So the ledger may treat a vector of Laplace noise as one number with the whole sensitivity."""
    for scale in (0.3, 1.0, 5.0):
        for parts in (2, 10):
            split = composed(("laplace", scale * parts, 1, parts), delta=1e-3)
            assert split <= composed(("laplace", scale, 1, 1), delta=1e-3) + parts * 1e-3


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_sampled_laplace_and_pure_releases(rate: float) -> None:
    """Against the integral of the hockey stick, in both directions, and against log(1 + q (e^epsilon - 1))."""
    scale = 0.7
    x = np.linspace(-15, 16, 31_001)
    without, with_it = (np.exp(-np.abs(x - at) / scale) / (2 * scale) for at in (0, 1))
    mixed = (1 - rate) * without + rate * with_it

    def delta_of(epsilon: float) -> float:
        pairs = ((mixed, without), (without, mixed))
        return max(float(np.clip(p - math.exp(epsilon) * q, 0, None).sum() * (x[1] - x[0])) for p, q in pairs)

    found = composed(("laplace", scale, rate, 1), delta=1e-3)
    assert found == pytest.approx(solved(delta_of, 1e-3, 3), abs=2e-3)
    loss = 1.5
    assert composed(("pure", 1 / loss, rate, 1)) == pytest.approx(math.log1p(rate * math.expm1(loss)), abs=1e-3)
    assert list(Pld(Pld.Options()).compose([("laplace", scale, rate, 1)], DELTA, "zero_out")) == ["pld"]
    # Under replace-one a sampled Laplace release is charged as if it were not sampled.
    whole = composed(("laplace", scale, 1, 3), adjacency="replace_one")
    assert composed(("laplace", scale, rate, 3), adjacency="replace_one") == whole


@settings(max_examples=6, deadline=None)
@given(st.floats(0.3, 30), st.integers(1, 20), st.floats(0.8, 20), st.sampled_from(["laplace", "pure"]))
def test_rdp_is_a_bound_above_and_nothing_exceeds_the_plain_sum(b: float, n: int, sigma: float, kind: str) -> None:
    found = Pld(Pld.Options()).compose([(kind, b, 1.0, n), ("gaussian", sigma, 1.0, n)], DELTA, "zero_out")
    plain = n / b + gaussian_epsilon(sigma / math.sqrt(n), DELTA)
    assert found["pld"] <= plain + 1e-2
    assert found["pld"] <= found["rdp"] + 2e-2 + n * 1e-3  # the grid rounds every release up
    ours = composed_epsilon(n / sigma**2, [(kind, b, n)], DELTA)  # at other orders
    assert ours <= found["rdp"] * (1 + 1e-3)
    replaced = Pld(Pld.Options()).compose([(kind, b, 1.0, n), ("gaussian", sigma, 1.0, n)], DELTA, "replace_one")
    halved = Pld(Pld.Options()).compose([(kind, b / 2, 1.0, n), ("gaussian", sigma / 2, 1.0, n)], DELTA, "zero_out")
    assert replaced["pld"] == pytest.approx(halved["pld"], abs=2e-3)
    assert replaced["rdp"] == pytest.approx(halved["rdp"])


def test_very_costly_and_very_long_histories_stay_finite(pld: Pld) -> None:
    """Losses beyond 709, where e^loss overflows, and tiny ones."""
    assert composed(("laplace", 1e-4, 1, 10)) == pytest.approx(1e5)
    assert composed(("pure", 1e-4, 1, 10), ("gaussian", 1.0, 1, 1)) == pytest.approx(
        1e5 + gaussian_epsilon(1.0, DELTA), abs=2e-3
    )
    assert 9e5 < composed(("laplace", 0.01, 1, 10_000)) < 1e6
    exact = solved(functools.partial(two_point_delta, loss=1e-5, count=10), DELTA, 1e-4)
    assert composed(("pure", 1e5, 1, 10)) == pytest.approx(exact, rel=1e-3)
    assert pld.compose([("laplace", 0.0, 1.0, 1)], DELTA, "zero_out") == {"pld": math.inf, "rdp": math.inf}
    assert pld.compose([("pure", math.inf, 1.0, 1)], DELTA, "zero_out") == {"pld": 0.0, "rdp": 0.0}


def test_equal_releases_may_be_named_one_by_one(pld: Pld) -> None:
    by_rounds = pld.compose([("gaussian", 2.0, 0.3, 1)] * 4 + [("gaussian", 3.0, 1.0, 1)], DELTA, "zero_out")
    assert pld.compose([("gaussian", 2.0, 0.3, 4), ("gaussian", 3.0, 1.0, 1)], DELTA, "zero_out") == by_rounds


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (("exponential", 1.0, 1.0, 1), "mechanism='exponential' must be one of gaussian, laplace, pure"),
        (("laplace", -1.0, 1.0, 1), "multiplier=-1.0 must be >= 0"),
        (("laplace", math.nan, 1.0, 1), "multiplier=nan must be >= 0"),
        (("pure", 1.0, 1.5, 1), r"sampling rate=1.5 in \[0, 1\]"),
        (("pure", 1.0, 1.0, 0), "count=0 must be at least 1"),
    ],
)
def test_releases_that_cannot_be_are_refused(pld: Pld, release: tuple[str, float, float, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        pld.compose([release], DELTA, "zero_out")

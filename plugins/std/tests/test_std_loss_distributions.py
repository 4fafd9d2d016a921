"""Loss distributions of many releases: never below the truth, little above it, no larger in a longer run."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug_ledger.accounting import gaussian_epsilon
from fedplug_std import loss_distributions
from fedplug_std.accountants import Pld
from fedplug_std.loss_distributions import Gaussian, Group, Losses, Reverse, composed, epsilon_of, repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

DELTA = 1e-5
Array = NDArray[np.float64]


# -- an independent reference ------------------------------------------------------------------------------------------


def loss_of(x: Array, z: float, q: float, replaced: bool) -> Array:
    """log of (1 - q + q e^((2x - 1) / 2z^2)), of the noised value x."""

    def log_mixture(y: Array) -> Array:
        large = y + math.log(q) + np.log1p((1 - q) / q * np.exp(-np.maximum(y, 30)))
        return np.where(y > 30, large, np.log1p(q * np.expm1(np.minimum(y, 30))))

    ahead = log_mixture((2 * x - 1) / (2 * z * z))
    return ahead - log_mixture((-2 * x - 1) / (2 * z * z)) if replaced else ahead


def quadrature(z: float, q: float, replaced: bool, reverse: bool, frequency: float, far: float) -> tuple[Array, Array]:
    """Probabilities of noised values and their losses, by Gauss and Legendre; what is rarer than `far` is left out."""
    reach = math.sqrt(-2 * math.log(far)) * z
    points = np.linspace(-reach - replaced, reach + 1, 20_001)
    turns = np.abs(np.diff(loss_of(points, z, q, replaced))) * frequency / 10
    panels = np.concatenate([[0], np.cumsum(np.maximum(np.diff(points) * 4 / z, turns))])
    edges = np.interp(np.linspace(0, panels[-1], int(panels[-1]) + 2), panels, points)
    nodes, weights = np.polynomial.legendre.leggauss(24)
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    x, w = (middle[:, None] + half[:, None] * nodes).ravel(), (half[:, None] * weights).ravel()

    def density(centre: float) -> Array:
        return np.asarray(np.exp(-(((x - centre) / z) ** 2) / 2) / (z * math.sqrt(2 * math.pi)))

    if reverse:
        return w * density(0), -loss_of(x, z, q, replaced)
    return w * ((1 - q) * density(0) + q * density(1)), loss_of(x, z, q, replaced)


def curve_of(
    z: float, q: float, n: int, delta: float, replaced: bool, reverse: bool
) -> tuple[Callable[[float], float], float]:
    """Delta over the one asked for, of n sampled Gaussian releases, and an epsilon above the solution.

    delta(e) = 1/2pi integral over t of M(s)^n e^(-s e) / (s (s + 1)), s = tilt + it, where M(s) = E[e^(s loss)]: the
    inversion of a characteristic function along the line on which the tilted distribution has its mean near epsilon.
    """
    far = 1e-6 * delta / n

    def log_moment(p: Array, loss: Array, tilt: float) -> float:
        if (tilt * loss).max() < 300:
            return math.log1p(float(p @ np.expm1(tilt * loss)))
        terms = tilt * loss + np.log(p)
        return float(terms.max()) + math.log(float(np.exp(terms - terms.max()).sum()))

    p, loss = quadrature(z, q, replaced, reverse, 1.0, far)
    chernoff = {2.0**k: (n * log_moment(p, loss, 2.0**k) - math.log(delta)) / 2.0**k for k in np.arange(-10, 22, 0.25)}
    tilt = float(min(chernoff, key=chernoff.__getitem__))

    def tilted(frequency: float) -> tuple[float, Array, Array]:
        p, loss = quadrature(z, q, replaced, reverse, frequency, far)
        log = log_moment(p, loss, tilt)
        return log, p * np.exp(tilt * loss - log), loss

    def log_transform(p: Array, loss: Array, t: Array) -> NDArray[np.complex128]:
        less = np.array([p @ np.expm1(1j * one * loss) for one in t])  # so that it is exact near one
        return n * (np.log1p(2 * less.real + np.abs(less) ** 2) / 2 + 1j * np.angle(1 + less))

    log, p, loss = tilted(1.0)
    deviation = math.sqrt(n * float(p @ (loss - p @ loss) ** 2))
    most = 10 / deviation
    while log_transform(*tilted(most)[1:], np.array([most]))[0].real > -42:
        most *= 1.3
    log, p, loss = tilted(most)
    step = 2 * math.pi / (2 * abs(chernoff[tilt]) + 60 / tilt + 20 * deviation + float(loss.max()))
    t = np.arange(int(most / step) + 2) * step
    s = tilt + 1j * t
    kernel = np.exp(log_transform(p, loss, t)) / (s * (s + 1)) * np.where(t == 0, 0.5, 1.0) * step / math.pi

    def over(epsilon: float) -> float:
        found = float(np.real(kernel * np.exp(-1j * t * epsilon)).sum())
        return found * math.exp(min(700.0, n * log - tilt * epsilon - math.log(delta)))

    return over, chernoff[tilt]


@functools.cache
def truth(z: float, q: float, n: int, delta: float, adjacency: str) -> float:
    """Epsilon of n sampled Gaussian releases, to about six digits."""
    found = 0.0
    for reverse in (False,) if adjacency == "replace_one" else (False, True):
        over, high = curve_of(z, q, n, delta, adjacency == "replace_one", reverse)
        low = high
        while high > 1e-9 and over(low) <= 1:
            high, low = low, low * 0.97
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (low, middle) if over(middle) <= 1 else (middle, high)
        found = max(found, high)
    return found


def test_the_reference_is_the_exact_curve_where_nearly_all_are_sampled() -> None:
    assert truth(20.0, 1 - 1e-9, 1000, 1e-9, "zero_out") == pytest.approx(gaussian_epsilon(20 / 1000**0.5, 1e-9), 1e-5)


# -- never below the truth ---------------------------------------------------------------------------------------------


BETWEEN = (1e-2, 1e-9, 1e-12)


@pytest.mark.slow  # the next test has other settings at such deltas
def test_a_delta_below_the_rounding_of_transforms() -> None:
    """Transforms alone gave 0.2570: each of 1e5 releases added 1e-16 to an error of probabilities of 1e-12."""
    exact = truth(1.0, 1e-4, 100_000, 1e-12, "zero_out")
    assert exact == pytest.approx(0.26816, abs=1e-5)
    found = Pld(Pld.Options()).compose([("gaussian", 1.0, 1e-4, 100_000)], 1e-12, "zero_out")
    assert exact <= found["pld"] <= exact * 1.001 <= found["rdp"]


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("delta", [1e-5, 1e-15, *(pytest.param(d, marks=pytest.mark.slow) for d in BETWEEN)])
@pytest.mark.parametrize(
    ("z", "q", "n"),
    [
        (1.1, 0.004267, 14_062), (5.0, 0.01, 10_000), (0.5, 0.3, 100), (10.0, 0.5, 1000), (1.0, 0.9, 50),
        (2.0, 1e-5, 1_000_000),
    ],
)  # fmt: skip
def test_epsilon_is_never_below_the_truth_and_hardly_above(
    z: float, q: float, n: int, delta: float, adjacency: str
) -> None:
    exact = truth(z, q, n, delta, adjacency)
    found = epsilon_of([(Gaussian(z, q, adjacency == "replace_one"), n)], delta)  # without Renyi DP, which is slow
    assert exact * (1 - 1e-6) - 1e-8 <= found <= exact * 1.001


@pytest.mark.parametrize(("z", "q", "records", "n", "delta", "epsilon"), [
    (1.0, 0.1, 4, 100, 1e-5, 39.58752365244), (2.0, 0.05, 8, 400, 1e-5, 28.162258103287222),
    (0.8, 0.01, 2, 1000, 1e-6, 7.786269860804512), (3.0, 0.5, 3, 20, 1e-5, 12.630663257345892),
    (5.0, 0.02, 20, 500, 1e-6, 9.963835342302259),
])  # fmt: skip
def test_the_price_of_a_user_with_several_records_is_that_of_dp_accounting(
    z: float, q: float, records: int, n: int, delta: float, epsilon: float
) -> None:
    """`from_mixture_gaussian_mechanism(z, [0, ..., k], binomial)` of dp-accounting 0.6, connect the dots, grid 1e-4."""
    assert epsilon_of([(Group(z, q, records), n)], delta) == pytest.approx(epsilon, rel=3e-4)


@given(st.floats(0.3, 8), st.floats(0.001, 0.9), st.integers(1, 12), st.integers(1, 200))
@settings(max_examples=examples(25), deadline=None)
def test_more_records_and_a_larger_rate_cost_more_and_one_record_costs_as_much_as_ever(
    z: float, q: float, records: int, n: int
) -> None:
    def price(rate: float, most: int) -> float:
        return epsilon_of([(Group(z, rate, most), n)], 1e-5)

    assert price(q, 1) == pytest.approx(epsilon_of([(Gaussian(z, q), n)], 1e-5), rel=2e-3)
    assert price(q, records) <= price(q, records + 1) * 1.001
    assert price(q, records) <= price(min(0.95, 1.1 * q), records) * 1.001
    assert price(q, records) <= epsilon_of([(Gaussian(z / records), n)], 1e-5) * 1.001  # as if all were drawn


@settings(max_examples=examples(8), deadline=None)
@given(
    st.floats(0.7, 20), st.floats(-3, -0.3), st.integers(300, 20_000), st.floats(2, 15),
    st.sampled_from(["zero_out", "replace_one"]),
)  # fmt: skip
def test_no_setting_is_below_the_truth(z: float, rate: float, n: int, digits: float, adjacency: str) -> None:
    q, delta = 10**rate, 10**-digits
    exact = truth(z, q, n, delta, adjacency)
    found = Pld(Pld.Options()).compose([("gaussian", z, q, n)], delta, adjacency)
    assert exact * (1 - 1e-6) - 1e-8 <= found["pld"] <= found.get("rdp", math.inf)


@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_kinds_that_hardly_differ_cost_what_one_of_them_does(delta: float) -> None:
    exact = truth(1.1, 0.004267, 14_062, delta, "zero_out")
    kinds = [("gaussian", 1.1 * (1 + n * 1e-10), 0.004267, 14_062 // 2) for n in range(2)]
    found = Pld(Pld.Options()).compose(kinds, delta, "zero_out")["pld"]
    assert exact * (1 - 1e-6) <= found <= exact * 1.001


RARE = [pytest.param(1.0, 1e-6, delta, marks=pytest.mark.slow) for delta in (1e-15, 1e-20)]


@pytest.mark.parametrize(
    ("z", "q", "delta"),
    [*((z, q, d) for z, q in ((0.3, 0.01), (4.0, 0.5)) for d in (1e-3, 1e-9, 1e-15, 1e-20)), (1.0, 1e-6, 1e-9), *RARE],
)
def test_one_release_is_the_closed_form(z: float, q: float, delta: float) -> None:
    """P(loss > e) under one data set, less e^e times that under the other."""

    def above(x: float) -> float:
        return math.erfc(x / z / math.sqrt(2)) / 2

    def exact(epsilon: float) -> float:
        x = math.log1p(math.expm1(epsilon) / q) * z * z + 0.5
        return q * (above(x - 1) - above(x)) - math.expm1(epsilon) * above(x)

    found = epsilon_of([(Gaussian(z, q), 1)], delta)
    assert exact(found) <= delta * (1 + 1e-9)
    assert found == 0 or exact(found * 0.999) >= delta


@pytest.mark.parametrize("delta", [1e-5, 1e-12, 1e-15])
@pytest.mark.parametrize(("loss", "count"), [(0.01, 10_000), (1.0, 20), (0.001, 100_000)])
def test_randomised_responses_at_small_deltas(loss: float, count: int, delta: float) -> None:
    """Against sums of the binomial distribution."""
    lies = np.arange(count + 1)
    logs = np.array([math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in lies])
    logs -= count * math.log1p(math.exp(-loss)) + lies * loss

    def exact(epsilon: float) -> float:
        gains = (count - 2 * lies) * loss
        return math.fsum(np.exp(logs) * np.maximum(0.0, -np.expm1(np.minimum(epsilon - gains, 0.0))))

    found = Pld(Pld.Options()).compose([("pure", 1 / loss, 1.0, count)], delta, "zero_out")["pld"]
    assert exact(found) <= delta * (1 + 1e-6)
    assert exact(found * 0.999) >= delta or found == pytest.approx(loss * count)


def test_a_setting_without_a_bound_is_left_to_renyi() -> None:
    """Where nothing of delta is left, no epsilon is found; Renyi DP has one."""
    assert epsilon_of([(Gaussian(1.0, 0.1), 1000)], 1e-300) == math.inf
    found = Pld(Pld.Options()).compose([("gaussian", 1e-3, 0.9, 10_000_000)], DELTA, "zero_out")
    assert found["pld"] == found["rdp"]


# -- rounding ----------------------------------------------------------------------------------------------------------


def uneven(size: int, seed: int) -> Losses:
    """Probabilities over many orders of magnitude."""
    rng = np.random.default_rng(seed)
    masses = np.exp(-((np.linspace(-6, 9, size) - rng.normal()) ** 2)) * rng.random(size)
    return Losses(2.0**-6, -size // 3, masses / masses.sum(), 1.0, 0.0, 0.0, 0.0)


def convolved(one: Any, count: int) -> Any:
    """With 113 bits or more, term by term."""
    exact = [int(p * 2**200) for p in one.tolist()]
    total = [1 << 200]
    for _ in range(count):
        new = [0] * (len(total) + len(exact) - 1)
        for i, a in enumerate(total):
            for j, b in enumerate(exact):
                new[i + j] += a * b >> 200
        total = new
    return np.array([float(p) / 2**200 for p in total])


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 30), st.sampled_from([2, 3, 7, 40]), st.integers(0, 1000))
def test_errors_are_within_their_bound(size: int, count: int, seed: int) -> None:
    start = uneven(size, seed)
    exact = convolved(start.masses, count)
    many = start.times(count)
    low = many.first - count * start.first
    part = exact[low : low + len(many.masses)]
    assert np.linalg.norm(many.masses * math.exp(many.scale) - part) <= many.doubt + 1e-12 * np.linalg.norm(part)
    both = start.compose(start.times(count - 1)) if count > 2 else start.compose(start)
    low = both.first - count * start.first
    part = exact[low : low + len(both.masses)]
    assert np.linalg.norm(both.masses * math.exp(both.scale) - part) <= both.doubt + 1e-12 * np.linalg.norm(part)


@pytest.mark.parametrize("factor", [2, 8, 32])
def test_a_coarser_grid_is_never_cheaper_and_keeps_the_sums(factor: int) -> None:
    fine = repeated(Gaussian(1.0, 0.1), 50, 2.0**-10, 2.0, 2.0**-64)
    wide = fine.coarser(factor * fine.width)
    assert len(wide.masses) < len(fine.masses) / factor + 3

    def sums(of: Losses) -> tuple[float, float]:
        p = of.masses * np.exp(of.scale - of.tilt * of.losses)
        return float(p.sum()), float(p @ np.exp(-of.losses))

    assert sums(wide) == pytest.approx(sums(fine))
    for epsilon in (0.0, 0.5, 2.0, 4.0, 6.0):
        assert fine.delta(epsilon) * (1 - 1e-9) <= wide.delta(epsilon)
    assert wide.epsilon(DELTA) <= fine.epsilon(DELTA) * 1.002


def test_the_other_direction_is_the_same_pair() -> None:
    kind = Gaussian(2.0, 0.3)
    losses = np.array([-0.1, 0.0, 0.02, 0.4])
    here, there = kind.below(losses)
    back = Reverse(kind).below(-losses[::-1])
    assert np.array_equal(back[0], there[::-1])
    assert np.array_equal(back[1], here[::-1])
    assert Reverse(kind).losses(1e-9) == tuple(-loss for loss in kind.losses(1e-9)[::-1])


# -- kinds and lengths -------------------------------------------------------------------------------------------------


def test_without_sampling_the_exact_curve_holds_and_kinds_compose() -> None:
    exact = gaussian_epsilon(1 / math.sqrt(300 / 20**2 + 5 / 2**2), DELTA)
    assert exact <= epsilon_of([(Gaussian(20.0), 300), (Gaussian(2.0), 5)], DELTA) <= exact * 1.001
    doubled = epsilon_of([(Gaussian(20.0, replaced=True), 300), (Gaussian(2.0, replaced=True), 5)], DELTA)
    assert doubled == pytest.approx(gaussian_epsilon(1 / 2 / math.sqrt(300 / 20**2 + 5 / 2**2), DELTA), rel=1e-3)


def test_kinds_on_very_different_grids_compose() -> None:
    """The losses of one span far more than a fine grid of the others has."""
    found = epsilon_of([(Gaussian(0.02, 0.5), 1), (Gaussian(30.0, 0.1), 1000)], DELTA)
    alone = epsilon_of([(Gaussian(0.02, 0.5), 1)], DELTA)
    assert alone < found < alone + epsilon_of([(Gaussian(30.0, 0.1), 1000)], DELTA)


def test_a_longer_run_needs_no_larger_grid() -> None:
    kind = Gaussian(1.0, 0.1)
    sizes = [len(composed([(kind, rounds)], DELTA).masses) for rounds in (100, 1000, 4000, 1_000_000)]
    assert max(sizes) <= 2**13


def test_noise_that_changes_with_every_round_composes_round_by_round_as_from_the_start() -> None:
    """Bit for bit: a run that is resumed asks for all rounds at once."""
    releases = [("gaussian", 8.0 * 0.99**round, 0.1, 1) for round in range(8)]
    going = Pld(Pld.Options())
    one_by_one = [going.compose(releases[: n + 1], DELTA, "zero_out") for n in range(8)]
    for count in (8, 6):
        loss_distributions._BEFORE.clear()
        assert one_by_one[count - 1] == going.compose(releases[:count], DELTA, "zero_out")
    assert going.compose(releases[:3], DELTA, "zero_out") == one_by_one[2]

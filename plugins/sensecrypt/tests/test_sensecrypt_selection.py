"""The selection problem: one sort gives the same as trying every mask, and matches the paper's numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from examples import examples
from fedplug.api.errors import ProtectionError
from fedplug_sensecrypt.budgets import budgets
from fedplug_sensecrypt.selection import BINS, Bins, Problem, security_level, solve
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

whole = st.integers(0, 6).map(float)  # many ties, and sums without rounding
real = st.floats(0, 1, width=32, allow_subnormal=False).map(lambda x: round(x, 3))


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, Problem]:
    gamma = draw(hnp.arrays(np.float32, st.integers(1, 12), elements=draw(st.sampled_from([whole, real]))))
    alpha = draw(st.integers(1, 20)) / 20
    B, C = draw(st.integers(0, 20)) / 10, draw(st.integers(0, 10)) / 10
    beta1, beta2 = draw(st.sampled_from([(1.0, 1.0), (2.0, 1.0), (1.0, 3.0), (1.0, 0.25)]))
    return gamma, Problem(alpha, B, C, beta1, beta2, raw=draw(st.booleans()))


def objective(mask: np.ndarray, gamma: np.ndarray, problem: Problem) -> float:
    """beta1 f1 - beta2 f2 of Eq. 9."""
    f1, f2 = float(mask.sum()), float(gamma[mask].astype(np.float64).sum())
    if not problem.raw:
        f1, f2 = f1 / len(gamma), f2 / float(gamma.astype(np.float64).sum())
    return problem.beta1 * f1 - problem.beta2 * f2


def brute_force(gamma: np.ndarray, problem: Problem, met: float) -> float | None:
    """The least objective of all masks within the budget that cover the share `met`; None if there is none."""
    total, cap, best = float(gamma.astype(np.float64).sum()), problem.cap(len(gamma)), None
    for bits in itertools.product([False, True], repeat=len(gamma)):
        mask = np.array(bits)
        if mask.sum() <= cap and float(gamma[mask].astype(np.float64).sum()) >= met * total:
            value = objective(mask, gamma, problem)
            best = value if best is None else min(best, value)
    return best


@settings(max_examples=examples(120))
@given(problems())
def test_agrees_with_trying_every_mask(instance: tuple[np.ndarray, Problem]) -> None:
    """Eq. 9 on up to 12 scalars, ties included (item 27)."""
    gamma, problem = instance
    assume(gamma.any())
    found = solve(gamma, problem)
    # A level that one mask meets to within rounding may count either way. Both answers are then right.
    strict, loose = (brute_force(gamma, problem, problem.level + slack) for slack in (1e-9, -1e-9))
    if found.security_violated:
        assert strict is None
        assert found.count == problem.cap(len(gamma))
    else:
        assert loose is not None
        value = objective(found.mask, gamma, problem)
        assert loose - 1e-6 <= value
        if strict is not None:
            assert value <= strict + 1e-6
        assert found.covered >= problem.level - 1e-9


@settings(max_examples=examples(100))
@given(problems())
def test_selects_the_top_within_the_budget(instance: tuple[np.ndarray, Problem]) -> None:
    """Item 27: the top k by sensitivity, of equal ones the lowest index, and no more than the budget."""
    gamma, problem = instance
    found = solve(gamma, problem)
    assert found.count == found.mask.sum() <= problem.cap(len(gamma))
    order = sorted(range(len(gamma)), key=lambda j: (-gamma[j], j))
    assert sorted(np.flatnonzero(found.mask)) == sorted(order[: found.count])


@settings(max_examples=examples(60))
@given(problems())
def test_encrypts_as_few_as_the_formula_says(instance: tuple[np.ndarray, Problem]) -> None:
    """k = min(cap, max(k_security, #{gamma_j / sum > 1/N})) at equal weights of the objectives."""
    gamma, problem = instance
    assume(gamma.any())
    problem = Problem(problem.alpha, problem.B, problem.C)
    share = np.sort(gamma.astype(np.float64))[::-1] / gamma.astype(np.float64).sum()
    covered = np.cumsum(share)
    # Between a share that just misses the level and one that just meets it, rounding decides.
    assume(np.abs(covered - problem.level).min() > 1e-9 and np.abs(share - 1 / len(gamma)).min() > 1e-9)
    k_security = 0 if problem.level <= 0 else int(np.argmax(covered >= problem.level)) + 1
    k_worth = int(np.count_nonzero(share > 1 / len(gamma)))
    assert solve(gamma, problem).count == min(problem.cap(len(gamma)), max(k_security, k_worth))


def test_worked_example() -> None:
    gamma = np.array([1, 5, 0, 2, 1, 1], np.float32)  # shares .1 .5 0 .2 .1 .1; 1/N = .167

    def solved(**constants: float) -> list[int]:  # fmt: skip
        return np.flatnonzero(solve(gamma, Problem(**constants)).mask).tolist()  # type: ignore[arg-type]

    assert solved(alpha=1, B=0, C=1) == [1, 3]  # level 0: only scalars worth their price
    assert solved(alpha=1, B=0, C=0.25) == [0, 1, 3]  # level .75 needs .5 + .2 + .1, the first of three equal ones
    assert solved(alpha=1, B=0, C=0) == [0, 1, 3, 4, 5]  # level 1: all but the one without sensitivity
    assert solved(alpha=0.2, B=0, C=0.25) == [1]  # floor(1.2)
    assert solved(alpha=1, B=0, C=1, beta1=4) == []  # .5 < 4/6: no scalar is worth it
    assert solve(gamma, Problem(0.2, 0, 0.25)).security_violated
    assert solve(gamma, Problem(1, 0, 0.25)).covered == pytest.approx(0.8)


def test_raw_objectives_select_what_exceeds_one() -> None:
    """The literal form: with sensitivities below 1, as they always are when normalised, only Eq. 7 selects."""
    gamma = np.array([0.9, 0.4, 0.3], np.float32)
    assert solve(gamma, Problem(1, 0, 1, raw=True)).count == 0
    assert solve(gamma, Problem(1, 0, 0.5, raw=True)).count == 1
    assert solve(gamma * 4, Problem(1, 0, 1, raw=True)).count == 3


def test_infeasible_problem_of_the_appendix() -> None:
    """App. F at alpha .1, B 1.5, C .3: a tenth of the weights would have to hold 74% of the sensitivity."""
    assert security_level(0.1, 1.5, 0.3) == pytest.approx(0.742, abs=1e-3)
    even = np.linspace(1, 2, 1000, dtype=np.float32)
    found = solve(even, Problem(0.1, 1.5, 0.3))
    assert found.security_violated
    assert found.count == 100
    skewed = np.full(1000, 1e-3, np.float32)
    skewed[::20] = 1.0
    assert not solve(skewed, Problem(0.1, 1.5, 0.3)).security_violated


@pytest.mark.parametrize("size", [1, 2, 7])
def test_nothing_is_sensitive(size: int) -> None:
    """All zero: every scalar counts alike, so the level still takes its share."""
    found = solve(np.zeros(size, np.float32), Problem(1.0, 0, 0.5))
    assert found.count == math.ceil(size / 2)
    assert np.flatnonzero(found.mask).tolist() == list(range(found.count))
    assert solve(np.zeros(size, np.float32), Problem(1.0, 0, 0)).count == size


def test_empty_model() -> None:
    assert solve(np.zeros(0, np.float32), Problem(1.0, 1.0, 0.5)).count == 0


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_invalid_sensitivities_are_refused(wrong: float) -> None:
    with pytest.raises(ProtectionError, match="1 of 3 sensitivities are negative, NaN or infinite"):
        solve(np.array([1, wrong, 0], np.float32), Problem(1.0, 1.0, 0.5))


# -- mutual information, Eq. 3 and 8 -----------------------------------------------------------------------------------


def plug_in(weights: np.ndarray, mask: np.ndarray) -> float:
    """Eq. 3 over a two-dimensional histogram, as written."""
    edges = np.linspace(min(weights.min(), 0), max(weights.max(), 0), BINS + 1)
    places = [np.clip(np.digitize(v, edges) - 1, 0, BINS - 1) for v in (weights, np.where(mask, 0, weights))]
    joint = np.zeros((BINS, BINS))
    np.add.at(joint, tuple(places), 1 / len(weights))
    product = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    there = joint > 0
    return float((joint[there] * np.log2(joint[there] / product[there])).sum())


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.floats(0, 1))
def test_information_is_that_of_the_joint_histogram(seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(300).astype(np.float32) + rng.choice([-5, 0, 0.3])
    mask = rng.random(300) < share
    assert Bins.of(weights).information(mask) == pytest.approx(plug_in(weights, mask), abs=0.03)


def test_information_falls_to_nothing() -> None:
    """It falls from the entropy of the bins to 0, and never rises. So Eq. 8 holds from some k on."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(400).astype(np.float32)
    bins, order = Bins.of(weights), rng.permutation(400)
    found = [bins.information(np.isin(np.arange(400), order[:k])) for k in range(0, 401, 10)]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(found))
    counts = np.bincount(bins.of_weight) / 400
    assert found[0] == pytest.approx(-sum(p * math.log2(p) for p in counts if p))
    assert found[-1] == 0
    assert Bins.of(np.zeros(5, np.float32)).information(np.zeros(5, np.bool_)) == 0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), eta=st.floats(0, 3), alpha=st.sampled_from([0.3, 1.0]))
def test_information_bound_takes_the_fewest_that_meet_it(seed: int, eta: float, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    gamma = np.round(rng.random(12), 1).astype(np.float32)
    assume(gamma.any())
    weights = rng.standard_normal(12).astype(np.float32)
    free = solve(gamma, Problem(alpha, 1.0, 0.9), weights)
    bound = solve(gamma, Problem(alpha, 1.0, 0.9, eta=eta), weights)
    assert not free.information_violated
    assert bound.count >= free.count
    if bound.information_violated:
        assert bound.count == Problem(alpha, 1.0, 0.9).cap(12)
        assert bound.information > eta
    else:
        assert bound.information <= eta
    if bound.count > free.count and not bound.information_violated:
        order = sorted(range(12), key=lambda j: (-gamma[j], j))[: bound.count - 1]
        assert Bins.of(weights).information(np.isin(np.arange(12), order)) > eta  # one fewer would not suffice


def test_diverged_weights_are_refused() -> None:
    with pytest.raises(ProtectionError, match="diverged"):
        solve(np.ones(2, np.float32), Problem(1.0, 1.0, 0.5), np.array([1, np.nan], np.float32))


# -- budgets, Sec. 3.2 -------------------------------------------------------------------------------------------------


def test_budgets_of_the_paper() -> None:
    """Sec. 4.1's bandwidths and CPUs."""
    found = budgets([50, 45, 40, 35, 30], [24, 16, 12, 10, 8])
    np.testing.assert_allclose(found, [1, 2 / 3, 0.5, 10 / 24, 1 / 3])


@settings(max_examples=examples(100))
@given(
    devices=st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(0.1, 1e4)), min_size=1, max_size=20),
    scale=st.floats(0.01, 100),
)
def test_budgets_are_relative(devices: list[tuple[float, float]], scale: float) -> None:
    """Item 26: the best device has 1, all are in (0, 1], and the units of r and v do not matter."""
    r, v = (np.array(values) for values in zip(*devices, strict=True))
    alphas = budgets(r, v)
    assert alphas.max() == 1
    assert (alphas > 0).all()
    np.testing.assert_allclose(budgets(r * scale, v), alphas)
    np.testing.assert_allclose(budgets(r, v * scale), alphas)

"""The rules on worked examples, against slow forms, and as properties: liars move the result by little."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fedplug_robust import rules
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

LINE = np.array([[0.0], [1.0], [2.0], [3.0], [50.0]])


def updates(seed: int, n: int, d: int = 6) -> Any:
    return np.random.default_rng(seed).normal(0, 1, (n, d))


def test_worked_examples() -> None:
    assert rules.median(LINE)[0] == [2]
    assert rules.trimmed_mean(LINE, 1)[0] == [2]
    assert rules.krum_scores(LINE, 1) == pytest.approx([1 + 4, 1 + 1, 1 + 1, 1 + 4, 47**2 + 48**2])
    assert rules.multi_krum(LINE, 1, 1)[0] == [1]
    assert rules.multi_krum(LINE, 1, 4)[0] == [1.5]
    assert rules.geometric_median(LINE, 1e-9, 500)[0] == pytest.approx([2], abs=1e-3)
    assert rules.centred_clipping(LINE, 1.0, 1)[0] == pytest.approx([4 / 5])
    assert rules.centred_clipping(LINE, 1.0, 200)[0] == pytest.approx([2], abs=0.01)  # signs balance there
    assert rules.buckets(LINE, 2, np.array([4, 0, 1, 2, 3])).tolist() == [[25.0], [1.5], [3.0]]


@given(seed=st.integers(0, 1000), f=st.integers(0, 3), more=st.integers(0, 4))
def test_krum_is_its_definition(seed: int, f: int, more: int) -> None:
    given_ = updates(seed, 2 * f + 3 + more)
    n = len(given_)
    scores = [
        sum(sorted(float(((x - y) ** 2).sum()) for j, y in enumerate(given_) if i != j)[: n - f - 2])
        for i, x in enumerate(given_)
    ]
    assert rules.krum_scores(given_, f) == pytest.approx(scores)
    assert rules.multi_krum(given_, f, 1)[0] == pytest.approx(given_[int(np.argmin(scores))])


@given(seed=st.integers(0, 1000), f=st.integers(0, 2))
def test_bulyan_is_its_definition(seed: int, f: int) -> None:
    left = [*updates(seed, 4 * f + 3)]
    n, chosen = len(left), []
    for _ in range(n - 2 * f):
        nearest = max(1, len(left) - f - 2)
        scores = [sum(sorted(float(((x - y) ** 2).sum()) for y in left)[1 : nearest + 1]) for x in left]
        chosen.append(left.pop(int(np.argmin(scores))))
    expected = []
    for values in np.array(chosen).T:
        middle = np.median(values)
        expected.append(np.mean(sorted(values, key=lambda value: abs(value - middle))[: n - 4 * f]))
    assert rules.bulyan(updates(seed, n), f)[0] == pytest.approx(np.array(expected))


@given(seed=st.integers(0, 1000))
def test_the_geometric_median_has_the_least_sum_of_distances(seed: int) -> None:
    given_ = updates(seed, 7, 3)
    least = minimize(lambda z: np.linalg.norm(given_ - z, axis=1).sum(), given_.mean(0), method="Nelder-Mead").fun
    found = rules.geometric_median(given_, 1e-9, 200)[0]
    assert np.linalg.norm(given_ - found, axis=1).sum() <= least * (1 + 1e-4)


RULES: dict[str, Any] = {
    "median": rules.median, "trimmed_mean": lambda x: rules.trimmed_mean(x, 2),
    "krum": lambda x: rules.multi_krum(x, 2, 1), "multi_krum": lambda x: rules.multi_krum(x, 2, 5),
    "bulyan": lambda x: rules.bulyan(x, 2),
    "geometric_median": lambda x: rules.geometric_median(x, 1e-6, 8),
    "centred_clipping": lambda x: rules.centred_clipping(x, 1.0, 100),
    "norm_bound": lambda x: rules.norm_bound(x, None),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
@given(seed=st.integers(0, 200), size=st.sampled_from([1e2, 1e6, 3e37]))
def test_two_liars_of_eleven_move_the_result_no_further_than_honest_updates_lie(
    name: str, seed: int, size: float
) -> None:
    honest = updates(seed, 9)
    lies = size * np.random.default_rng(seed + 1).normal(0, 1, (1, 6)).repeat(2, 0)
    found, _ = RULES[name](np.concatenate([honest, lies]))
    spread = max(np.linalg.norm(a - b) for a, b in itertools.combinations(honest, 2))
    assert np.linalg.norm(found - honest.mean(0)) <= spread
    assert np.linalg.norm(np.concatenate([honest, lies]).mean(0) - honest.mean(0)) > spread  # a mean goes with them


@pytest.mark.parametrize("name", RULES)
def test_equal_updates_are_the_result_and_the_order_does_not_matter(name: str) -> None:
    same = updates(3, 1).repeat(11, 0)
    assert RULES[name](same)[0] == pytest.approx(same[0], abs=1e-6)
    given_ = updates(4, 11)
    if name != "bulyan":  # its last choices have one neighbour each, so that two are tied, and the first is taken
        assert RULES[name](given_[::-1])[0] == pytest.approx(RULES[name](given_)[0])


@pytest.mark.parametrize("name", RULES)
@given(seed=st.integers(0, 200))
def test_shares_say_what_an_update_counts(name: str, seed: int) -> None:
    """Each moved by as much in all coordinates, one after the other, moves a result that stays of the same updates."""
    given_, small = updates(seed, 11), 1e-7
    found, shares = RULES[name](given_)
    assert shares.shape == (11,)
    assert shares.min() >= 0
    assert shares.sum() <= 1 + 1e-9
    if name in ("geometric_median", "centred_clipping", "norm_bound"):  # whose shares move with distances
        return
    for client, share in enumerate(shares):
        moved = given_.copy()
        moved[client] += small
        assert (RULES[name](moved)[0] - found).mean() / small == pytest.approx(share, abs=1e-4)


def test_worked_shares() -> None:
    assert rules.median(LINE)[1].tolist() == [0, 0, 1, 0, 0]
    assert rules.median(LINE[:4])[1].tolist() == [0, 0.5, 0.5, 0]
    assert rules.median(LINE[:4])[0] == [1.5]
    assert rules.multi_krum(LINE, 1, 4)[1].tolist() == [0.25] * 4 + [0]
    assert rules.centred_clipping(LINE, 5.0, 1)[1] == pytest.approx([0.2] * 4 + [0.02])
    assert rules.norm_bound(LINE, 5.0)[0] == pytest.approx([(0 + 1 + 2 + 3 + 5) / 5])
    assert rules.norm_bound(LINE, None)[0] == pytest.approx([(0 + 1 + 2 + 2 + 2) / 5])  # 2 is the median


def test_fltrust_worked_example() -> None:
    """(3, 4) points with (1, 0) at cosine 0.6 and gets its length; (-1, 1) points away."""
    factors, scores = rules.trust(np.array([[3.0, 4.0], [-1.0, 1.0], [7.0, 0.0]]), np.array([2.0, 0.0]))
    assert scores == pytest.approx([0.6, 0, 1])
    assert factors == pytest.approx([0.6 * 2 / 5, 0, 2 / 7])

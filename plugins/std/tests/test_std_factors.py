"""Factors of correlated noise: their entries, sensitivities and errors, against brute force and the papers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from fedplug_std.factors import Factor, Kind, blt, factor, inverse_of, most_apart
from hypothesis import given, settings
from hypothesis import strategies as st

KINDS: tuple[Kind, ...] = ("square_root", "banded", "tree", "identity")


def patterns(rounds: int, participations: int, separation: int) -> list[tuple[int, ...]]:
    """Every way to take part at most this often, with this separation."""
    return [
        chosen
        for count in range(1, participations + 1)
        for chosen in itertools.combinations(range(rounds), count)
        if all(after - before >= separation for before, after in itertools.pairwise(chosen))
    ]


def brute(made: Factor, participations: int, separation: int) -> float:
    """The largest norm of C u over every pattern and every sign of updates of length 1 in one dimension."""
    dense, most = made.dense(), 0.0
    for chosen in patterns(made.rounds, participations, separation):
        for signs in itertools.product((1.0, -1.0), repeat=len(chosen)):
            most = max(most, float(np.linalg.norm(dense[:, chosen] @ np.array(signs))))
    return most


def test_the_square_root_is_one_and_has_the_coefficients_of_fichtenberger_et_al() -> None:
    made = factor("square_root", 8, 8)
    assert made.coefficients is not None
    assert made.coefficients[:4].tolist() == [1.0, 1 / 2, 3 / 8, 5 / 16]  # binom(2k, k) / 4^k
    assert np.allclose(made.coefficients, [math.comb(2 * k, k) / 4**k for k in range(8)], rtol=1e-14)
    assert np.allclose(made.dense() @ made.dense(), np.tril(np.ones((8, 8))))
    assert factor("square_root", 8, 3).row(6).tolist() == [1.0, 0.5, 0.375]


@pytest.mark.parametrize("rounds", [4, 64, 1000])
def test_the_square_root_is_nearly_optimal(rounds: int) -> None:
    """Largest error of one participation: gamma_2(A) lies within (ln((2T + 1) / 3) + 2) / pi and 1 + ln(T) / pi
    (Mathias 1993); the square root has the sum of c_k^2, at most 1 + (0.58 + ln T) / pi (Fichtenberger et al. 2023).
    """
    made = factor("square_root", rounds, rounds)
    largest = made.sensitivity(1, rounds) * made.errors().max()
    assert made.coefficients is not None
    assert largest == pytest.approx(np.square(made.coefficients).sum(), rel=1e-12)
    assert (math.log((2 * rounds + 1) / 3) + 2) / math.pi <= largest <= 1 + (0.5773 + math.log(rounds)) / math.pi
    assert factor("identity", rounds, 1).errors().max() == pytest.approx(math.sqrt(rounds))


@pytest.mark.parametrize(("rounds", "bands", "error"), [
    (64, 1, 32.5), (64, 2, 17.541391708920195), (64, 4, 10.318086758791239), (64, 8, 6.867109187094037),
    (64, 16, 5.256096597475791), (128, 8, 11.510619698467973),
    pytest.param(256, 16, 12.866340616876801, marks=pytest.mark.slow),
])  # fmt: skip
def test_the_banded_factor_has_the_error_that_jax_privacy_finds(rounds: int, bands: int, error: float) -> None:
    """The mean squared error of prefix sums (benchmarks/peer_programs/jax_privacy_references.py, version 2.0)."""
    made = factor("banded", rounds, bands)
    assert np.square(made.errors()).mean() == pytest.approx(error, rel=1e-6)
    assert made.matrix is not None
    assert np.allclose(np.linalg.norm(made.matrix, axis=0), 1)
    assert not np.triu(made.matrix, 1).any()
    assert not np.tril(made.matrix, -bands).any()
    times = math.ceil(rounds / bands)
    assert made.sensitivity(times, bands) == pytest.approx(math.sqrt(times))


@pytest.mark.parametrize(("rounds", "buffers", "times", "separation", "error"), [
    (64, 1, 1, 64, 4.911514894812199), (64, 2, 1, 64, 4.752025734997087), (64, 3, 8, 8, 63.83850067337308),
    (200, 1, 10, 20, 112.03551586452949), (500, 2, 3, 100, 30.07952531424764), (500, 3, 3, 100, 30.023941973102374),
    (1000, 2, 1, 1000, 9.460818014825323), (1000, 3, 1, 1000, 9.309099978781015),
])  # fmt: skip
def test_a_blt_has_the_error_that_jax_privacy_finds(
    rounds: int, buffers: int, times: int, separation: int, error: float
) -> None:
    """The mean squared error at a price (benchmarks/peer_programs/jax_privacy_references.py, version 2.0)."""
    made = blt(rounds, buffers, times, separation)
    assert np.square(made.errors()).mean() * made.sensitivity(times, separation) ** 2 == pytest.approx(error, rel=2e-6)
    assert made.coefficients is not None
    assert made.buffered is not None
    assert len(made.buffered) == rounds - 1
    (first, *rest), pairs = made.coefficients, made.buffered.buffers
    assert first == 1
    assert rest == pytest.approx([sum(omega * theta**k for omega, theta in pairs) for k in range(rounds - 1)])
    assert (np.diff(made.coefficients) < 0).all()


@pytest.mark.parametrize(("rounds", "buffers"), [(1, 1), (2, 3), (3, 1), (7, 2), (8, 3)])
@pytest.mark.parametrize(("times", "separation"), [(1, 1), (2, 3), (3, 2), (8, 1)])
def test_no_pattern_is_worse_than_the_sensitivity_of_a_blt(
    rounds: int, buffers: int, times: int, separation: int
) -> None:
    made = blt(rounds, buffers, times, separation)
    assert made.sensitivity(times, separation) == pytest.approx(brute(made, times, separation), rel=1e-12)
    inverse = np.linalg.inv(made.dense())
    assert np.allclose(np.linalg.norm(np.tril(np.ones((rounds, rounds))) @ inverse, axis=1), made.errors())
    assert np.allclose(np.linalg.norm(inverse, axis=1), [made.spread(round) for round in range(rounds)])


def test_a_few_buffers_are_nearly_as_good_as_the_best_factor_of_all_rounds() -> None:
    """Compared with BandMF of as many bands as rounds, which may differ from row to row; for one participation."""
    rounds = 128
    best = np.square(factor("banded", rounds, rounds).errors()).mean()
    errors = [
        np.square(made.errors()).mean() * made.sensitivity(1, rounds) ** 2
        for made in (blt(rounds, buffers, 1, rounds) for buffers in (1, 2, 3))
    ]
    assert errors == sorted(errors, reverse=True)
    assert best < errors[-1] < 1.08 * best


@pytest.mark.parametrize("rounds", [1, 2, 5, 8, 13, 32])
def test_the_tree_is_the_tree_with_the_best_estimates(rounds: int) -> None:
    leaf, rows = np.arange(rounds), []
    for level in range(math.ceil(math.log2(rounds)) + 1):
        nodes = range(math.ceil(rounds / 2**level))
        rows += [(leaf // 2**level == node).astype(float) for node in nodes]
    tree = np.array(rows)
    made = factor("tree", rounds, 1)
    dense = made.dense()
    assert (dense >= -1e-12).all()
    assert np.allclose(np.triu(dense, 1), 0)
    assert np.allclose(dense.T @ dense, tree.T @ tree)
    ones = np.tril(np.ones((rounds, rounds)))
    best = np.linalg.norm(ones @ np.linalg.pinv(tree), axis=1)
    assert np.allclose(made.errors(), best)
    assert made.sensitivity(1, rounds) == pytest.approx(math.sqrt(math.ceil(math.log2(rounds)) + 1))


def test_the_whole_sum_of_a_tree_has_the_variance_of_honaker() -> None:
    """1 / (2 (1 - 2^-h)) of that of a node, for a node of h levels (Honaker 2015; Kairouz et al. 2021, Appendix)."""
    for levels in (1, 3, 7):
        last = factor("tree", 2 ** (levels - 1), 1).errors()[-1]
        assert last**2 == pytest.approx(1 / (2 * (1 - 2.0**-levels)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rounds", "bands"), [(7, 7), (7, 3), (8, 2)])
@pytest.mark.parametrize(("times", "separation"), [(1, 1), (2, 3), (3, 2), (7, 1), (2, 1), (8, 1)])
def test_no_pattern_and_no_signs_are_worse_than_the_sensitivity(
    kind: Kind, rounds: int, bands: int, times: int, separation: int
) -> None:
    made = factor(kind, rounds, bands)
    stated, worst = made.sensitivity(times, separation), brute(made, times, separation)
    if kind in ("tree", "banded") and 1 < times < rounds and (kind == "tree" or bands > separation):
        assert worst <= stated * (1 + 1e-12)  # a bound
        assert stated <= 1.4 * worst
    else:
        assert stated == pytest.approx(worst, rel=1e-12)


def test_columns_of_one_client_are_orthogonal_where_bands_reach_no_further_than_its_next_round() -> None:
    made = factor("square_root", 20, 5)
    assert made.coefficients is not None
    assert made.sensitivity(4, 5) == pytest.approx(2 * np.linalg.norm(made.coefficients))


@given(st.lists(st.floats(0, 5), min_size=1, max_size=7), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_the_best_entries_that_lie_apart_are_found(weights: list[float], times: int, separation: int) -> None:
    row = np.array(weights)
    best = max((row[list(chosen)].sum() for chosen in patterns(len(row), times, separation)), default=0.0)
    assert most_apart(row[None], times, separation)[0] == pytest.approx(best)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bands", [1, 3, 12])
def test_taking_noise_back_round_by_round_is_the_product_with_the_inverse(kind: Kind, bands: int) -> None:
    made = factor(kind, 12, bands)
    fresh = np.random.default_rng(0).standard_normal(12)
    noise = np.zeros(12)
    for round in range(12):
        row = made.row(round)
        noise[round] = fresh[round] / row[0] - sum(
            share * noise[round - lag] for lag, share in enumerate(row[1:] / row[0], 1)
        )
    inverse = np.linalg.inv(made.dense())
    assert np.allclose(noise, inverse @ fresh)
    assert np.allclose(np.linalg.norm(inverse, axis=1), [made.spread(round) for round in range(12)])
    assert np.allclose(np.linalg.norm(np.tril(np.ones((12, 12))) @ inverse, axis=1), made.errors())
    if made.coefficients is not None:
        assert np.allclose(inverse_of(made.coefficients, 12), inverse[:, 0])

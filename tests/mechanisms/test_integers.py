"""Tables of Skellam and discrete Gaussian noise: their law against scipy's, and samples against the law."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from fedplug.mechanisms.integers import FACTOR, Table, add_integers, table_of
from numpy.typing import NDArray
from scipy import stats

LAWS: Any = ["skellam_sum", "discrete_gaussian_sum"]


def law(table: Table) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The numbers of a table with their probabilities."""
    sums = [0, *((int(h) << 64) + int(w) for h, w in zip(table.high, table.low, strict=True)), 1 << 128]
    parts = [later - earlier for earlier, later in itertools.pairwise(sums)]
    assert all(part > 0 for part in parts)
    return np.arange(len(parts)) + table.least, np.array([part / 2**128 for part in parts])


def true_law(mechanism: str, std: float, at: NDArray[Any]) -> NDArray[np.float64]:
    if mechanism == "skellam_sum":
        return np.asarray(stats.skellam.pmf(at, std**2 / 2, std**2 / 2))
    every = np.arange(-int(40 * std) - 40, int(40 * std) + 41)
    weights = np.exp(-(every**2) / (2 * std * std))
    return np.asarray(np.exp(-(at**2) / (2 * std * std)) / weights.sum())


@pytest.mark.parametrize("mechanism", LAWS)
@pytest.mark.parametrize("std", [0.8, 1.0, 3.3, 32.0, 700.0])
def test_a_table_has_the_law_to_one_part_in_1e11(mechanism: Any, std: float) -> None:
    at, found = law(table_of(mechanism, std))
    expected = true_law(mechanism, std, at)
    near = expected > 1e-15
    assert np.abs(np.log(found[near] / expected[near])).max() < (1e-9 if mechanism == "skellam_sum" else FACTOR)
    assert 1 - 1e-11 < expected.sum() < 1 + 1e-9
    variance = float((found * at**2).sum())
    wide = float((expected * at**2).sum()) if mechanism != "skellam_sum" else std**2
    assert variance == pytest.approx(wide, rel=1e-9)
    assert (found * at).sum() == pytest.approx(0, abs=1e-12 * std), "both tails are alike"


def test_the_skellam_law_against_a_recurrence_in_integers() -> None:
    """I_(k-1) = I_(k+1) + (2 k / mu) I_k, which float64 tables must fulfil far into the tail; of mu = 9."""
    at, found = law(table_of("skellam_sum", 3.0))
    middle = -int(at[0])
    for k in range(1, 25):
        before, here, behind = found[middle + k - 1 : middle + k + 2]
        assert before == pytest.approx(behind + 2 * k / 9 * here, rel=1e-11)


@pytest.mark.parametrize("mechanism", LAWS)
@pytest.mark.parametrize("source", ["secure", "reproducible"])
def test_samples_follow_the_law(mechanism: Any, source: str) -> None:
    """Chi-square over the numbers expected ten times; a fixed stream, or 1 in 10^6 for the system's."""
    stream = np.random.Generator(np.random.Philox(7))
    drawn = add_integers(np.zeros(200_000, np.float32), 1.5, 0.5, mechanism, source, stream) / 0.5
    assert drawn.dtype == np.float32
    at, expected = law(table_of(mechanism, 3.0))
    counts = np.array([np.count_nonzero(drawn == k) for k in at])
    assert counts.sum() == len(drawn)
    kept = expected * len(drawn) >= 10
    found = np.append(counts[kept], counts[~kept].sum())
    awaited = np.append(expected[kept], expected[~kept].sum()) * len(drawn)
    assert stats.chisquare(found, awaited).pvalue > 1e-6


def test_the_exact_sampler_has_the_same_law() -> None:
    zeros, unused = np.zeros(4000, np.float32), np.random.default_rng()
    drawn = add_integers(zeros, 3.0, 1.0, "discrete_gaussian_sum", "exact", unused)
    assert np.array_equal(drawn, np.rint(drawn))
    assert abs(drawn.mean()) < 6 * 3 / np.sqrt(4000)
    assert drawn.std() == pytest.approx(3, rel=0.08)


@pytest.mark.parametrize("std", [0.8, 5.0, 300.0, 4096.0])
def test_places_are_those_of_a_search(std: float) -> None:
    table = table_of("skellam_sum", std)
    numbers = np.random.Generator(np.random.Philox(3)).integers(0, 2**64, 20_000, np.uint64)
    ends = np.array([0, 1, 2**64 - 1, 2**63, *table.high[:5], *table.high[-5:]], np.uint64)
    for upper in (numbers, ends, numbers >> np.uint64(40), ~(numbers >> np.uint64(30))):
        assert np.array_equal(table._places(upper), np.searchsorted(table.high, upper, side="right"))


def test_noise_is_added_to_values_on_the_grid_and_stays_there() -> None:
    values = (np.arange(50_000) % 17 - 8).astype(np.float32) * 2.0**-6

    def drawn(source: str) -> NDArray[np.float32]:
        return add_integers(values, 0.25, 2.0**-6, "skellam_sum", source, np.random.Generator(np.random.Philox(1)))

    noised = drawn("reproducible")
    assert np.array_equal(noised * 64, np.rint(noised * 64))
    assert (noised - values).std() == pytest.approx(0.25, rel=0.02)
    assert np.array_equal(noised, drawn("reproducible"))
    assert not np.array_equal(drawn("secure"), drawn("secure"))


def test_128_bits_decide_where_the_first_64_lie_on_a_boundary() -> None:
    """Numbers 0 to 3 below the sums 2^64 + 5, 2^64 + 9 and 2^127."""
    table = Table(0, np.array([1, 1, 2**63], np.uint64), np.array([5, 9, 0], np.uint64))

    def of(upper: int, lower: int) -> int:
        given = iter([np.array([upper], np.uint64), np.array([lower], np.uint64)])
        return int(table.draw(1, lambda count: next(given))[0])

    assert [of(0, 0), of(1, 4), of(1, 5), of(1, 8), of(1, 9), of(2, 0), of(2**63, 0)] == [0, 0, 1, 1, 2, 2, 3]

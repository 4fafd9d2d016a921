"""Histograms, contingency tables and quantiles, against numpy and scipy."""

from __future__ import annotations

import numpy as np
import pytest
from analytics_toys import answers, asked, records
from fedplug_analytics.cells import hidden
from fedplug_analytics.statistic import Released
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

RNG = np.random.default_rng(5)
AGES, SEX = RNG.normal(50, 12, 300), RNG.integers(0, 2, 300)
EDGES = (20.0, 35.0, 50.0, 65.0, 80.0)
SICK = (RNG.random(300) < np.where(SEX == 1, 0.5, 0.35)).astype(int)
TABLE = asked(
    "contingency", rows={"column": "sex", "values": (0, 1)}, columns={"column": "label", "values": ("no", "yes")}
)


def test_a_histogram_counts_as_numpy_does_with_what_lies_beyond_in_the_outer_cells() -> None:
    histogram = asked("histogram", column="age", edges=EDGES)
    found = answers(histogram, records(age=AGES[:100]), records(age=AGES[100:]))
    counts, _ = np.histogram(np.clip(AGES, 20, 80), EDGES)
    assert [found[name].value for name in histogram.names] == counts.tolist()
    share = found["share of 35 to 50"]
    p = counts[1] / 300
    assert share.value == pytest.approx(p)
    assert share.high - share.value == pytest.approx(stats.norm.ppf(0.975) * np.sqrt(p * (1 - p) / 300))


def test_classes_are_counted_by_name_and_other_values_not_at_all() -> None:
    histogram = asked("histogram", column="label", values=("yes",))
    assert answers(histogram, records(labels=SICK, age=AGES))["yes"].value == SICK.sum()
    with pytest.raises(ValueError, match="column 'label' has no value 'maybe'; the classes are no, yes"):
        asked("histogram", column="label", values=("maybe",)).sums(records(labels=SICK, age=AGES))
    with pytest.raises(ValueError, match="there is no column 'weight'; the columns are age, label"):
        asked("histogram", column="weight", values=(1,)).sums(records(age=AGES))


def test_independence_is_tested_as_scipy_does() -> None:
    found = answers(TABLE, records(labels=SICK, sex=SEX))
    expected = stats.chi2_contingency(TABLE.sums(records(labels=SICK, sex=SEX)).reshape(2, 2), correction=False)
    assert found["chi-square"].value == pytest.approx(expected.statistic)
    assert found["p-value"].value == pytest.approx(expected.pvalue)
    assert found["sex 1, label yes"].value == ((SEX == 1) & (SICK == 1)).sum()


def test_under_noise_independent_columns_are_called_dependent_as_rarely_as_asked() -> None:
    """Pearson's statistic is not: the noise alone would make it large."""
    rng, false, pearson = np.random.default_rng(1), 0, 0
    for _ in range(400):
        drawn = rng.multinomial(335, np.outer([200, 135], [150, 185]).reshape(-1) / 335**2)
        one = Released(drawn + rng.normal(0, 12, 4), np.full(4, 144.0))
        p = {each.name: each.value for each in TABLE.answer(one)}["p-value"]
        false += p < 0.05
        pearson += stats.chi2_contingency(np.maximum(one.sums, 1).reshape(2, 2), correction=False).pvalue < 0.05
    assert 0.02 < false / 400 < 0.08
    assert pearson / 400 > 0.2


@pytest.mark.parametrize("parts", [1, 3])
def test_quantiles_lie_within_a_bin_of_those_of_numpy(parts: int) -> None:
    quantiles = asked("quantiles", column="age", bounds=(0, 100), bins=200, at=(0.1, 0.5, 0.9))
    found = answers(quantiles, *(records(age=part) for part in np.array_split(AGES, parts)))
    for share in (0.1, 0.5, 0.9):
        one = found[f"quantile {share:g} of age"]
        assert abs(one.value - np.quantile(AGES, share)) <= 0.5
        # Woodruff's interval: between the quantiles at the ends of the share's own interval, and a bin further.
        reach = stats.norm.ppf(0.975) * np.sqrt(share * (1 - share) / 300)
        low, high = np.quantile(AGES, [share - reach, share + reach])
        assert low - 1 <= one.low <= low + 0.5
        assert high - 0.5 <= one.high <= high + 1


@given(arrays.arrays(np.int64, (3, 4), elements=st.integers(0, 12)), st.integers(1, 8))
def test_no_total_shows_a_hidden_cell(table: np.ndarray, small: int) -> None:
    """Every small cell is hidden, and no row or column has one hidden cell alone."""
    hide = hidden(table.astype(np.float64), small)
    assert hide[table < small].all()
    assert not ({1} & {*hide.sum(0).tolist(), *hide.sum(1).tolist()})


def test_small_cells_are_hidden_after_the_noise() -> None:
    histogram = asked("histogram", column="age", edges=EDGES)
    ages = [25.0] * 3 + [40.0] * 30 + [60.0] * 9 + [70.0] * 40
    found = answers(histogram, records(age=ages), small_cells=5)
    assert [found[name].value for name in histogram.names] == [None, 30, None, 40]
    assert "fewer than 5" in found["20 to 35"].note
    assert "share of 20 to 35" not in found
    one = Released(np.array([7.0, 30, 4, 40]), np.full(4, 9.0), small_cells=5)
    assert [each.value for each in histogram.answer(one)][:4] == [None, 30, None, 40]


def test_the_noise_of_shares_is_that_of_their_derivatives() -> None:
    histogram = asked("histogram", column="age", edges=EDGES)
    noise = np.array([1.0, 4.0, 9.0, 2.0])
    one = Released(histogram.sums(records(age=AGES)), noise)
    expected = one.spread(lambda counts: counts / counts.sum(-1, keepdims=True))
    shares = [each for each in histogram.answer(one) if each.name.startswith("share")]
    for each, variance in zip(shares, expected, strict=True):
        total = ((each.high - each.value) / stats.norm.ppf(0.975)) ** 2
        assert total == pytest.approx(variance + each.value * (1 - each.value) / 300)


def test_a_record_is_in_one_cell() -> None:
    for kind in (TABLE, asked("quantiles", column="age", bounds=(0, 1))):
        assert kind.record_norm(1) == kind.record_norm(2) == 1
    assert TABLE.sums(records(labels=SICK, sex=SEX)).sum() == 300

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
    wilson = stats.binomtest(counts[1], 300).proportion_ci(0.95, method="wilson")
    assert (share.value, share.low, share.high) == pytest.approx((counts[1] / 300, wilson.low, wilson.high))


def test_a_share_of_no_record_has_an_interval_too() -> None:
    """Of 30 records none has a value that 11% of all may have."""
    found = answers(asked("histogram", column="group", values=(0, 1)), records(group=[0] * 30))
    wilson = stats.binomtest(0, 30).proportion_ci(0.95, method="wilson")
    assert found["share of 1"].high == pytest.approx(wilson.high)
    assert found["share of 0"].low == pytest.approx(1 - wilson.high)


def test_a_value_of_the_recipe_is_the_float32_that_records_hold() -> None:
    tenths = np.array([0.1, 0.3, 0.7, 0.7], np.float32)
    by_value = answers(asked("histogram", column="x", values=(0.1, 0.7)), records(x=tenths))
    assert (by_value["0.1"].value, by_value["0.7"].value) == (1, 2)
    by_edge = answers(asked("histogram", column="x", edges=(0, 0.3, 0.7, 1)), records(x=tenths))
    assert [by_edge[name].value for name in ("0 to 0.3", "0.3 to 0.7", "0.7 to 1")] == [1, 1, 2]
    with pytest.raises(ValueError, match="must rise"):
        asked("histogram", column="x", edges=(0, 16777216, 16777217))
    with pytest.raises(ValueError, match="narrower than float32"):
        asked("quantiles", column="x", bounds=(1e6, 1e6 + 1), bins=100)


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
    """Every small cell is hidden, and no row or column has one hidden cell alone, or so few records in all of them."""
    hide = hidden(table.astype(np.float64), small)
    assert hide[table < small].all()
    assert not ({1} & {*hide.sum(0).tolist(), *hide.sum(1).tolist()})
    for lines, mask in ((table, hide), (table.T, hide.T)):
        for line, of_line in zip(lines, mask, strict=True):
            assert of_line.all() or not of_line.any() or line[of_line].sum() >= small


def test_empty_cells_are_not_shown_by_their_sum() -> None:
    assert hidden(np.array([[0.0, 0, 30, 40]]), 5).tolist() == [[True, True, True, False]]


def test_totals_of_several_lines_show_no_hidden_cell() -> None:
    """Two squares of hidden cells with one between them: rows 0 and 1 less columns 0 and 1 would give that one."""
    table = np.full((4, 4), 20.0)
    table[:2, :2] = table[2:, 2:] = table[1, 2] = 4
    hide = hidden(table, 5)
    assert hide[table < 5].all()
    rows, columns = np.indices(table.shape)
    lines = np.array([(rows == each)[hide] for each in range(4)] + [(columns == each)[hide] for each in range(4)])
    lines = lines.astype(float)
    for cell in np.eye(int(hide.sum())):  # in no combination of lines
        combined = np.linalg.lstsq(lines.T, cell, rcond=None)[0]
        assert np.linalg.norm(lines.T @ combined - cell) > 0.1


def test_where_cells_are_hidden_no_test_shows_them() -> None:
    """Of a table of two rows and columns with known totals, chi-square leaves two candidates for each cell."""
    shown = Released(np.array([30.0, 20, 9, 40]), np.zeros(4), small_cells=10)
    found = {each.name: each for each in TABLE.answer(shown)}
    assert found["sex 1, label no"].value is None
    assert found["chi-square"].value is None
    assert "p-value" not in found


def test_quantiles_with_few_records_on_one_side_are_hidden() -> None:
    asking = asked("quantiles", column="age", bounds=(0, 100), bins=100, at=(0.5, 0.005, 0.51, 0.999))
    found = answers(asking, records(age=AGES), small_cells=5)
    assert [name for name, each in found.items() if each.value is not None] == ["quantile 0.5 of age"]
    assert "fewer than 5 records" in found["quantile 0.999 of age"].note


def test_the_place_of_a_quantile_in_its_bin_does_not_show_how_few_are_there() -> None:
    """Of 2 records in the bin of the median, which the line within it would tell."""
    ages = [10.5] * 20 + [50.5] * 2 + [90.5] * 21
    asking = asked("quantiles", column="age", bounds=(0, 100), bins=100, at=(0.5,))
    (median,) = answers(asking, records(age=ages), small_cells=5).values()
    assert median.value == 50.5
    (median,) = answers(asking, records(age=ages)).values()
    assert median.value == 50.75


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
        for end in (each.low, each.high):
            away = ((end - each.value) / stats.norm.ppf(0.975)) ** 2
            assert away == pytest.approx(variance + end * (1 - end) / 300)


def test_a_record_is_in_one_cell() -> None:
    for kind in (TABLE, asked("quantiles", column="age", bounds=(0, 1))):
        assert kind.record_norm(1) == kind.record_norm(2) == 1
    assert TABLE.sums(records(labels=SICK, sex=SEX)).sum() == 300

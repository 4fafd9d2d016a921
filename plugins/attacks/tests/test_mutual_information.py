"""Mutual information: known channels, the chain rule over the mask, the naive reading, and what bins do to it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from fedplug import MetricError
from fedplug.api.blocks import Layout
from fedplug_attacks.api.observation import Meaning, ObservedUpdate, Seen, all_clear
from fedplug_attacks.api.report import AttackReport
from fedplug_attacks.api.truth import Truth
from fedplug_attacks.mutual_information import MutualInformation, information
from fedplug_kit.static import check_component
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import mutual_info_score

N = 100_000


def seen_as(values: NDArray[Any], hidden: NDArray[np.bool_] | None = None, sigma: float = 0.0) -> ObservedUpdate:
    layout = Layout.of([("fc.weight", (len(values),))])
    return all_clear(0, 0, layout, values.astype(np.float32), Meaning(), hidden, sigma)


def score(update: NDArray[Any] | None, observed: ObservedUpdate | None, **options: Any) -> dict[str, Any]:
    true = None if update is None else update.astype(np.float32)
    truth = Truth(np.zeros((1, 1, 2, 2), np.float32), np.zeros(1, np.int64), 2, update=true, observed=observed)
    return MutualInformation(MutualInformation.Options(**options)).score(AttackReport("finished"), truth)


def normal(seed: int, count: int = N) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=count)


def largest(values: NDArray[Any], share: float) -> NDArray[np.bool_]:
    return np.asarray(np.abs(values) > np.quantile(np.abs(values), 1 - share))


def test_conforms() -> None:
    check_component("attacks.mutual_information", "metric")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 400), st.integers(1, 12), st.integers(1, 12))
def test_the_plug_in_formula_agrees_with_scikit_learn(seed: int, count: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, rows, count), rng.integers(0, columns, count)
    assert information(x, y) == pytest.approx(mutual_info_score(x, y) / np.log(2), abs=1e-9)


@pytest.mark.parametrize("bins_by", ["quantile", "width"])
@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_a_gaussian_channel_has_its_capacity(noise: float, bins_by: str) -> None:
    x = normal(0)
    found = score(x, seen_as(x + noise * normal(1), sigma=noise), bins_by=bins_by)
    assert found["mutual_information_net"] == pytest.approx(0.5 * np.log2(1 + noise**-2), rel=0.05)
    assert found["mi_mask"] == 0
    assert found["mi_naive"] == pytest.approx(found["mutual_information_net"])
    assert found["permutation_baseline"] > 0.01


def test_independent_values_have_none_and_the_bias_is_that_of_a_chi_square() -> None:
    found = score(normal(0), seen_as(normal(1), sigma=1.0))
    assert abs(found["mutual_information_net"]) < 2e-3
    assert found["permutation_baseline"] == pytest.approx(63**2 / (2 * N * np.log(2)), rel=0.05)


@pytest.mark.parametrize(("bins_by", "bins"), [("quantile", 64), ("width", 64), ("quantile", 8)])
def test_a_clear_update_shows_the_entropy_of_its_bins(bins_by: str, bins: int) -> None:
    x = normal(0).astype(np.float32)
    found = score(x, seen_as(x), bins_by=bins_by, bins=bins)
    cells = np.histogram(x, bins)[0] / N if bins_by == "width" else np.full(bins, 1 / bins)
    entropy = -np.sum(cells[cells > 0] * np.log2(cells[cells > 0]))
    assert found["mutual_information"] == pytest.approx(entropy, abs=2e-3)
    assert found["mi_naive"] == found["mutual_information_net"] == found["mi_visible"]


def test_a_random_mask_hides_its_share_and_says_nothing_itself() -> None:
    x = normal(0)
    hidden = np.random.default_rng(1).random(N) < 0.4
    found = score(x, seen_as(x, hidden))
    assert found["mutual_information"] == pytest.approx(6 * (1 - hidden.mean()), abs=0.01)
    assert abs(found["mi_mask"]) < 1e-3
    assert found["mi_naive"] < found["mutual_information_net"]


def test_the_mask_of_the_largest_entries_speaks() -> None:
    x = normal(0)
    hidden = largest(x, 0.5)
    found = score(x, seen_as(x, hidden))
    assert found["mi_mask"] == pytest.approx(1.0, abs=0.01)
    assert found["mi_visible"] == pytest.approx(0.5 * 5, abs=0.03)
    assert found["mi_mask"] + found["mi_visible"] == pytest.approx(found["mutual_information_net"])


def test_nothing_visible_is_nothing_learnt() -> None:
    found = score(normal(0, 5000), seen_as(normal(0, 5000), np.ones(5000, np.bool_)))
    assert set(found.values()) == {0.0}


def test_bins_of_equal_width_lose_an_update_with_heavy_tails_once_its_largest_entries_are_hidden() -> None:
    heavy = np.random.default_rng(2).standard_t(2, N)
    hidden = largest(heavy, 0.2)
    width, quantile = (score(heavy, seen_as(heavy, hidden), bins_by=by) for by in ("width", "quantile"))
    clear = score(heavy, seen_as(heavy), bins_by="width")
    assert width["mi_naive"] < 0.05 * clear["mi_naive"]
    assert quantile["mi_naive"] > 4.5
    # The smallest entries all lie in one bin of equal width, together with the 0 that hides them.
    smallest = score(heavy, seen_as(heavy, ~largest(heavy, 0.5)), bins_by="width")
    assert smallest["mi_naive"] == pytest.approx(clear["mi_naive"], rel=0.01)


def test_clear_and_noised_entries_are_two_channels() -> None:
    x, half = normal(0), np.arange(N) < N // 2
    values = np.where(half, x, x + normal(1)).astype(np.float32)
    both = dataclasses.replace(seen_as(values), states=np.where(half, Seen.CLEAR, Seen.NOISED).astype(np.uint8))
    found = score(x, both)
    assert found["mutual_information_net"] == pytest.approx(0.5 * 6 + 0.5 * 0.5, rel=0.03)
    # An adversary that does not know which entries are noised learns less.
    assert found["mi_naive"] < found["mutual_information_net"] - 0.2


def test_equal_entries_share_a_bin_and_so_tell_little() -> None:
    x = np.where(np.arange(N) < 0.9 * N, 0.0, normal(0))
    found = score(x, seen_as(x))
    # Whether an entry is 0: 0.469 bits. Of the tenth that is not, each half has no more than 4 bins.
    assert 0.469 + 0.1 < found["mutual_information"] < 0.469 + 0.1 * np.log2(8)


def test_large_updates_are_sampled_alike_each_time() -> None:
    x = normal(0)
    observed = seen_as(x + normal(1), np.random.default_rng(3).random(N) < 0.3, sigma=1.0)
    sampled = score(x, observed, entries=40_000)
    assert sampled == score(x, observed, entries=40_000)
    assert sampled != score(x, observed, entries=40_000, seed=1)
    assert sampled["mutual_information_net"] == pytest.approx(score(x, observed)["mutual_information_net"], rel=0.05)


def test_refuses_what_it_is_not_defined_for() -> None:
    x = normal(0, 100)
    with pytest.raises(MetricError, match="true update"):
        score(None, seen_as(x))
    with pytest.raises(MetricError, match="saw no update"):
        score(x, None)
    with pytest.raises(MetricError, match="99 entries, and a view of 100"):
        score(x[:99], seen_as(x))
    with pytest.raises(MetricError, match="not finite"):
        score(x, seen_as(np.full(100, np.inf)))

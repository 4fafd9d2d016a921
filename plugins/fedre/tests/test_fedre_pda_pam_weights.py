"""PDA-PAM: the weights that scores give a client in each layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from examples import examples
from fedplug_fedre.pda_pam import layer_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pda_pam_toys import LN, softmax

matrices = st.integers(1, 6).flatmap(
    lambda k: st.lists(st.lists(st.floats(-20, 20), min_size=3, max_size=3), min_size=k, max_size=k)
).map(np.array)  # fmt: skip


def everything(scores: NDArray[Any]) -> NDArray[np.bool_]:
    return np.ones(scores.shape, np.bool_)


@settings(max_examples=examples(100))
@given(matrices)
def test_normalised_weights_are_the_softmax_of_minus_the_scores(scores: Any) -> None:
    """These are also the normalised inverses of alpha-hat (eq. 10)."""
    factors, shares = layer_weights(scores, everything(scores))
    assert np.array_equal(factors, shares)
    count = len(scores)
    assert factors / count == pytest.approx(softmax(-scores), abs=1e-11)
    inverse = 1 / softmax(scores)
    assert factors / count == pytest.approx(inverse / inverse.sum(0), rel=1e-9, abs=1e-11)
    assert (factors / count).sum(0) == pytest.approx(np.ones(3))


@settings(max_examples=examples(100))
@given(matrices)
def test_a_higher_score_never_weighs_more(scores: Any) -> None:
    for weighting in ("normalised", "as_published"):
        factors, _ = layer_weights(scores, everything(scores), weighting)
        for layer in range(3):
            order = np.argsort(scores[:, layer], kind="stable")
            assert (np.diff(factors[order, layer]) <= 1e-9 * factors[:, layer].max()).all()


@given(st.integers(1, 9), st.floats(0, 1e6))
def test_equal_scores_are_the_mean_to_the_bit(count: int, score: float) -> None:
    """1 / K each; factors are K times that."""
    for standardise in (False, True):
        factors, shares = layer_weights(
            np.full((count, 3), score), np.ones((count, 3), np.bool_), standardise=standardise
        )
        assert np.array_equal(factors, np.ones((count, 3)))
        assert np.array_equal(shares, factors)


def test_eq_11_with_scores_0_ln_2_ln_4_multiplies_by_4_08_in_all() -> None:
    """alpha-hat is 1/7, 2/7, 4/7; the coefficients 1 / (3 alpha-hat) add up to 4.08 where a mean has 1."""
    scores = np.array([[0.0], [LN(2)], [LN(4)]])
    factors, shares = layer_weights(scores, everything(scores), "as_published")
    assert factors[:, 0].tolist() == pytest.approx([7, 3.5, 1.75])
    assert (factors / shares.sum(0)).sum() == pytest.approx(4.0833, abs=1e-4)
    normalised, _ = layer_weights(scores, everything(scores))
    assert (normalised[:, 0] / 3).tolist() == pytest.approx([4 / 7, 2 / 7, 1 / 7])


@settings(max_examples=examples(100))
@given(matrices)
def test_the_coefficients_of_eq_11_add_up_to_the_number_of_clients_at_least(scores: Any) -> None:
    factors, shares = layer_weights(scores, everything(scores), "as_published")
    assert ((factors / shares.sum(0)).sum(0) >= len(scores) * (1 - 1e-9)).all()


@settings(max_examples=examples(100))
@given(matrices, st.floats(0.1, 10), st.floats(-5, 5))
def test_standardised_scores_have_no_unit(scores: Any, factor: float, shift: float) -> None:
    if (scores.std(0) < 1e-3).any():
        return
    one, other = (layer_weights(s, everything(scores), standardise=True)[0] for s in (scores, factor * scores + shift))
    assert one == pytest.approx(other, rel=1e-6)


def test_a_layer_counts_over_the_clients_that_send_it() -> None:
    scores = np.array([[0.0, 5.0], [LN(2), math.nan], [LN(4), 5.0]])
    shows = np.array([[True, True], [True, False], [False, True]])
    factors, shares = layer_weights(scores, shows)
    assert factors[:, 0].tolist() == pytest.approx([4 / 3, 2 / 3, 0])
    assert factors[:, 1].tolist() == [1, 0, 1]  # no client that counts has the score that is not a number
    assert np.array_equal(factors, shares)
    as_published, ones = layer_weights(scores, shows, "as_published")
    assert as_published[:, 0].tolist() == pytest.approx([3, 1.5, 0])
    assert np.array_equal(ones, shows)


def test_a_layer_that_cannot_be_scored_counts_all_alike() -> None:
    scores = np.array([[math.inf, 1.0], [1.0, 2.0]])
    for weighting in ("normalised", "as_published"):
        factors, shares = layer_weights(scores, everything(scores), weighting)
        assert factors[:, 0].tolist() == shares[:, 0].tolist() == [1, 1]
        assert factors[0, 1] > factors[1, 1]

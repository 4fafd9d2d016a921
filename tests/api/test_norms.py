"""The arithmetic of bounds holds for values: implications of a bound, and its change when values move."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug.api import norms
from fedplug.api.norms import Bound
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

LAYERS = (6, 4)
VALUES = arrays(np.float64, 10, elements=st.floats(-3, 3))


def length(values: Any, order: float) -> float:
    return float(np.linalg.norm(values, order))


def parts(values: Any) -> list[Any]:
    return [values[:6], values[6:]]


@settings(max_examples=50, deadline=None)
@given(VALUES, st.sampled_from([1, 2]))
def test_what_a_bound_implies_is_true_of_values_that_keep_it(values: Any, order: int) -> None:
    bounds = (
        Bound(length(values, order), order=order),
        Bound(tuple(length(part, order) for part in parts(values)), order=order, per="layer"),
        Bound(length(values, math.inf), per="scalar"),
    )
    for bound in bounds:
        implied = norms.implied(bound, order, LAYERS)
        assert implied is not None
        assert length(values, order) <= implied * (1 + 1e-9)


def test_a_norm_of_another_order_is_not_implied() -> None:
    assert norms.implied(Bound(1.0, order=1), 2, LAYERS) is None
    assert norms.implied(Bound(1.0, per="scalar"), 2, ()) == math.inf  # before the model is known


@settings(max_examples=50, deadline=None)
@given(VALUES, VALUES, st.floats(0.01, 2.0), st.sampled_from([1, 2]), st.sampled_from(["update", "layer", "scalar"]))
def test_rounded_values_lie_no_further_apart_than_said(one: Any, other: Any, step: float, order: int, per: Any) -> None:
    def norm(values: Any) -> Any:
        if per == "layer":
            return tuple(length(part, order) for part in parts(values))
        return length(values, order if per == "update" else math.inf)

    (wider,) = norms.apart((Bound(norm(one - other), order=order, per=per),), step, LAYERS)
    rounded = (np.round(values / step) * step for values in (one, other))
    found = norm(next(rounded) - next(rounded))
    assert all(f <= w * (1 + 1e-9) + 1e-9 for f, w in zip(norms.each(found), norms.each(wider.norm), strict=True))


def test_one_release_of_all_layers_costs_what_their_noises_cost_together() -> None:
    """1/m^2 = sum of (C_l / s_l)^2; of Laplace noise 1/m = sum of C_l / b_l."""
    gaussian = norms.multiplier((2.0, 4.0), 5.0, (1.0, 2.0), 2)
    assert gaussian == pytest.approx(1 / math.sqrt(0.5**2 + 0.5**2))
    assert norms.multiplier((2.0, 4.0), 5.0, (1.0, 2.0), 1) == pytest.approx(1.0)
    assert norms.multiplier((2.0, 0.0), 5.0, (1.0, 2.0), 2) == 0.0
    assert norms.multiplier((2.0,), 5.0, (1.0, 2.0), 2) == 0.0
    assert norms.multiplier(2.0, None, None, 2) == 0.0

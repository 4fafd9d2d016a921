"""The highest scores are those that a sort gives."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug.api.errors import ProtectionError
from fedplug_std.scores import highest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


@given(hnp.arrays(np.float32, 20, elements=st.sampled_from([0.0, -1.0, 2.5, 3.0])), st.integers(1, 19))
def test_the_highest_are_those_that_a_sort_gives(values: np.ndarray, count: int) -> None:
    assert sorted(highest(values, count).tolist()) == sorted(np.argsort(-values, kind="stable")[:count].tolist())


@pytest.mark.parametrize("count", [1, 500, 20_000, 199_999])
@pytest.mark.parametrize("kind", ["apart", "alike", "ascending", "few above many", "the sample is too low"])
def test_the_highest_of_many_are_those_that_a_sort_gives(kind: str, count: int) -> None:
    values = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    if kind == "alike":
        values = values.round(1)
    elif kind == "ascending":
        values.sort()
    elif kind == "few above many":
        values[5000:] = 0
    elif kind == "the sample is too low":  # every 48th score is looked at first
        values[::48] = -9
    assert sorted(highest(values, count).tolist()) == sorted(np.argsort(-values, kind="stable")[:count].tolist())


@pytest.mark.parametrize("undefined", [1, 8, 10])
def test_scores_that_are_nan_have_no_highest(undefined: int) -> None:
    values = np.arange(10, dtype=np.float32)
    values[:undefined] = np.nan
    for count in (1, 5):
        with pytest.raises(ProtectionError, match=f"{undefined} of 10 scores are NaN.* lower lr in train"):
            highest(values, count)
    assert len(highest(np.array([np.inf, -np.inf, 0, np.inf], np.float32), 3)) == 3

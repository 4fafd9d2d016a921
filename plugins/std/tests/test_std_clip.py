"""Clipping: norms within the bound, whatever the values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from fedplug import Clip
from fedplug.api.errors import ProtectionError
from fedplug.api.operations import Misplaced
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from noise_toys import client, clip, gaussian, known, passed

finite = st.floats(-1e6, 1e6, width=32)


@given(arrays(np.float32, st.integers(0, 50), elements=finite), st.floats(1e-3, 1e6))
def test_clipped_norm_is_at_most_the_bound_and_smaller_updates_pass_unchanged(values: Any, norm: float) -> None:
    """Item 17."""
    party = client()
    clipped = passed(values, party, clip(norm))
    before = float(np.linalg.norm(values.astype(np.float64)))
    length = float(np.linalg.norm(clipped.astype(np.float64)))
    assert clipped.dtype == np.float32
    assert clip(norm).protect(known(), party.facts) == (Clip(norm),)
    assert length <= norm
    if before <= norm:
        assert np.array_equal(clipped, values)
        assert party.log == {"std.clip.clipped": 0.0}
    else:
        assert length >= norm * (1 - 1e-6)
        assert np.allclose(clipped * before, values * norm, rtol=1e-5, atol=norm * before * 1e-7)


def test_clip_bounds_values_whose_squares_overflow_float32() -> None:
    party = client()
    clipped = passed([3e38, -3e38], party, clip(1.0))
    assert clipped == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], rel=1e-6)


@pytest.mark.parametrize("norm", [1e-3, 1e-6, 1e-38, 1e-44])
def test_clip_holds_where_its_scale_or_its_result_is_denormal(norm: float) -> None:
    party, rng = client(), np.random.default_rng(0)
    for size in (1, 1000):
        values = (rng.uniform(0.1, 1, size) * 3e38).astype(np.float32)
        clipped = passed(values, party, clip(norm))
        assert np.linalg.norm(clipped.astype(np.float64)) <= norm
        assert norm < 1e-30 or np.linalg.norm(clipped.astype(np.float64)) >= norm * (1 - 1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_clip_refuses_a_diverged_update(bad: float) -> None:
    party = client(3)
    with pytest.raises(ProtectionError, match=r"client 3: .* 1 NaN or infinite values.*; .*lower lr"):
        passed([0.0, bad], party, clip(1.0))


def test_infinite_norm_clips_nothing_and_bounds_nothing() -> None:
    party = client()
    free = passed([3.0, 4.0], party, clip(math.inf))
    assert free.tolist() == [3, 4]
    for multiplier in (0, 1):
        with pytest.raises(Misplaced, match=r"needs a bound of the L2 norm earlier in .*std\.clip"):
            passed([3.0, 4.0], party, clip(math.inf), gaussian(noise_multiplier=multiplier))

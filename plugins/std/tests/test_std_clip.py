"""Clipping: norms within the bound, whatever the values."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from fedplug import Bound
from fedplug.api.errors import ProtectionError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from noise_toys import block, client, clip, gaussian, known

finite = st.floats(-1e6, 1e6, width=32)


@given(arrays(np.float32, st.integers(0, 50), elements=finite), st.floats(1e-3, 1e6))
def test_clipped_norm_is_at_most_the_bound_and_smaller_updates_pass_unchanged(values: Any, norm: float) -> None:
    """Item 17."""
    party = client()
    clipped = clip(norm).protect(block(values), party, party.ctx)
    before = float(np.linalg.norm(values.astype(np.float64)))
    length = float(np.linalg.norm(clipped.plain().astype(np.float64)))
    assert clipped.plain().dtype == np.float32
    assert clip(norm).effects(known(), party.ctx) == (Bound(norm),)
    assert length <= norm
    if before <= norm:
        assert np.array_equal(clipped.plain(), values)
        assert party.log == {"std.clip.clipped": 0.0}
    else:
        assert length >= norm * (1 - 1e-6)
        assert np.allclose(clipped.plain() * before, values * norm, rtol=1e-5, atol=norm * before * 1e-7)


def test_clip_bounds_values_whose_squares_overflow_float32() -> None:
    party = client()
    clipped = clip(1.0).protect(block([3e38, -3e38]), party, party.ctx)
    assert clipped.plain() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], rel=1e-6)


@pytest.mark.parametrize("norm", [1e-3, 1e-6, 1e-38, 1e-44])
def test_clip_holds_where_its_scale_or_its_result_is_denormal(norm: float) -> None:
    party, rng = client(), np.random.default_rng(0)
    for size in (1, 1000):
        values = (rng.uniform(0.1, 1, size) * 3e38).astype(np.float32)
        clipped = clip(norm).protect(block(values), party, party.ctx).plain()
        assert np.linalg.norm(clipped.astype(np.float64)) <= norm
        assert norm < 1e-30 or np.linalg.norm(clipped.astype(np.float64)) >= norm * (1 - 1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_clip_refuses_a_diverged_update(bad: float) -> None:
    party = client(3)
    with pytest.raises(ProtectionError, match=r"client 3: .* 1 NaN or infinite values.*; .*lower lr"):
        clip(1.0).protect(block([0.0, bad]), party, party.ctx)


def test_infinite_norm_clips_nothing_and_bounds_nothing() -> None:
    party = client()
    free = clip(math.inf).protect(block([3.0, 4.0]), party, party.ctx)
    assert free.plain().tolist() == [3, 4]
    behind = known().after(clip(math.inf).effects(known(), party.ctx))
    assert behind.bounds == ()
    ctx = dataclasses.replace(party.ctx, known=behind)
    with pytest.raises(ProtectionError, match=r"no bound of the L2 norm is known; .*std\.clip"):
        gaussian(noise_multiplier=1).protect(free, party, ctx)
    assert gaussian(noise_multiplier=0).protect(free, party, ctx).plain().tolist() == [3, 4]

"""Positions of a block as they travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fedplug.api.codec import pack_positions, unpack_positions
from fedplug.api.errors import MessageError
from hypothesis import given
from hypothesis import strategies as st


@given(st.sets(st.integers(0, 5000)))
def test_positions_come_back_and_take_the_shorter_of_both_forms(chosen: set[int]) -> None:
    positions = np.array(sorted(chosen), np.uint32)
    packed = pack_positions(positions)
    assert np.array_equal(unpack_positions(packed), positions)
    size = packed["bits"].nbytes if isinstance(packed, dict) else packed.nbytes
    assert size <= min(4 * len(positions), (max(chosen, default=0) + 8) // 8 + 16)


@pytest.mark.parametrize(
    ("positions", "rule"),
    [
        (np.array([2, 1]), "ascending"), (np.array([1, 1]), "ascending"), (np.array([-1, 2]), "must be 0 to"),
        (np.array([2**32]), "must be 0 to"), (np.array([0.5]), "integers"), ([1, 2], "integers"),
    ],
)  # fmt: skip
def test_what_is_no_position_is_not_sent(positions: Any, rule: str) -> None:
    with pytest.raises(MessageError, match=rule):
        pack_positions(positions)


def test_a_bitmap_that_claims_more_than_it_holds_is_refused() -> None:
    assert unpack_positions(None) is None
    with pytest.raises(MessageError, match="1 bytes cannot hold 9 positions"):
        unpack_positions({"bits": np.zeros(1, np.uint8), "extent": 9})

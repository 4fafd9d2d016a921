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
    assert np.array_equal(unpack_positions(packed, len(positions)), positions)
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
    assert unpack_positions(None, 3) is None
    with pytest.raises(MessageError, match="1 bytes cannot hold 9 positions"):
        unpack_positions({"bits": np.zeros(1, np.uint8), "extent": 9}, 0)


@pytest.mark.parametrize(
    ("bits", "extent", "size", "rule"),
    [
        (np.full(3, 255, np.uint8), 24, 23, "24 positions in a block of size 23"),
        (np.full(3, 255, np.uint8), 20, 24, "position 23, which ends at 20"),
        (np.zeros((1, 1), np.uint8), 1, 0, "must be uint8"), (b"a", 1, 0, "must be uint8"),
        (np.zeros(1, np.uint8), -1, 0, "a whole number"), (np.zeros(1, np.uint8), 0, "x", "block of size 'x'"),
    ],
)  # fmt: skip
def test_a_bitmap_has_as_many_positions_as_its_block_says(bits: Any, extent: Any, size: Any, rule: str) -> None:
    with pytest.raises(MessageError, match=rule):
        unpack_positions({"bits": bits, "extent": extent}, size)


def test_a_long_bitmap_becomes_positions_piece_by_piece() -> None:
    positions = np.flatnonzero(np.random.default_rng(1).random(3_000_000) < 0.9).astype(np.uint32)
    assert np.array_equal(unpack_positions(pack_positions(positions), len(positions)), positions)

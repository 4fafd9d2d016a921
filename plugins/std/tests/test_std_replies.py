"""Replies of clients: packed masks and their votes."""

from __future__ import annotations

import numpy as np
from fedplug_std.replies import packed_problem, unpacked, votes


def test_bits_beyond_the_last_scalar_are_found() -> None:
    assert packed_problem(np.array([255, 192], np.uint8), 10, "mask") == ""
    assert "its ballot marks scalars beyond the 10" in packed_problem(np.array([0, 32], np.uint8), 10, "ballot")


def test_votes_are_the_sum_of_the_masks() -> None:
    masks = [np.array([True, False, True]), np.array([True, False, False])]
    packed = [np.packbits(mask) for mask in masks]
    assert [unpacked(mask, 3).tolist() for mask in packed] == [mask.tolist() for mask in masks]
    assert votes(packed, 3).tolist() == [2, 0, 1]
    assert votes([], 3).tolist() == [0, 0, 0]

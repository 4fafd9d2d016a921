"""Values that no sum holds, counted from the positions of the uploads."""

from __future__ import annotations

from fedplug_sensecrypt.left_out import in_vain
from numpy import array, uint32

UPLOADS = {0: array([1, 2, 3], uint32), 1: array([1, 2, 5], uint32), 2: array([5, 9], uint32)}


def test_the_worked_example() -> None:
    """Three clients, at least two per position. The sum holds 1, 2 and 5, but not 3 and 9, each of one client."""
    assert in_vain(UPLOADS, 2, 1) == {0: 1 / 3, 1: 0.0, 2: 1 / 2}
    assert in_vain(UPLOADS, 1, 1) == {0: 0.0, 1: 0.0, 2: 0.0}


def test_a_ciphertext_that_holds_something_else_too_is_not_in_vain() -> None:
    """Four positions per ciphertext: 3 shares one with 1 and 2, 9 has a separate one."""
    assert in_vain(UPLOADS, 2, 4) == {0: 0.0, 1: 0.0, 2: 1 / 2}


def test_all_of_it() -> None:
    lone = {0: array([1], uint32), 1: array([2], uint32), 2: array([], uint32)}
    assert in_vain(lone, 2, 1) == {0: 1.0, 1: 1.0, 2: 0.0}

"""Arrays that parties of one process share: no party can change them."""

from __future__ import annotations

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import is_unchangeable, unchangeable
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

DTYPES = st.sampled_from([np.float32, np.float64, np.uint8, np.int64, np.bool_])


@given(hnp.arrays(DTYPES, hnp.array_shapes(min_side=0)))
def test_values_are_kept_and_cannot_change(array: np.ndarray) -> None:  # type: ignore[type-arg]
    kept, wanted = unchangeable(array), array.copy()
    assert (kept.dtype, kept.shape) == (array.dtype, array.shape)
    array[...] = 1
    np.testing.assert_array_equal(kept, wanted)
    assert not kept.flags.writeable
    if kept.size:
        assert is_unchangeable(kept)
        assert unchangeable(kept) is kept
        with pytest.raises(ValueError, match="WRITEABLE"):
            kept.flags.writeable = True


def test_a_read_only_mark_is_not_enough() -> None:
    """The owner can remove the protection, and a view made before has none."""
    owner = np.zeros(4)
    view = owner[:]
    owner.flags.writeable = False
    assert not is_unchangeable(owner)
    kept = unchangeable(owner)
    view[:] = 1
    assert not kept.any()


def test_decoded_arrays_are_held_as_they_are() -> None:
    array = codec.decode(codec.encode(np.arange(6.0)))
    assert unchangeable(array) is array
    assert unchangeable(array[::2]) is not array[::2]
    np.testing.assert_array_equal(unchangeable(array[::2]), [0, 2, 4])

"""Arrays that numpy lets nobody change: what parties of one process may hold together.

Other libraries do not ask: `torch.from_numpy` gives a tensor that writes to them, with a warning, and nobody finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_unchangeable(array: NDArray[Any]) -> bool:
    """Whether the array lies in `bytes`, as one that was decoded does.

    A read-only mark is not enough: whoever owns the memory can take it away, or holds a view without it.
    """
    below: Any = array
    while isinstance(below, np.ndarray):
        if below.flags.writeable:
            return False
        below = below.base
    return isinstance(below, bytes)


def unchangeable(array: NDArray[Any]) -> NDArray[Any]:
    """The array itself where numpy lets nobody change it and it is contiguous, else a copy of which both hold."""
    if is_unchangeable(array) and array.flags.c_contiguous:
        return array
    if not array.size:  # numpy makes no array of no bytes
        empty = np.empty(array.shape, array.dtype)
        empty.flags.writeable = False
        return empty
    return np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)

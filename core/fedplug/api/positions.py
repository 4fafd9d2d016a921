"""Positions of a block as they travel: a bitmap, or a list where that is shorter."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedplug.api.errors import MessageError


def pack_positions(positions: np.ndarray[Any, Any]) -> Any:
    """A bitmap where that is shorter than four bytes a position.

    Raises:
        MessageError: they are not whole numbers below 2^32, strictly ascending.
    """
    if not (isinstance(positions, np.ndarray) and positions.dtype.kind in "iu" and positions.ndim == 1):
        raise MessageError("positions must be an array of integers, one a scalar")
    if not (positions[1:] > positions[:-1]).all():
        raise MessageError("positions must be strictly ascending, as those of a plan are; sort them with their values")
    if len(positions) and not (int(positions[0]) >= 0 and int(positions[-1]) < 2**32):
        raise MessageError(f"positions {int(positions[0])} to {int(positions[-1])} must be 0 to 2^32 - 1")
    extent = int(positions[-1]) + 1 if len(positions) else 0
    if len(positions) * 4 <= extent // 8 + 16:
        return positions.astype(np.uint32)
    bitmap = np.zeros(extent, np.bool_)
    bitmap[positions] = True
    return {"bits": np.packbits(bitmap), "extent": extent}


def unpack_positions(packed: Any) -> Any:
    """Inverse of `pack_positions`; None stays None.

    Raises:
        MessageError: they are no bitmap that it gives; of a list whoever makes a block says what is wrong.
    """
    if isinstance(packed, dict):
        if not 0 <= packed["extent"] <= 8 * len(packed["bits"]):  # numpy would make room for any number
            raise MessageError(f"a bitmap of {len(packed['bits'])} bytes cannot hold {packed['extent']} positions")
        return np.flatnonzero(np.unpackbits(packed["bits"], count=packed["extent"])).astype(np.uint32)
    return packed

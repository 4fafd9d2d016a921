"""What clients encrypted in vain: values whose position too few of them encrypted, so that no sum holds it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedplug.api.rows import LeftOut

if TYPE_CHECKING:
    from fedplug.api.types import Block


def left_out(total: Block, blocks: Mapping[int, Block], position_block: int) -> LeftOut | None:
    """Compares the positions of a closed sum with those of the uploads in it.

    Args:
        total: the sum as the aggregator gave it.
        blocks: the uploads in it, by client.
        position_block: how many consecutive positions share a ciphertext; 0 where they do not lie so.

    Returns:
        None where the zone is plain, or lies in the same place at all clients: then nothing is left out.
    """
    held = total.positions
    if held is None or total.sealed_by is None:
        return None
    values = encrypted = 0
    ciphertexts: dict[int, float] = {}
    for client_id, block in blocks.items():
        if block.positions is None:
            return None
        values += int(np.count_nonzero(np.isin(block.positions, held, invert=True)))
        encrypted += block.size
        if position_block:
            theirs, kept = np.unique(block.positions // position_block), np.unique(held // position_block)
            in_vain = np.isin(theirs, kept, invert=True)
            ciphertexts[client_id] = float(in_vain.mean()) if len(in_vain) else 0.0
    return LeftOut(values, encrypted, ciphertexts, total.sealed_by)

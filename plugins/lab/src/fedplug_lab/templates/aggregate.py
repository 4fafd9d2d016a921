"""Sketch: an aggregator."""

from __future__ import annotations

import fedplug
import numpy as np
from fedplug import Block, Combine, Facts, Field, Known, Operations
from fedplug.api.errors import ProtectionError


class Thing(fedplug.Aggregator):
    """Take the mean of the middle of the clients' updates, scalar by scalar."""

    class Options(fedplug.Options):
        trim: int = Field(1, ge=0, description="how many of the largest and of the smallest values are left out")

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """How the uploads become one. It is no sum, which would be WeightedSum(), so it earns no credit."""
        if known.closed:
            raise fedplug.Misplaced(f"{self.name} compares plain values; take the encryption of zone {known.zone} out")
        return (Combine(self.middle),)

    def middle(self, blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        """Runs at the server."""
        first = next(iter(blocks.values()))
        if any(block.positions is not None or block.size != first.size for block in blocks.values()):
            raise ProtectionError(f"{self.name} needs a zone {first.zone} that lies alike at all clients")
        trim = min(self.options.trim, (len(blocks) - 1) // 2)
        ordered = np.sort(np.stack([block.plain() for block in blocks.values()]), axis=0)
        middle = ordered[trim : len(blocks) - trim].mean(axis=0)
        return first.replace(values=middle.astype(np.float32), divisor=1.0, contributors=len(blocks))

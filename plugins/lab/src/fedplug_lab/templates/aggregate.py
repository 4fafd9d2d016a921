"""Sketch: an aggregator."""

import fedplug
import numpy as np
from fedplug import Block, Combine, Facts, Known, Operations
from fedplug.api.errors import ProtectionError


class Thing(fedplug.Aggregator):
    """Take the median of the clients' updates, scalar by scalar."""

    def aggregate(self, known: Known, facts: Facts) -> Operations:
        """How the uploads become one. It is no sum, which would be WeightedSum(), so it earns no credit."""
        known.before("encryption", "sketch.thing compares plain values; take the encryption out")
        return (Combine(self.middle),)

    def middle(self, blocks: dict[int, Block], weights: dict[int, float], facts: Facts) -> Block:
        """Runs at the server."""
        first = next(iter(blocks.values()))
        if any(block.positions is not None for block in blocks.values()):
            raise ProtectionError(f"sketch.thing needs a zone {first.zone} that lies alike at all clients")
        middle = np.median([block.plain() for block in blocks.values()], axis=0).astype(np.float32)
        return first.replace(values=middle, divisor=1.0, contributors=len(blocks))

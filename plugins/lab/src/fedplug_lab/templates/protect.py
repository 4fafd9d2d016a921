"""Sketch: a protector."""

from __future__ import annotations

import fedplug
import numpy as np
from fedplug import Block, Client, Context, Effects, Field, Known, Rounding, hookimpl


class Thing(fedplug.Protector):
    """Round a zone's values to multiples of a step."""

    class Options(fedplug.Options):
        step: float = Field(0.001, gt=0, description="distance of neighbouring values, in units of the update")

    def effects(self, known: Known, ctx: Context) -> Effects:
        """What `protect` does to the values; the privacy account goes by it, so it must be true."""
        known.before("encryption", "ciphertexts cannot be rounded; put sketch.thing before it")
        return (Rounding(self.options.step),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Runs at the client, before anything is sent."""
        rounded = np.rint(block.plain() / self.options.step) * self.options.step
        return block.replace(values=rounded.astype(np.float32))

"""Sketch: a protector."""

import fedplug
from fedplug import Facts, Field, Known, Operations, Round


class Thing(fedplug.Protector):
    """Round a zone's values to multiples of a step."""

    class Options(fedplug.Options):
        step: float = Field(0.001, gt=0, description="distance of neighbouring values, in units of the update")

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The operations on the values, which the core executes and the privacy account prices."""
        known.before("encryption", "ciphertexts cannot be rounded; put sketch.thing before it")
        return (Round(self.options.step),)

"""Sketch: an opener."""

import fedplug
from fedplug import Facts, Field, Known, Operations, Scale


class Thing(fedplug.Opener):
    """Multiply the sum of a zone by a server learning rate."""

    class Options(fedplug.Options):
        rate: float = Field(0.5, gt=0, description="factor on the sum")

    site = "server"

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """The operations on the sum, at the party that `site` names."""
        return (Scale(self.options.rate),)

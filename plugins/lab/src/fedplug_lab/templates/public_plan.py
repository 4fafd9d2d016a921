"""Sketch: a plan that everybody can work out."""

import fedplug
from fedplug import Facts, Field, Plans


class Thing(fedplug.PublicPlan):
    """Encrypt the whole model in one of several rounds, and noise it in the others."""

    class Options(fedplug.Options):
        every: int = Field(2, ge=1, description="one of this many rounds is encrypted")

    plans = Plans(zones=frozenset({"encrypted", "noised"}))

    def plan(self, facts: Facts) -> str:
        """The zone of all scalars in a round; a Plan puts some of them into others."""
        return "noised" if facts.round % self.options.every else "encrypted"

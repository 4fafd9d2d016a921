"""Random rotation of an update, so that none of its scalars is much larger than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Facts, Field, Known, Operations

if TYPE_CHECKING:
    from fedplug import Recipe


class Rotate(fedplug.Protector, fedplug.Opener):
    """Rotate a zone's values at random before they are rounded and noised, and rotate the opened sum back.

    Walsh-Hadamard transforms with random signs, which every party draws from a public stream of the round (Kairouz, Liu
    & Steinke, ICML 2021; Suresh et al., ICML 2017). An update with few large scalars becomes one with many similar
    ones, so a sum needs fewer bits before it wraps, and rounding costs less. L2 norms do not change. Put it after the
    clip, and after the opening under postprocess. The zone must be in the same place at all clients.
    """

    class Options(fedplug.Options):
        """The place of the inverse rotation."""

        at: Literal["server", "clients"] = Field(
            "server", description="the party that rotates the opened sum back; clients, if they open it themselves"
        )

    options: Options

    @property
    def site(self) -> Literal["server", "client"]:
        """The place of the inverse rotation."""
        return "server" if self.options.at == "server" else "client"

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The rotation.

        Raises:
            Misplaced: there is noise already, or the values are encrypted.
        """
        known.before("noise", f"put {self.name} before the noise, which is on a grid")
        known.before("encryption", f"ciphertexts cannot be rotated; put {self.name} before the encryption")
        return (fedplug.Rotate(),)

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """Its inverse, on the sum.

        Raises:
            Misplaced: the sum is encrypted.
        """
        known.before("encryption", f"open the sum before it is rotated back; put {self.name} after the encryption")
        return (fedplug.Rotate(back=True),)

    def check(self, recipe: Recipe) -> list[str]:
        """Checks that each rotated zone is rotated back."""
        turned = [zone for zone, chain in recipe.protect.items() if any(use.name == self.name for use in chain)]
        back = [zone for zone, chain in recipe.postprocess.items() if any(use.name == self.name for use in chain)]
        return [
            f"the sum of zone {zone} is never rotated back; write postprocess: {{{zone}: [..., {self.name}]}}, after "
            "the encryption"
            for zone in turned if zone not in back
        ]  # fmt: skip

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"random rotation, undone at the {self.site}"

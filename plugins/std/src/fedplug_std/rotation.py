"""Random rotation of an update, so that none of its scalars is much larger than the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import fedplug
from fedplug import Context, Field, Known, Operations, hookimpl

if TYPE_CHECKING:
    from fedplug import Recipe


class Rotate(fedplug.Protector, fedplug.Opener):
    """Turn a zone's values at random before they are rounded and noised, and turn the opened sum back.

    Walsh-Hadamard transforms with random signs, which every party draws from a public stream of the round (Kairouz, Liu
    & Steinke, ICML 2021; Suresh et al., ICML 2017). An update of few large scalars becomes one of many alike, so that a
    sum needs fewer bits before it wraps, and rounding costs less. L2 norms stay. Put it behind the clip, and behind the
    opening under postprocess; the zone must lie in the same place at all clients.
    """

    class Options(fedplug.Options):
        """Where the sum is turned back."""

        at: Literal["server", "clients"] = Field(
            "server", description="who turns the opened sum back; clients, where they open it themselves"
        )

    name: str

    def __init__(self, options: Options) -> None:
        self.options: Rotate.Options = options

    @property
    def site(self) -> Literal["server", "client"]:
        """Where the sum is turned back."""
        return "server" if self.options.at == "server" else "client"

    @hookimpl
    def protect(self, known: Known, ctx: Context) -> Operations:
        """The rotation.

        Raises:
            Misplaced: there is noise already, or the values are encrypted.
        """
        known.before("noise", f"put {self.name} before the noise, which lies on a grid")
        known.before("encryption", f"ciphertexts cannot be turned; put {self.name} before the encryption")
        return (fedplug.Rotate(),)

    @hookimpl
    def postprocess(self, known: Known, ctx: Context) -> Operations:
        """Its inverse, on the sum.

        Raises:
            Misplaced: the sum is encrypted.
        """
        known.before("encryption", f"open the sum before it is turned back; put {self.name} after the encryption")
        return (fedplug.Rotate(back=True),)

    def check(self, recipe: Recipe) -> list[str]:
        """Whether each zone that is turned is turned back."""
        turned = [zone for zone, chain in recipe.protect.items() if any(use.name == self.name for use in chain)]
        back = [zone for zone, chain in recipe.postprocess.items() if any(use.name == self.name for use in chain)]
        return [
            f"the sum of zone {zone} is never turned back; write postprocess: {{{zone}: [..., {self.name}]}}, behind "
            "the encryption"
            for zone in turned if zone not in back
        ]  # fmt: skip

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"random rotation, turned back at the {self.site}"

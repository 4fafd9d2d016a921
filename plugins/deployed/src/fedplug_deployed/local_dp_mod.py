"""Flower's client mod `LocalDpMod`: a clip, and Gaussian noise of a size that the clip does not enter.

Source: flwr 1.42.0, flwr/clientapp/mod/localdp_mod.py and flwr/supercore/differential_privacy.py. The formula of the
noise: Dwork and Roth, "The Algorithmic Foundations of Differential Privacy" (2014), Theorem A.1, for epsilon < 1.
"""

from __future__ import annotations

import math

import fedplug
from fedplug import Facts, Field, Known, Noise, Operations
from fedplug_std.options import Positive, Source

from fedplug_deployed.clips import NO_CIPHERTEXTS, flat_clip


class LocalDpMod(fedplug.Protector):
    """Clip an update and add Gaussian noise, at the client, as Flower's `LocalDpMod` does.

    As flwr 1.42.0 does it: a clip to `clipping_norm`, bit for bit, then noise of the standard deviation
    sensitivity * sqrt(2 ln(1.25 / delta)) / epsilon. The formula is proved for epsilon below 1, and for one release.
    Flower calls epsilon the privacy budget, whatever the number of rounds, and nothing ties `sensitivity` to the clip:
    a client's update moves by up to `clipping_norm`, so a smaller sensitivity gives less noise than the formula asks
    for. The ledger states what the noise over the clip costs in all rounds.

    For instance a clip to 1, sensitivity 1e-4, epsilon 10 and delta 1e-5 give a noise multiplier of 4.845e-5, and cost
    an epsilon above 10^9 in five rounds. Use `std.gaussian` with epsilon and delta instead.

    Flower draws noise from numpy's Mersenne Twister in float64. Here it comes from the core, on a grid that float32
    holds. Flower adds it to the model that it sends, here it is added to the difference, and Flower also noises running
    statistics of batch norm, which are no parameters here (`buffers`).
    """

    class Options(fedplug.Options):
        """The arguments of Flower's mod, under its names."""

        clipping_norm: Positive = Field(description="L2 norm to which the update is clipped")
        sensitivity: float = Field(
            ge=0, allow_inf_nan=False, description="what the noise is scaled to, in units of the update; 0: no noise"
        )
        epsilon: Positive = Field(description="what Flower calls the privacy budget, for one release")
        delta: float = Field(gt=0, lt=1, description="failure probability of that claim")
        source: Source = "secure"

        @property
        def std(self) -> float:
            """Standard deviation of the noise, in units of the update."""
            return self.sensitivity * math.sqrt(2 * math.log(1.25 / self.delta)) / self.epsilon

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """The clip, and noise that does not follow from it.

        Raises:
            Misplaced: there is noise already, or the values are encrypted.
        """
        known.before("noise", "this zone has noise already; keep one noise component in the chain")
        known.before("encryption", NO_CIPHERTEXTS.format(name=self.name))
        options = self.options
        note = f"Flower claims epsilon {options.epsilon:g} at delta {options.delta:g} for a round"
        if options.epsilon >= 1:
            note += ", by a formula that holds below epsilon 1"
        if options.sensitivity < options.clipping_norm:
            note += f"; its noise is for a sensitivity of {options.sensitivity:g}, and the clip leaves a norm of "
            note += f"{options.clipping_norm:g}"
        noise = Noise.gaussian(options.std, source=options.source, as_published=True, note=note)
        return (*flat_clip(options.clipping_norm), noise)

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        made = f"clip to L2 norm {options.clipping_norm:g}, Gaussian noise of std {options.std:.4g} at the client"
        return f"{made}; Flower claims epsilon {options.epsilon:g}, delta {options.delta:g} for a round"

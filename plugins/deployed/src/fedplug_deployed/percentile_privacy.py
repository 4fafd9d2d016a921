"""NVFlare's filter `PercentilePrivacy`: the largest values of an update, cut off at a magnitude.

Source: NVIDIA/NVFlare 2.9.0, nvflare/app_common/filters/percentile_privacy.py, after the "largest percentile to share"
of Shokri and Shmatikov, "Privacy-Preserving Deep Learning" (CCS 2015).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import fedplug
import numpy as np
from fedplug import Facts, Field, Known, Operations, Post
from fedplug_std.options import Positive

from fedplug_deployed.tensors import Of, filtering

if TYPE_CHECKING:
    from fedplug import Public
    from numpy.typing import NDArray


class PercentilePrivacy(fedplug.Protector):
    """Send the largest values of an update, cut off at a magnitude (NVFlare's `PercentilePrivacy`): no guarantee.

    As NVFlare 2.9.0 does it, bit for bit: values are divided by the number of local steps, those of a magnitude below
    the percentile become 0, the rest is cut off at -gamma and gamma, and all are multiplied by the steps again.

    NVFlare calls this a privacy preserving policy, and jobs that use it are labelled differential privacy. It adds no
    noise, so it gives no guarantee toward anybody, whatever percentile and gamma are: an update determines what is
    sent. With the defaults `attacks.exact_batch` gave 24 of 24 images back, from three batches of 8
    (`recipes/deployed/percentile-privacy.yaml`). For a guarantee use `std.clip` and `std.gaussian`.

    NVFlare takes the percentile over all entries of the model, running statistics of batch norm among them, and passes
    entries that are one number alone. Here it is over the parameters of the zone.
    """

    class Options(fedplug.Options):
        """As NVFlare's arguments."""

        percentile: float = Field(10, ge=0, le=100, description="magnitudes below this percentile become 0")
        gamma: Positive = Field(
            0.01, description="largest magnitude that is sent, per local step, in units of the update"
        )
        steps: int = Field(
            1, ge=1, description="local steps by which values are divided: NVFlare's NUM_STEPS_CURRENT_ROUND, which is "
            "1 where the client's code does not send it",
        )  # fmt: skip

        of: Of = "update"

    options: Options

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A function of the values alone, which bounds nothing and hides nothing.

        Raises:
            Misplaced: the values are encrypted.
        """
        known.before("encryption", f"it compares plain values; put {self.name} before the encryption")
        return filtering(self.options.of, Post(self.shared))

    def shared(self, values: NDArray[np.float32], public: Public) -> NDArray[np.float32]:
        """What is sent, float32 (n,)."""
        options = self.options
        return largest(values, options.percentile, options.gamma, options.steps)

    def describe(self) -> str:
        """One line for the plan of the run."""
        options = self.options
        kept = f"magnitudes from percentile {options.percentile:g} on, cut off at {options.gamma * options.steps:g}"
        return f"{kept}; NVFlare calls it privacy: it adds no noise, so no guarantee follows"


def largest(values: NDArray[np.float32], percentile: float, gamma: float, steps: int) -> NDArray[np.float32]:
    """Values of at least the percentile of all magnitudes, cut off at gamma a step; the others as 0, (n,)."""
    if not len(values):
        return values
    diff = values / np.float32(steps)
    cutoff = np.percentile(np.abs(diff), percentile)
    diff[(diff > -cutoff) & (diff < cutoff)] = 0.0
    sent: NDArray[np.float32] = np.clip(diff, np.float32(-gamma), np.float32(gamma)) * np.float32(steps)
    return sent

"""Clipping: bounds one client's contribution to a zone, which sets the scale of noise.

`Clip` bounds the L2 norm, for Gaussian noise; `ClipL1` the L1 norm, for Laplace noise.
"""

from __future__ import annotations

import math

import fedplug
from fedplug import Facts, Field, Known, Operations


class Clip(fedplug.Protector):
    """Scale a zone's values down to a given L2 norm if they exceed it.

    values * min(1, norm / ||values||_2), over the whole zone of one client (McMahan et al. 2018, flat clipping;
    ParaAegis eq. 1). Values within the bound pass unchanged, bit for bit. Noise in a later link of the chain is scaled
    to this norm, so the guarantee covers the client as a whole, and thus each of its records.
    """

    class Options(fedplug.Options):
        """Options of `std.clip`."""

        norm: float = Field(
            gt=0, allow_inf_nan=True,
            description="largest L2 norm of one client's values in this zone, in units of the "
            "update; .inf clips nothing",
        )

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip; none for an infinite norm, which scales nothing and bounds nothing.

        Raises:
            Misplaced: the values are encrypted.
        """
        known.before("encryption", f"ciphertexts cannot be clipped; put {self.name} before the encryption")
        return () if math.isinf(self.options.norm) else (fedplug.Clip(self.options.norm),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"clip to L2 norm {self.options.norm:g}"


class ClipL1(fedplug.Protector):
    """Scale a zone's values down to a given L1 norm if they exceed it.

    values * min(1, norm / ||values||_1), over the whole zone of one client. This is the sensitivity of the Laplace
    mechanism (Dwork et al. 2006). An update of P scalars of similar size has an L1 norm sqrt(P) times its L2 norm, so a
    bound that is moderate for `std.clip` is tight here. Values within the bound pass unchanged, bit for bit.
    """

    class Options(fedplug.Options):
        """Options of `std.clip_l1`."""

        norm: float = Field(
            gt=0, allow_inf_nan=True,
            description="largest L1 norm (sum of magnitudes) of one client's values in this zone, in units of the "
            "update; .inf clips nothing",
        )

    def protect(self, known: Known, facts: Facts) -> Operations:
        """A clip; none for an infinite norm, which scales nothing and bounds nothing.

        Raises:
            Misplaced: the values are encrypted.
        """
        known.before("encryption", f"ciphertexts cannot be clipped; put {self.name} before the encryption")
        return () if math.isinf(self.options.norm) else (fedplug.Clip(self.options.norm, order=1),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"clip to L1 norm {self.options.norm:g}"

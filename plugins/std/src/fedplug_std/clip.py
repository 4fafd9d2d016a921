"""Clipping: bounds what one client can contribute to a zone, which is what noise is scaled to.

`Clip` bounds the L2 norm, for Gaussian noise; `ClipL1` the L1 norm, for Laplace noise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import fedplug
import numpy as np
from fedplug import Block, Bound, Client, Context, Effects, Field, Known, hookimpl
from fedplug.api.errors import ProtectionError

if TYPE_CHECKING:
    from numpy.typing import NDArray


class _Clip(fedplug.Protector):
    """Both clips: a norm, the bound that it promises, and where it may stand."""

    order: float

    def __init__(self, options: Any) -> None:
        self.options = options

    def effects(self, known: Known, ctx: Context) -> Effects:
        """The values are at most `norm` long behind it; before noise and encryption."""
        known.before("noise", f"a clip after the noise protects nobody and costs accuracy; put {self.name} before it")
        known.before("encryption", f"ciphertexts cannot be clipped; put {self.name} before the encryption")
        # An infinite norm scales nothing and promises nothing.
        return () if math.isinf(self.options.norm) else (Bound(self.options.norm, order=self.order),)

    def shrunk(self, block: Block, norm: float, client: Client) -> NDArray[np.float32]:
        """The block's values, of that norm, scaled down to the limit if they exceed it; logs whether they do.

        Args:
            block: plain.
            norm: of its values, in float64, because float32 squares overflow from 2e19 on.
            client: in whose metrics it is logged.

        Raises:
            ProtectionError: the norm is NaN or infinite, which no scaling can bound.
        """
        values, limit = block.plain(), self.options.norm
        if not math.isfinite(norm):
            raise ProtectionError(
                f"client {client.client_id}: the update of zone {block.zone} holds "
                f"{int(np.count_nonzero(~np.isfinite(values)))} NaN or infinite values, which cannot be clipped; "
                "its training diverged: lower lr in train"
            )
        client.log[f"{self.name}.clipped"] = float(norm > limit)
        if norm <= limit:
            return values
        # In float64, where the scale cannot become denormal; and one part in 2^23 less, twice what rounding a value
        # to float32 can add, so that the rounded values do not exceed the bound either.
        return (values * np.float64(limit / norm * (1 - 2.0**-23))).astype(np.float32)


class Clip(_Clip):
    """Scale a zone's values down to a given L2 norm where they exceed it.

    values * min(1, norm / ||values||_2), over the whole zone of one client (McMahan et al. 2018, flat clipping;
    ParaAegis eq. 1). Values within the bound pass unchanged, bit for bit. Noise in a later link of the chain is scaled
    to this norm, and so the guarantee is for the client as a whole, which implies the same for each of its records.
    """

    class Options(fedplug.Options):
        """Options of `std.clip`."""

        norm: float = Field(
            gt=0,
            description="largest L2 norm of one client's values in this zone, in units of the "
            "update; .inf clips nothing",
        )

    order = 2

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Clips the block.

        Raises:
            ProtectionError: the update holds NaN or infinity, which no scaling can bound.
        """
        # Not by BLAS, whose threads cost more than they save at this size when several processes share the cores.
        norm = math.sqrt(float(np.square(block.plain(), dtype=np.float64).sum()))
        return block.replace(values=self.shrunk(block, norm, client))

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"clip to L2 norm {self.options.norm:g}"


class ClipL1(_Clip):
    """Scale a zone's values down to a given L1 norm where they exceed it.

    values * min(1, norm / ||values||_1), over the whole zone of one client. This is the sensitivity of the Laplace
    mechanism (Dwork et al. 2006). An update of P scalars of like size has an L1 norm sqrt(P) times its L2 norm, so a
    bound that is moderate for `std.clip` is tight here. Values within the bound pass unchanged, bit for bit.
    """

    class Options(fedplug.Options):
        """Options of `std.clip_l1`."""

        norm: float = Field(
            gt=0,
            description="largest L1 norm (sum of magnitudes) of one client's values in this zone, in units of the "
            "update; .inf clips nothing",
        )

    order = 1

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """Clips the block.

        Raises:
            ProtectionError: the update holds NaN or infinity, which no scaling can bound.
        """
        norm = float(np.abs(block.plain()).sum(dtype=np.float64))
        return block.replace(values=self.shrunk(block, norm, client))

    def describe(self) -> str:
        """One line for the plan of the run."""
        return f"clip to L1 norm {self.options.norm:g}"

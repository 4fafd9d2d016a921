"""SelectiveShield's personal models: the global model, with a client's own values where it kept them (eq. 27)."""

from __future__ import annotations

import fedplug
import numpy as np
from fedplug import Block, Client, Context, Effects, Known, hookimpl
from fedplug.api.errors import ProtectionError


class Merge(fedplug.Opener):
    """Train on from the global model with this client's own values where it retained them (SelectiveShield, eq. 27).

    theta_n = M_pers * theta_n,local + (1 - M_pers) * theta_global (Alg. 1, line 23). A client that is left out of a
    round keeps the values that it retained in its last one.
    """

    class Options(fedplug.Options):
        """No options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @hookimpl
    def postprocess(self, block: Block, ctx: Context) -> Block:
        """Sets `client.personal` from the new global model and the retained values, which the block holds.

        Raises:
            ProtectionError: it runs elsewhere than at a client, or the block says not where its values belong.
        """
        client = ctx.party
        if not isinstance(client, Client) or block.positions is None:
            raise ProtectionError(f"{self.name} merges at a client, under postprocess: {{retained: [{self.name}]}}")
        personal = client.vector.copy()
        personal[block.positions.astype(np.int64)] = block.plain()
        client.personal = personal
        return block

    def opens(self, known: Known, ctx: Context) -> Effects:
        """The block stays as it is."""
        return ()

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "each client trains on with its own values where it retained them"

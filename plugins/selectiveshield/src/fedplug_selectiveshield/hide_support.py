"""Uploads that do not show which scalars a client keeps to itself: pure noise in their place."""

from __future__ import annotations

import fedplug
import numpy as np
from fedplug import Block, Client, Context, CoversSupport, Effects, Known, hookimpl
from fedplug.api.errors import ProtectionError
from fedplug.api.types import RETAINED


class HideSupport(fedplug.Protector):
    """Send zeros, which later get noise, where a client keeps its own values; positions then look alike everywhere.

    Without it the positions of an upload leave out those that the client retains (SelectiveShield, eq. 17), and show
    them so. With it every client sends every position that is not encrypted, and every sum is divided by the number of
    all clients: where clients retain, the mean shrinks accordingly. It stands before the noise; whether before or after
    the clip makes no difference, since zeros have no norm.

    The server of `selectiveshield.consensus` sees each client's mask in the negotiation, and so what it retains; this
    hides it from whoever sees uploads only, and under negotiations that keep masks secret.
    """

    class Options(fedplug.Options):
        """No options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def effects(self, known: Known, ctx: Context) -> Effects:
        """Zeros, which lengthen no norm; the check of a recipe asks for noise over them, later in the chain.

        Raises:
            Misplaced: there is noise already, or the values are encrypted.
        """
        known.before("noise", f"zeros that get no noise show what they stand for; put {self.name} before the noise")
        known.before("encryption", f"ciphertexts cannot be widened; put {self.name} before the encryption")
        return (CoversSupport(),)

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """The block with zeros at the positions that the client's plan retains.

        Raises:
            ProtectionError: the client has no plan.
        """
        plan = client.plan
        if plan is None:
            raise ProtectionError(f"client {client.client_id} has no plan; the negotiation must set client.plan")
        values = np.zeros(plan.labels.size, np.float32)
        values[plan.positions(block.zone) if block.positions is None else block.positions] = block.plain()
        sent = np.isin(plan.labels, [plan.zones.index(block.zone), plan.zones.index(RETAINED)])
        positions = np.flatnonzero(sent).astype(np.uint32)
        return block.replace(size=len(positions), values=values[positions], positions=positions)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "zeros, which get noise, where a client retains its own values"

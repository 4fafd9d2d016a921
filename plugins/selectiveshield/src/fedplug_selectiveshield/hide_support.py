"""Uploads that do not show which scalars a client keeps to itself: pure noise in their place."""

from __future__ import annotations

from typing import Any, ClassVar

import fedplug
import numpy as np
from fedplug import Block, Client, Context, hookimpl
from fedplug.errors import ProtectionError
from fedplug.types import RETAINED


class HideSupport(fedplug.Protector):
    """Send zeros, which later get noise, where a client keeps its own values; positions then look alike everywhere.

    Without it the positions of an upload leave out those that the client retains (SelectiveShield, eq. 17), and show
    them so. With it every client sends every position that is not encrypted, and every sum is divided by the number of
    all clients: where clients retain, the mean shrinks accordingly. It stands before the noise; whether before or after
    the clip makes no difference, since zeros have no norm.

    The server of `selectiveshield.consensus` sees each client's mask in the negotiation, and so what it retains; this
    hides it from whoever sees uploads only, and under negotiations that keep masks secret.
    """

    name: str
    hides_support = True
    forbids_before: ClassVar[dict[str, str]] = {
        "noise": "zeros that get no noise show what they stand for; put selectiveshield.hide_support before the noise",
        "encryption": "ciphertexts cannot be widened; put selectiveshield.hide_support before the encryption",
    }

    class Options(fedplug.Options):
        """No options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def check(self, recipe: Any) -> list[str]:
        """The zeros get noise later in the chain."""
        complaints = []
        for zone, chain in recipe.protect.items():
            names = [use.name for use in chain]
            if self.name not in names:
                continue
            later = chain[names.index(self.name) + 1 :]
            if not any(_noise_of(use.options) for use in later):
                complaints.append(
                    f"zone {zone} gets no noise, so the zeros would show what a client retains; put noise after "
                    f"{self.name}, for instance {{use: selectiveshield.noise, epsilon: 8, delta: 1.0e-5}}"
                )
        return complaints

    @hookimpl
    def protect(self, block: Block, client: Client, ctx: Context) -> Block:
        """The block with zeros at the positions that the client's plan retains; the L2 bound stays.

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


def _noise_of(options: Any) -> float:
    """An epsilon or a noise multiplier above 0, or 0 where a component adds no noise."""
    return getattr(options, "epsilon", None) or getattr(options, "noise_multiplier", None) or 0.0

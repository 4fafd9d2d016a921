"""Hides in uploads which scalars a client retains: it sends pure noise in their place."""

from __future__ import annotations

import fedplug
from fedplug import Facts, Known, Operations, Widen


class HideSupport(fedplug.Protector):
    """Send zeros, which later get noise, for the values that a client retains. All uploads then have equal positions.

    Without it the positions of an upload leave out those that the client retains (SelectiveShield, eq. 17), and so
    reveal them. With it every client sends every position that is not encrypted, and every sum is divided by the number
    of all clients. Where clients retain values, the mean shrinks accordingly. The component must come before the noise.
    It can come before or after the clip, since zeros have no norm.

    The server of `selectiveshield.consensus` sees each client's mask in the negotiation, and so the retained positions.
    The component hides them from parties that see only uploads, and under negotiations that keep masks secret.
    """

    def protect(self, known: Known, facts: Facts) -> Operations:
        """Zeros, which lengthen no norm.

        Raises:
            Misplaced: there is noise already.
        """
        known.before("noise", f"zeros without noise show which values they replace; put {self.name} before the noise")
        return (Widen(),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "zeros, which get noise, where a client retains its own values"

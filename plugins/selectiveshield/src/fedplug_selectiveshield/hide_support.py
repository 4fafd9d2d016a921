"""Uploads that do not show which scalars a client keeps to itself: pure noise in their place."""

from __future__ import annotations

import fedplug
from fedplug import Context, Known, Operations, Widen, hookimpl


class HideSupport(fedplug.Protector):
    """Send zeros, which later get noise, where a client keeps its own values; positions then look alike everywhere.

    Without it the positions of an upload leave out those that the client retains (SelectiveShield, eq. 17), and show
    them so. With it every client sends every position that is not encrypted, and every sum is divided by the number of
    all clients: where clients retain, the mean shrinks accordingly. It comes before the noise; whether before or after
    the clip makes no difference, since zeros have no norm.

    The server of `selectiveshield.consensus` sees each client's mask in the negotiation, and so what it retains; this
    hides it from whoever sees uploads only, and under negotiations that keep masks secret.
    """

    class Options(fedplug.Options):
        """No options."""

    def __init__(self, options: Options) -> None:
        self.options = options

    @hookimpl
    def protect(self, known: Known, ctx: Context) -> Operations:
        """Zeros, which lengthen no norm.

        Raises:
            Misplaced: there is noise already.
        """
        known.before("noise", f"zeros that get no noise show what they stand for; put {self.name} before the noise")
        return (Widen(),)

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "zeros, which get noise, where a client retains its own values"

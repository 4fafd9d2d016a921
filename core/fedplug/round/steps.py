"""What the protocol itself asks of a client and of the key server; the rest is in the recipe's components."""

from __future__ import annotations

from fedplug.round.adopting import Adopting
from fedplug.round.joining import Joining
from fedplug.round.opening import Opening
from fedplug.round.protecting import Protecting
from fedplug.round.training import Training


class Steps(Joining, Training, Protecting, Adopting, Opening):
    """All that the protocol itself runs at the clients and at the key server, in the order of the modules that say it.

    Joining before round 1; training, protecting and adopting in every round at the clients; opening at the key server.
    """

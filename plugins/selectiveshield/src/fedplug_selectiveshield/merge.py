"""SelectiveShield's personal models: the global model, with a client's own values where it retained them (eq. 27)."""

from __future__ import annotations

from typing import cast

import fedplug
from fedplug import Block, Client, Facts, Known, Map, Misplaced, Operations, Party
from fedplug.api.blocks import RETAINED


class Merge(fedplug.Opener):
    """Continue from the global model with this client's own values where it retained them (SelectiveShield, eq. 27).

    theta_n = M_pers * theta_n,local + (1 - M_pers) * theta_global (Alg. 1, line 23). A client that is left out of a
    round keeps the values that it retained in its last one.
    """

    def postprocess(self, known: Known, facts: Facts) -> Operations:
        """The client continues with its personal model. The values stay as they are.

        Raises:
            Misplaced: the zone is not that of the retained values.
        """
        if known.zone != RETAINED:
            raise Misplaced(
                f"{self.name} merges what a client retained, and not zone {known.zone}; write postprocess: "
                f"{{retained: [{self.name}]}}"
            )
        return (Map(self.merge),)

    def merge(self, block: Block, party: Party, facts: Facts) -> Block:
        """Sets `client.personal` from the new global model and the retained values, which the block holds."""
        cast("Client", party).put_back(block.positions, block.plain())
        return block

    def describe(self) -> str:
        """One line for the plan of the run."""
        return "each client trains on with its own values where it retained them"

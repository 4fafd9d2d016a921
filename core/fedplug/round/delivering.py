"""What a round gives: each group's sums, opened as far as the server may, and told to its clients, who adopt them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug.round.buffers import mean_of_buffers
from fedplug.round.steps import Steps

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.api.types import Block
    from fedplug.round.arrivals import Arrivals
    from fedplug.round.server_model import ServerModel
    from fedplug.round.sums import Sums
    from fedplug.wire.cohort import Cohort
    from fedplug.wire.server_clock import ServerClock


class Delivery:
    """Hands out what the clients of a round sent together.

    Args:
        sums: opens them.
        server_model: moves with what the server can read of them.
    """

    def __init__(self, sums: Sums, server_model: ServerModel) -> None:
        self.sums, self.server_model = sums, server_model
        self.recipe, self.composition = sums.recipe, sums.composition

    def of(
        self, cohort: Cohort, asked: list[int], arrivals: Arrivals, sums: dict[str, dict[str, Block]], ctx: Context,
        clock: ServerClock,
    ) -> tuple[dict[str, int], bool]:  # fmt: skip
        """Opens each group's sums and has its clients adopt them.

        Returns:
            For each zone that was opened, the fewest clients behind any value; whether something beside the values
            shows who took part.
        """
        server, arrived = arrivals.server, arrivals.arrived
        weights = server.remembered.weights
        contributors: dict[str, int] = {}
        # Groups, positions, batch-norm statistics, and plans that follow from data or from who takes part: all of them
        # show who takes part, whatever noise the values have.
        shares_buffers = self.recipe.buffers == "mean"
        exposed = shares_buffers or not self.composition.negotiation.plans.public
        for group, part in ((group, cohort.group(group)) for group in sums):
            replies = {client_id: arrived[client_id] for client_id in part.client_ids if client_id in arrived}
            if len(replies) < self.recipe.min_clients:
                if set(part.groups[group]) & set(asked):
                    self.sums.skip(f"the sum of group {group}", f"{len(replies)} clients sent an update")
                continue
            server.cohort = part.only(sorted(replies))
            self.server_model.show(group)
            senders = {zone: [c for c, upload in replies.items() if zone in upload.sizes] for zone in sums[group]}
            # Nothing was sent: each client has kept all of its update, and makes its own model of that.
            kept = not sums[group]
            opened = self.sums.open(group, sums[group], senders, weights, ctx, clock, contributors)
            self.server_model.move(group, opened)
            exposed |= len(cohort.groups) > 1 or any(block.positions is not None for block in opened.values())
            if opened or kept:
                buffers = None
                if shares_buffers:
                    theirs = {c: upload.buffers for c, upload in replies.items() if upload.buffers is not None}
                    buffers = mean_of_buffers(theirs, weights)
                # A client that opens a sum with its own key remembers whose uploads are in it.
                sealed = {zone for zone, block in opened.items() if block.sealed_by not in (None, Steps.name)}
                behind = {zone: senders[zone] for zone in sorted(sealed)}
                part.tell(self.sums.steps.adopt, opened, buffers, group, behind)
        # What a component does with answers of those who take part may follow from who they are.
        exposed |= bool(self.sums.office.answered() & self.composition.components.keys())
        # Who was in the round decides, too, whether enough of them helped to open a sum.
        return contributors, exposed or self.sums.skips.last == ctx.round

"""Protecting at a client: the update is cut into the zones of its plan, and each zone passes its links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedplug.api.component import at_client
from fedplug.api.errors import ProtectionError
from fedplug.api.folded import foretold, seal_of
from fedplug.api.types import CLEAR, RETAINED, Block
from fedplug.mechanisms.execution import execute
from fedplug.round import borders
from fedplug.round.base import PartySteps
from fedplug.round.uploads import Upload

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.api.links import Step
    from fedplug.api.types import Plan
    from fedplug.round.hosted import HostedClient


class Protecting(PartySteps):
    """What a client does when it is asked for its protected update."""

    @at_client
    def protect(self, client: HostedClient) -> dict[str, Any]:
        """Cuts the update into the plan's zones and protects each; what comes out is what the server sees.

        Once a round: from many uploads of one update the noise could be averaged away.

        Raises:
            ProtectionError: there is no update or no plan of this round, or it was asked for before.
        """
        memory, round = client.remembered, client.ctx.round
        if memory.protected >= round:
            raise ProtectionError(
                f"client {client.client_id} has protected its update of round {round + 1} already; a second upload "
                "would carry other noise over the same values"
            )
        if client.update is None or memory.trained != round:
            raise ProtectionError(
                f"client {client.client_id} has not trained in round {client.ctx.round + 1}: its process was started "
                "again in the middle of it"
            )
        negotiation = self.composition.negotiation
        if client.plan is None:
            raise ProtectionError(
                f"component {negotiation.name}, hook negotiate_mask: client {client.client_id} has no plan in round "
                f"{client.ctx.round + 1}; a negotiation sets client.plan at every client, in a method marked "
                "@at_client that it asks or tells the cohort to run"
            )
        memory.protected = round
        if problem := borders.plan_problem(client.plan, client.ctx.layout, client.ctx.zones, negotiation.plans):
            raise ProtectionError(f"component {negotiation.name}, hook negotiate_mask: {problem}")
        plan = client.plan = self._in_blocks(client.plan, client.ctx)
        blocks, sizes, stated = {}, plan.sizes(), {}
        records = bool(self.composition.keepers)
        if self.recipe.postprocess.get(RETAINED):
            where = plan.positions(RETAINED)
            memory.retained = Block(RETAINED, len(where), client.local[where], where)
        with client.timed("protect"):
            for zone, size in sizes.items():
                if zone == RETAINED or not size:
                    continue
                steps = client.ctx.steps(zone)
                gathered = zone in plan.shared and not self._shows_positions(steps)
                positions = None if gathered else plan.positions(zone)
                if size != plan.labels.size:
                    values = client.update.take(plan.positions(zone), mode="clip")  # none lies beyond
                else:
                    values = client.update
                block = Block(zone, size, values, positions, divisor=client.weight)
                for step in steps:
                    if step.link.hook == "protect":
                        block = execute(step, block, client, client.ctx, records=records)
                blocks[zone], stated[zone] = block, foretold(steps)
        upload = Upload(blocks, stated, memory.buffers if self.recipe.buffers == "mean" else None)
        client.reports.zones = {zone: size / plan.labels.size for zone, size in sizes.items()}
        if (before := client.previous_plan) is not None:
            moved = 0 if before is plan else np.count_nonzero(plan.labels != before.labels)
            client.reports.churn = moved / plan.labels.size
        client.reports.log = dict(client.log)
        client.log.clear()
        client.update = None
        return upload.to_plain()

    def _in_blocks(self, plan: Plan, ctx: Context) -> Plan:
        """Zones that are encrypted in blocks of global positions take in the clear scalars of the blocks they touch."""
        for zone in self.composition.links:
            if zone == CLEAR or {zone, CLEAR} & plan.shared:
                continue
            sealed = seal_of(ctx.steps(zone))
            if sealed and sealed[1].position_block:
                plan = plan.widened(zone, sealed[1].position_block)
        return plan

    def _shows_positions(self, steps: Sequence[Step]) -> bool:
        """Whether the aggregator must know where the values of a zone that is not encrypted belong."""
        return self.composition.aggregator.wants.positions and seal_of(steps) is None

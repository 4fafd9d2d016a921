"""The server's sums, when all uploads are in them: each is opened as far as the server may, and made a mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug.api.blocks import fewest_in, share_divisors
from fedplug.api.errors import ClientError, OpenedBefore, PluginError, ProtectionError, Refusal, TooFewClients
from fedplug.api.events import SumWithheld, ZoneOpened
from fedplug.api.folded import seal_of
from fedplug.api.types import Block
from fedplug.mechanisms.execution import execute
from fedplug.recipe.composition import amplified
from fedplug.round import borders

if TYPE_CHECKING:
    from fedplug.api.context import Context
    from fedplug.api.events import Events
    from fedplug.recipe.composition import Composition
    from fedplug.recipe.recipe import Recipe
    from fedplug.round.skipping import Skips
    from fedplug.round.steps import Steps
    from fedplug.wire.key_server_line import KeyServerLine
    from fedplug.wire.post_office import PostOffice
    from fedplug.wire.server_clock import ServerClock


class Sums:
    """Opens what `Arrivals` has added up.

    Args:
        recipe, composition: the server's own.
        steps: what the key server is asked.
        office: says which round it is.
        key_server: the line to the key server.
        events: told of sums that are opened, left out or withheld.
        skips: counts rounds in which too few clients answer to open a sum.
    """

    def __init__(
        self,
        recipe: Recipe,
        composition: Composition,
        steps: Steps,
        office: PostOffice,
        key_server: KeyServerLine,
        events: Events,
        skips: Skips,
    ) -> None:
        self.recipe, self.composition, self.steps = recipe, composition, steps
        self.office, self.key_server, self.events, self.skips = office, key_server, events, skips

    def skip(self, what: str, why: str) -> None:
        """Says that something is left out of this round, which goes on without it."""
        least = self.recipe.min_clients
        self.events.note(f"round {self.office.round + 1}: {what} is skipped: {why}; min_clients is {least}")

    def _close(self, zone: str, why: Exception) -> None:
        """Says that a zone's sum was not opened, and whether one was in an earlier attempt at the round.

        Raises:
            ProtectionError: there were too many such rounds in a row.
        """
        self.events.note(f"round {self.office.round + 1}: zone {zone} is skipped: {why}")
        if isinstance(why, OpenedBefore):
            self.events.tell(SumWithheld(self.office.round, zone))
        elif not isinstance(why, TooFewClients):  # which are counted by themselves
            self.skips.closed(zone, self.office.round, str(why))

    def open(
        self,
        group: str,
        sums: dict[str, Block],
        senders: dict[str, list[int]],
        weights: dict[int, float],
        ctx: Context,
        clock: ServerClock,
        contributors: dict[str, int],
    ) -> dict[str, Block]:
        """Runs the postprocess links of the server and the key server on a group's sums; clients run the others.

        Sums are taken out of `sums`; those that must not be opened, or do not open, are left out. `contributors` learns
        the fewest behind any value of the others. Where clients encrypt positions that others send plain, the parts
        meet at the key server.
        """
        ready: dict[str, Block] = {}
        # Plain sums first: what is opened at the key server takes them along.
        for zone in sorted(sums, key=lambda zone: sums[zone].sealed_by is not None):
            block = sums.pop(zone)  # ciphertexts are large, and not needed once they are open
            plain = [z for z, other in ready.items() if other.positions is not None and other.values is not None]
            plain = plain if block.positions is not None else []
            fewest = fewest_in(block)
            if block.values is not None:
                block = self._constant(block, weights, ctx)
            found = self._open_zone(group, block, senders[zone], [ready[z] for z in plain], ctx, clock)
            del block
            if found is None:
                continue
            contributors[zone] = min(contributors.get(zone, fewest), fewest)
            ready[zone], met = found
            for other in plain if met else []:
                del ready[other]
        for zone, block in list(share_divisors(ready).items()):
            ready[zone] = block = self._constant(block, weights, ctx)
            if block.values is not None:
                mean = block.mean()
                last = [step for step in ctx.steps(zone) if step.link.hook != "protect" and step.link.site != "client"]
                if problem := borders.mean_problem(mean, zone, last[-1] if last else None):
                    self._close(zone, ProtectionError(problem))
                    del ready[zone]
                    continue
                ready[zone] = block.replace(values=mean, divisor=1.0)
            self.events.tell(ZoneOpened(ctx.round, group, ready[zone]))
        return ready

    def _constant(self, block: Block, weights: dict[int, float], ctx: Context) -> Block:
        """A sum of sampled clients that shows no link, and nobody else, how many took part.

        The weight of those who did would show who they are, and so would their number: the sum is divided by what their
        weight is on average (McMahan et al. 2018, the estimator f_f).
        """
        if block.zone not in amplified(self.recipe.sampling, ctx):
            return block
        rate = self.recipe.sampling.rate if self.recipe.sampling else 1.0
        return block.replace(divisor=rate * sum(weights.values()), contributors=1)

    def _open_zone(
        self, group: str, block: Block, senders: list[int], plain: list[Block], ctx: Context, clock: ServerClock
    ) -> tuple[Block, bool] | None:
        """One zone's sum as far as the server and the key server open it, and whether `plain` met it there.

        None if it stays closed.
        """
        zone, met, least = block.zone, False, self.recipe.min_clients
        steps = ctx.steps(zone)
        if block.sealed_by is not None and seal_of(steps) is not None and block.contributors < least:
            self.skip(f"zone {zone}", f"its sum holds {block.contributors} updates")
            return None
        with clock("aggregate"):
            for step in steps:
                if step.link.hook != "postprocess":
                    continue
                if step.link.site == "client":
                    break
                if step.link.site == "server":
                    try:
                        block = execute(step, block, ctx.party, ctx)
                    except ProtectionError as error:
                        self._close(zone, error)
                        return None
                    except TooFewClients as error:
                        refused = self.office.refused
                        why = self.office.refusal() if refused else TooFewClients(self.skips.fell_short(error))
                        self._close(zone, why)
                        return None
                    continue
                try:
                    opened = self.key_server.ask(self.steps.open, step.link.name, block, plain, group, senders)
                except (Refusal, OpenedBefore) as error:
                    if isinstance(error, Refusal) and error.kind == PluginError.__name__:
                        raise PluginError(f"{error}; so it is in every round: mend the component") from error
                    self._close(zone, error)
                    return None
                if not isinstance(opened, Block) or opened.zone != zone or (not plain and opened.size != block.size):
                    self._close(zone, ClientError("the key server opened its sum as something else"))
                    return None
                block, met = opened, bool(plain)
        return block, met

"""Rounds that fall short of clients, and zones that do not open: skipped, until after a few in a row the run ends.

Nothing of a skipped round is released, and the model stays. Whoever was asked for a ballot or an upload has paid: the
server has seen what came, or might have. What clients hold of the round is what a client holds whose upload was lost.

A zone that does not open stays as it is: clients may have sent what no sum survives. An opener that raises anything but
a refusal (a `FedplugError`) is at fault itself, which no further round mends: the run ends at once, as it does wherever
else a component raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug.api.errors import PluginError, ProtectionError, TooFewClients
from fedplug.api.typed import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedplug.api.context import Server
    from fedplug.api.reports import Reports
    from fedplug.recipe.recipe import Recipe
    from fedplug.wire.post_office import PostOffice

MOST = 3
"""Rounds in a row that may fall short; the last of them ends the run, and so does a run's last that never had one."""


class Skips:
    """Decides what a round that falls short means for the run.

    Args:
        recipe: how many rounds there are; whether groups are formed.
        server: remembers how many rounds in a row fell short.
        office: knows who dropped out, and why.
    """

    def __init__(self, recipe: Recipe, server: Server, office: PostOffice) -> None:
        self.recipe, self.server, self.office = recipe, server, office
        self.last = -1  # the last round that fell short
        self._closed: dict[str, tuple[int, int, str]] = {}  # zone -> last round closed, how many in a row, why at first

    def fell_short(self, error: TooFewClients) -> str:
        """Counts a round that fell short, once; gives the reason without those of single clients.

        Raises:
            TooFewClients: waiting does not help: all clients failed alike, where no process was lost; the groups that
                round 1 forms are missing; or this is the last round in a row that may fall short.
        """
        memory, round = self.server.remembered, self.office.round
        # What is wrong with a recipe is wrong in every round; a lost process is started again.
        if self.office.all_failed_alike() and not self.office.lost:
            raise error
        if self.recipe.groups and not memory.groups:
            raise error
        if round != self.last:
            short, most = memory.short + 1, min(MOST, self.recipe.rounds)
            if short >= most:
                count = f" {short} rounds in a row fell short, and the run waits for no more." if short > 1 else ""
                raise TooFewClients(f"{error}{count}") from error
            memory.short, self.last = short, round
        return one_line(str(error).removeprefix(f"round {round + 1}: ").partition(". Dropped out: ")[0], 300)

    def closed(self, zone: str, round: int, why: str) -> None:
        """Counts a round in which a zone's sum was not opened, though nobody opened another one before.

        Raises:
            ProtectionError: it is the last in a row that may be; with what the first of them said.
        """
        last, count, first = self._closed.get(zone, (-1, 0, why))
        if round == last:  # of another group
            return
        count, first = (count + 1, first) if round == last + 1 else (1, why)
        self._closed[zone] = round, count, first
        if count >= MOST:
            raise ProtectionError(
                f"zone {zone} did not open in {count} rounds in a row, and the run waits for no more. Round "
                f"{round + 2 - count}: {first}"
            )

    def heard(self, reports: Mapping[int, Reports]) -> None:
        """Takes what clients report of the sums that they were told: where none of them opens a zone, it is closed.

        Args:
            reports: with the answers to one question, by client.

        Raises:
            PluginError: an opener failed alike at all of them.
            ProtectionError: as `closed`.
        """
        if len(reports) < self.recipe.min_clients:  # says nothing about the others
            return
        first, *others = reports.values()
        for zone, why in first.unopened.items():
            if zone not in self.recipe.zones or not all(zone in each.unopened for each in others):
                continue
            if all(zone in each.failed for each in reports.values()):
                raise PluginError(f"{first.failed[zone]}; so it is at all clients, in every round: mend the component")
            if not any(zone in each.opened_before for each in reports.values()):
                self.closed(zone, self.office.round - 1, f"clients {why}")

    def held(self, round: int) -> None:
        """A round has come to its end; it ends the row of those before, unless some of its clients were missing."""
        if round != self.last:
            self.server.remembered.short = 0

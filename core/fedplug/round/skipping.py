"""Rounds that fall short of clients: each is skipped, and after a few in a row the run ends.

Nothing of a skipped round is released, and the model stays. Whoever was asked for a ballot or an upload has paid: the
server has seen what came, or might have. What clients hold of the round is what a client holds whose upload was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedplug.api.errors import TooFewClients
from fedplug.api.typed import one_line

if TYPE_CHECKING:
    from fedplug.api.context import Server
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

    def held(self, round: int) -> None:
        """A round has come to its end; it ends the row of those before, unless some of its clients were missing."""
        if round != self.last:
            self.server.remembered.short = 0

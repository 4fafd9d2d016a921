"""The section `profiles` of a recipe: the capacity of the parties' devices, for budgets and a simulated clock."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fedplug import Around, Section
from fedplug.api.roles import Reveals

from fedplug_sensecrypt.devices import Profile, by_party

if TYPE_CHECKING:
    from fedplug import KeyPath, Recipe
    from fedplug.api.events import Subject


class ProfileSection(Section):
    """CPUs and bandwidth of the devices: those of every client, or none. They drive the simulated clock."""

    Item = Profile

    counts_operations = True

    def attach(self, protocol: Subject) -> None:
        """The simulated clock adds to each row."""
        from fedplug_sensecrypt.work_log import WorkLog

        WorkLog(protocol.recipe, protocol.wire, protocol.server, protocol.key_server, protocol.events)

    def of_client(self, client_id: int) -> Profile | None:
        """The capacity of the client's device."""
        return by_party(self.items).get(client_id)

    def check(self, around: Around) -> Iterator[tuple[KeyPath, str]]:
        """Every client has one profile."""
        if around.clients is not None:
            yield from profile_problems(self.items, around.clients)

    def reveals(self, recipe: Recipe) -> list[Reveals]:
        """The counts that clients report for the clock."""
        note = "how many examples it trains on, how many values it encrypts, and how long that took, in every round"
        return [Reveals("operation counts of each client", ("server",), note=note)]


def profile_problems(profiles: Sequence[Profile], num_clients: int) -> Iterator[tuple[KeyPath, str]]:
    """Problems with the profiles of a recipe as a whole, each with its path in the list."""
    owner: dict[int | str, int] = {}
    for index, profile in enumerate(profiles):
        for place, party in enumerate(profile.of):
            path = (index, "of", place)
            if isinstance(party, int) and not 0 <= party < num_clients:
                there_is = f"data.clients={num_clients}: 0 to {num_clients - 1}"
                yield path, f"there is no client {party} ({there_is}); remove it, or split the data among more"
            elif party in owner:
                who = f"client {party}" if isinstance(party, int) else party
                where = "twice" if owner[party] == index else f"under profiles.{owner[party]} already"
                yield path, f"{who} is listed {where}; every party has one profile, remove one of the two"
            else:
                owner[party] = index
    without = [client_id for client_id in range(num_clients) if client_id not in owner]
    if profiles and without:
        some = ", ".join(map(str, without[:5])) + (f" and {len(without) - 5} more" if len(without) > 5 else "")
        remedy = "give every client a profile, or write profiles: [] to go without the simulated clock"
        yield (), f"no profile for client {some}; {remedy}"

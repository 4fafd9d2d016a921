"""The section `profiles` of a recipe: the capacity of the parties' devices, for budgets and a simulated clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fedplug import Around, Section
from fedplug.api.component import Options
from fedplug.api.parties import KEY_SERVER, SERVER
from fedplug.api.roles import Reveals
from pydantic import Field, field_validator

if TYPE_CHECKING:
    from fedplug import KeyPath, Recipe
    from fedplug.api.events import Subject


class Profile(Options):
    """The device of some parties."""

    of: list[int | Literal["server", "key_server"]] = Field(
        min_length=1, description="parties: client ids, `server`, `key_server`"
    )
    cpus: float = Field(gt=0, allow_inf_nan=False, description="processors; work is assumed to scale with them")
    bandwidth: float = Field(gt=0, allow_inf_nan=False, description="MB/s, the same up and down")

    @field_validator("of", mode="before")
    @classmethod
    def _names_parties(cls, value: Any) -> Any:
        """One message where pydantic would give one for every kind of party."""
        if not isinstance(value, list | tuple) or not value:
            raise ValueError("must be a list of parties, such as [0, 1, server]")
        for party in value:
            if type(party) is not int and party not in (SERVER, KEY_SERVER):
                raise ValueError(f"{party!r} is not a party; write client ids, server or key_server")
        return value


UNLIMITED = Profile.model_construct(of=["server", "key_server"], cpus=1.0, bandwidth=math.inf)
"""The assumed device of a server without a profile in the recipe: one CPU, traffic that takes no time."""


def by_party(profiles: Iterable[Profile]) -> dict[int | str, Profile]:
    """The profile of every client and of both servers, which are `UNLIMITED` unless they have their own."""
    return {SERVER: UNLIMITED, KEY_SERVER: UNLIMITED} | {party: one for one in profiles for party in one.of}


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


def profiles_of(recipe: Recipe) -> Sequence[Profile]:
    """The profiles of a recipe; none where it has no such section."""
    section = ProfileSection.of(recipe)
    return section.items if section else ()


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

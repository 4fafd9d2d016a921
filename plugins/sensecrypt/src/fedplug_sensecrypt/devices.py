"""The devices of parties, as a recipe describes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from fedplug.api.component import Options
from fedplug.api.parties import KEY_SERVER, SERVER
from pydantic import Field, field_validator

if TYPE_CHECKING:
    from fedplug import Recipe


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


def profiles_of(recipe: Recipe) -> Sequence[Profile]:
    """The profiles of a recipe; none where it has no such section."""
    section = recipe.sections.get("profiles")
    return section.items if section else ()

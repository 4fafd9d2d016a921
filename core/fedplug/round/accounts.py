"""What a client states of accounts that components keep themselves, before round 1 and in every round again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from fedplug.api.errors import ProtectionError, of_component

if TYPE_CHECKING:
    from fedplug.api.context import Client
    from fedplug.api.roles import AccountKeeper
    from fedplug.recipe.composition import Composition


def stated_accounts(composition: Composition, client: Client) -> dict[str, list[list[float]]]:
    """By level, what each round of the recipe will release of a client, as the level's keeper says now."""
    rounds = range(client.ctx.rounds)
    return {
        level: [_release(keeper, client, round) for round in rounds] for level, keeper in composition.keepers.items()
    }


def require_as_stated(composition: Composition, client: Client) -> None:
    """Compares what the client's round is to release with what it stated before round 1.

    Raises:
        ProtectionError: a keeper says something else now, or nobody asked before round 1.
    """
    round = client.ctx.round
    for level, keeper in composition.keepers.items():
        if level not in client.remembered.accounts:
            raise ProtectionError(
                f"client {client.client_id} was not asked before round 1 what {keeper.name} releases, so no ledger "
                "knows; it does not train"
            )
        said, now = client.remembered.accounts[level][round], _release(keeper, client, round)
        if now != said:
            raise ProtectionError(
                f"component {keeper.name}, round_release: round {round + 1} is {_shown(now)}, and was {_shown(said)} "
                "when the ledger was told before round 1; what it says may depend on the round, the options and the "
                "number of examples alone"
            )


def _release(keeper: AccountKeeper, client: Client, round: int) -> list[float]:
    """What a round releases of this client at the level of which a component keeps account."""
    here = client.ctx
    client.ctx = dataclasses.replace(here, round=round)
    try:
        with of_component(keeper.name, "round_release"):
            return [float(number) for number in keeper.round_release(client, client.ctx)]
    finally:
        client.ctx = here


def _shown(told: list[float]) -> str:
    return f"({', '.join(f'{number:g}' for number in told)})"

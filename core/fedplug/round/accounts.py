"""What a client states of accounts that components keep themselves, before round 1 and in every round again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, cast

from fedplug.api.effects import Changes
from fedplug.api.errors import ProtectionError, of_component

if TYPE_CHECKING:
    from fedplug.api.context import Client
    from fedplug.api.links import Step
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


@contextlib.contextmanager
def without_examples(composition: Composition, step: Step, client: Client) -> Iterator[None]:
    """Hides a client's examples, and scores of them, from a link that changes values freely behind such an account.

    The account is of what training released. What such a link took from the examples anew would be in the upload, and
    in no account. A link that says what it reveals is left alone: the ledger names that.
    """
    part = composition.components[step.link.name]
    free = any(isinstance(effect, Changes) for effect in step.effects or ())
    levels = [level for level, keeper in composition.keepers.items() if keeper is not part]
    if not (free and levels) or part.reveals(client.ctx):
        yield
        return
    data, scores = client.data, client.scores
    hidden: Any = _Hidden(f"component {part.name}, hook {step.link.hook}", levels[0], len(data.train))
    client.data = dataclasses.replace(data, train=hidden, own_test=hidden)
    client.scores = cast("dict[str, Any]", hidden) if scores else scores
    try:
        yield
    finally:
        client.data, client.scores = data, scores


class _Hidden:
    """In place of examples and scores. How many examples there are is public."""

    def __init__(self, reader: str, level: str, size: int) -> None:
        self._told, self._size = (reader, level), size

    def __len__(self) -> int:
        return self._size

    def _refuse(self, *_: Any) -> NoReturn:
        reader, level = self._told
        raise ProtectionError(
            f"{reader}: it reads a client's examples, or scores of them, where the account of each {level} is of what "
            "training released and of nothing else; go by the block alone, or state in reveals what it shows"
        )

    __getattr__ = __getitem__ = __iter__ = __contains__ = _refuse


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

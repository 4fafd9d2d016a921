"""What a client states of accounts that components keep themselves, before round 1 and in every round again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from fedplug.api.errors import ProtectionError, of_component
from fedplug.api.roles import Scorer

if TYPE_CHECKING:
    from fedplug.api.context import Client
    from fedplug.api.effects import Reveals
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
    """Hides a client's examples, and what its scorers made of them, from a link behind such an account.

    The account is of what training released. What a link took from the examples anew would be in the upload, and in no
    account, whatever the link does to the values. One that says what of them an upload shows is left alone, if no
    epsilon is said to cover it: the verdict then names that.
    """
    part = composition.components[step.link.name]
    levels = [level for level, keeper in composition.keepers.items() if keeper is not part]
    if not levels or any(_shows(shown) for shown in part.reveals(client.ctx)):
        yield
        return
    data, scores = client.data, client.scores
    told = f"component {part.name}, hook {step.link.hook}", levels[0]
    hidden: Any = _Hidden(*told, len(data.train))
    client.data = dataclasses.replace(data, train=hidden, own_test=hidden)
    scorers = ((name, composition.part(name, Scorer)) for name in scores)
    public = {name for name, scorer in scorers if scorer.scoring.public}
    client.scores = cast("dict[str, Any]", _Scores(scores, public, _Hidden(*told, 0)))
    try:
        yield
    finally:
        client.data, client.scores = data, scores


def _shows(shown: Reveals) -> bool:
    """Whether a statement is of what lies in uploads, to somebody who reads them, and nothing pays for it."""
    return shown.covered_by is None and not shown.asked and bool({"aggregator", "released_model"} & {*shown.to})


class _Hidden:
    """In place of examples and scores. How many examples there are is public."""

    def __init__(self, reader: str, level: str, size: int) -> None:
        self._told, self._size = (reader, level), size

    def __len__(self) -> int:
        return self._size

    def refuse(self, *_: Any) -> NoReturn:
        """Says who reads what it must not.

        Raises:
            ProtectionError: always.
        """
        reader, level = self._told
        raise ProtectionError(
            f"{reader}: it reads a client's examples, or scores of them, where the account of each {level} is of what "
            "training released and of nothing else; go by the block alone, or state in reveals what uploads show, "
            "without covered_by"
        )

    __getattr__ = __getitem__ = __iter__ = __contains__ = refuse


class _Scores(Mapping[str, Any]):
    """A client's scores, of which those alone can be read that follow from public facts."""

    def __init__(self, scores: Mapping[str, Any], public: set[str], hidden: _Hidden) -> None:
        self._scores, self._public, self._hidden = scores, public, hidden

    def __getitem__(self, name: str) -> Any:
        return self._scores[name] if name in self._public else self._hidden.refuse()

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)


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

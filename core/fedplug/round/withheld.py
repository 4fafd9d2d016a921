"""What a link is not handed: what it could put into values beside what is accounted for."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from fedplug.api.context import Server
from fedplug.api.errors import ProtectionError
from fedplug.api.roles import Scorer

if TYPE_CHECKING:
    from fedplug.api.base import Component
    from fedplug.api.context import Context
    from fedplug.api.links import Step
    from fedplug.recipe.composition import Composition
    from fedplug.round.hosted import HostedClient

_REMEDY = (
    "go by the block and by what is kept under the component's name, or state in reveals what uploads or sums show, "
    "without covered_by"
)


@contextlib.contextmanager
def withheld(composition: Composition, step: Step, client: HostedClient) -> Iterator[None]:
    """Inside, a link that changes values cannot read what an account does not cover.

    Behind a component that keeps an account of single records or the like: the examples, what scorers made of them, and
    what other components keep at the client, where one may have left them. Behind noise: the update and the client's
    own model besides, since what was added last would come without noise. A link that says what of these an upload
    shows is left alone, if no epsilon is said to cover it: the verdict then names that. So is one whose values stay,
    and one that states nothing, behind which nothing is promised anyway.
    """
    part, reader = composition.components[step.link.name], f"component {step.link.name}, hook {step.link.hook}"
    levels = [level for level, keeper in composition.keepers.items() if keeper is not part]
    noises = [release.link for release in step.before.releases]
    changes = step.effects and (levels or noises)
    if not changes or _shows(part, client.ctx):
        yield
        return
    behind = f"behind the noise of {noises[-1]}, which would not cover them" if noises else (
        f"where the account of each {levels[0]} is of what training released and of nothing else"
    )  # fmt: skip
    told = (
        f"{reader}: it reads a client's examples, its scores, what others keep there or its update {behind}; {_REMEDY}"
    )
    hidden: Any = _Hidden(told, len(client.data.train))
    held = {name: getattr(client, name) for name in ("data", "scores", "update", "personal", "state", "cache")}
    client.data = dataclasses.replace(client.data, train=hidden, own_test=hidden)
    scorers = ((name, composition.part(name, Scorer)) for name in client.scores)
    public = {name for name, scorer in scorers if scorer.scoring.public}
    client.scores = cast("dict[str, Any]", _Scores(client.scores, public, _Hidden(told, 0)))
    client.state = cast("dict[str, Any]", _Own(client.state, part.name, hidden))
    client.cache = cast("dict[str, Any]", _Own(client.cache, part.name, hidden))
    if noises:
        client.update = cast("Any", _Hidden(told, 0))
        client.personal = None if client.personal is None else cast("Any", _Hidden(told, 0))
        client.forget_model()  # a model that it asks for is loaded with what is hidden now
    try:
        yield
    finally:
        for name, value in held.items():
            setattr(client, name, value)


@contextlib.contextmanager
def withheld_at_server(composition: Composition, step: Step, ctx: Context, cohort_is_secret: bool) -> Iterator[None]:
    """Inside, a link that changes a sum behind noise on it cannot read what others keep at the server.

    Nor who takes part, where noise counts for less because nobody knows that.
    """
    server, link = cast("Server", ctx.party), step.link
    noises = [release.link for release in step.before.releases if release.trust == "central"]
    if not noises or not step.effects or _shows(composition.components[link.name], ctx):
        yield
        return
    hidden = _Hidden(
        f"component {link.name}, hook {link.hook}: it reads what others keep at the server or who takes "
        f"part behind the noise of {noises[-1]}, which would not cover it; {_REMEDY}",
        0,
    )
    held = {name: getattr(server, name) for name in ("state", "cache", "cohort")}
    server.state = cast("dict[str, Any]", _Own(server.state, link.name, hidden))
    server.cache = cast("dict[str, Any]", _Own(server.cache, link.name, hidden))
    server.cohort = cast("Any", hidden) if cohort_is_secret else server.cohort
    try:
        yield
    finally:
        for name, value in held.items():
            setattr(server, name, value)


def _shows(part: Component, ctx: Context) -> bool:
    """Whether a component says that values show something to whoever reads them, and nothing pays for it.

    Asked as the ledger asks, so that it says the same to both: before round 1, of the server.
    """
    server = Server()
    server.ctx = dataclasses.replace(ctx, party=server, round=0)
    said = [shown for shown in part.reveals(server.ctx) if shown.covered_by is None and not shown.asked]
    return any({"aggregator", "released_model"} & {*shown.to} for shown in said)


class _Hidden:
    """In place of examples, scores and updates. How many examples there are is public."""

    def __init__(self, told: str, size: int) -> None:
        self._told, self._size = told, size

    def __len__(self) -> int:
        return self._size

    def refuse(self, *_: Any) -> NoReturn:
        """Says who reads what it must not.

        Raises:
            ProtectionError: always.
        """
        raise ProtectionError(self._told)

    __getattr__ = __getitem__ = __iter__ = __contains__ = refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = refuse
    __array_ufunc__ = refuse


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


class _Own(MutableMapping[str, Any]):
    """Of what components keep at a client, what lies under the name of one, perhaps with more words behind it."""

    def __init__(self, kept: dict[str, Any], name: str, hidden: _Hidden) -> None:
        self._kept, self._name, self._hidden = kept, name, hidden

    def _is_own(self, key: str) -> bool:
        return key.partition(" ")[0] == self._name  # no name has a space in it

    def _own(self, key: str) -> str:
        return key if self._is_own(key) else self._hidden.refuse()

    def __getitem__(self, key: str) -> Any:
        return self._kept[self._own(key)]

    def __setitem__(self, key: str, value: Any) -> None:
        self._kept[self._own(key)] = value

    def __delitem__(self, key: str) -> None:
        del self._kept[self._own(key)]

    def __iter__(self) -> Iterator[str]:
        return filter(self._is_own, self._kept)

    def __len__(self) -> int:
        return sum(1 for _ in self)

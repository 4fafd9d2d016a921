"""Lies of one party: messages of a real run, altered anywhere, replayed to a server that must go on.

A recipe runs once with honest parties, and every reply is kept. The server then runs the same rounds again on these
replies, with one of them altered, which costs no training. A client's lie in a round may cost that client the round. A
key server's lie may cost zones their sums. It must have no other effect. The set-up needs everybody, so a lie there may
end the run, with one of fedplug's errors.

If honest clients reply to the remaining parties, replayed replies do not fit once a party is left out. Dropped clients
are then compared with those of a run in which the same party is gone. Replies do not fit either once a lie changes the
groups, as a client's statement about its data can. Nothing then follows from the dropped clients.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator

from fedplug.api import codec
from fedplug.api.errors import ClientError, FedplugError, PluginError, TooFewClients
from fedplug.api.parties import KEY_SERVER
from fedplug.recipe.catalog import Catalog
from fedplug.recipe.recipe import Recipe
from fedplug.wire.post_office import Transport
from fedplug_ledger.entries import RoundEntry
from fedplug_runs.archive import Bookkeeping
from fedplug_runs.rows import Row

from fedplug_kit.world import build

_NOT_KEPT = "it has no more answers"
_State = tuple[bytes, list[RoundEntry]]


@dataclasses.dataclass
class Act:
    """A part of a run that is replayed: its replies, and the state of the server before it.

    Attributes:
        name: `set-up`, `round 1`, ..., `end`.
        play: runs it at a protocol.
        before: of the server and its books, as a checkpoint has them; None before the set-up.
        answers: by address, in order.
    """

    name: str
    play: Callable[[Bookkeeping], None]
    before: _State | None
    answers: dict[str, list[bytes]]


class Stage(Transport):
    """Passes messages to real parties and keeps their replies. Without parties it replays them."""

    in_process = False

    def __init__(self, real: Transport | None) -> None:
        self.real = real
        self.answers: dict[str, list[bytes]] = {}
        self.lies: dict[tuple[str, int], bytes | None] = {}
        self._asked: dict[str, int] = {}

    def begin(self, answers: dict[str, list[bytes]], lies: dict[tuple[str, int], bytes | None]) -> None:
        """From here on, replays these replies, with those of `lies` in place of the honest ones; None drops a reply."""
        self.answers, self.lies, self._asked = answers, lies, {}

    def exchange(self, messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        """Gives the real replies, or the next stored ones of each party."""
        if self.real is not None:
            for address, given in self.real.exchange(messages):
                assert isinstance(given, bytes), given
                self.answers.setdefault(address, []).append(given)
                yield address, given
            return
        for address in messages:
            number = self._asked[address] = self._asked.get(address, -1) + 1
            known = self.answers.get(address, [])
            answer = self.lies[address, number] if (address, number) in self.lies else (
                known[number] if number < len(known) else None
            )  # fmt: skip
            yield address, ClientError(_NOT_KEPT) if answer is None else answer


class Lies:
    """A recipe's protocol, ready to be lied to.

    Args:
        recipe: small enough to run.
        catalog: with its components.
        data_root: folder of data sets.
    """

    def __init__(self, recipe: Recipe, catalog: Catalog, data_root: str | None = None) -> None:
        self._built = recipe, catalog, data_root
        books, engine, _ = build(*self._built)
        stage = Stage(engine)
        books.protocol.office.transport = stage
        self.acts: list[Act] = []
        plays: list[tuple[str, Callable[[Bookkeeping], None]]] = [("set-up", lambda books: books.protocol.setup())]
        plays += [(f"round {round + 1}", _round(round)) for round in range(recipe.rounds)]
        plays.append(("end", lambda books: books.protocol.finish()))
        try:
            for name, play in plays:
                before = None if name == "set-up" else _state(books)
                stage.answers = {}
                play(books)
                self.acts.append(Act(name, play, before, stage.answers))
        finally:
            engine.close()
        self._books, playing, _ = build(*self._built)
        playing.close()
        self._stage = Stage(None)
        self._books.protocol.office.transport = self._stage
        self._gone: dict[tuple[str, str], set[int]] = {}
        self._usual: dict[str, set[frozenset[int]]] = {}  # the groups of each act where nobody lies
        self._everyone = set(self._books.protocol.client_ids)

    def told(self) -> list[tuple[Act, str, int]]:
        """Every reply of every party: the part of the run, the party, and the reply's number."""
        return [(act, address, number) for act in self.acts for address, answers in act.answers.items()
                for number in range(len(answers))]  # fmt: skip

    def lie(self, act: Act, address: str, number: int, message: bytes | None) -> str:
        """Replays a part of the run with one reply replaced; returns the unwanted effect, empty if there is none.

        Args:
            act: a part of this run.
            address: address of the liar.
            number: the number of its reply in this part.
            message: the message that it sends instead; None: nothing.
        """
        outcome = self._played(act, {(address, number): message})
        if isinstance(outcome, str):
            # If a round needs everybody, leaving a party out ends it, as its absence does.
            ends = outcome.startswith(TooFewClients.__name__) and self._missing(act, address) == self._everyone
            # A lie may make the server ask the key server once more. A real one would reply; here no reply is stored.
            ends |= address != KEY_SERVER and outcome.endswith(_NOT_KEPT)
            return "" if ends else outcome
        others = outcome - ({int(address.partition(":")[2])} if address != KEY_SERVER else set())
        formed = self._groups()
        if others and not others <= self._missing(act, address) and not self._regrouped(act, formed):
            return f"clients {sorted(others)} are left out"
        return ""

    def _groups(self) -> set[frozenset[int]]:
        """The groups that were formed last; none if the recipe forms none."""
        return {frozenset(members) for members in self._books.protocol.server.remembered.groups.values()}

    def _regrouped(self, act: Act, formed: set[frozenset[int]]) -> bool:
        """Whether the groups differ from those of the same part of the honest run."""
        if act.name not in self._usual:
            self._played(act, {})
            self._usual[act.name] = self._groups()
        return formed != self._usual[act.name]

    def _missing(self, act: Act, address: str) -> set[int]:
        """The clients that are left out if a party is silent, since the replayed replies do not fit without it."""
        if (act.name, address) not in self._gone:
            answers = range(len(act.answers[address]))
            found = self._played(act, {(address, number): None for number in answers})
            self._gone[act.name, address] = self._everyone if isinstance(found, str) else found
        return self._gone[act.name, address]

    def _played(self, act: Act, lies: dict[tuple[str, int], bytes | None]) -> set[int] | str:
        books = self._books
        if act.before is None:
            books, engine, _ = build(*self._built)
            engine.close()
            books.protocol.office.transport = self._stage
        else:
            _restore(books, act.before)
        self._stage.begin(act.answers, lies)
        try:
            act.play(books)
            if act.before is None and len(self.acts) > 1:
                return self._goes_on(books)
            kept = [*books.rows, books.metrics.awaiting, books.ledger.report()]
            json.dumps([one.to_plain(for_json=True) for one in kept if one is not None], allow_nan=False)
            _state(books)
        except FedplugError as error:
            return set() if act.before is None else f"{type(error).__name__}: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if (row := books.metrics.awaiting) is not None and row.skipped:  # everybody loses the round, as with an error
            return f"{TooFewClients.__name__}: {row.skipped}"
        return set(books.protocol.office.dropped)

    def _goes_on(self, books: Bookkeeping) -> set[int] | str:
        """Replays round 1 after a lie of the set-up, because later rounds use what was sent there, such as accounts. A
        lie that changes weights changes the uploads of honest clients, so the replayed replies need not fit.
        """
        self._stage.begin(self.acts[1].answers, {})
        try:
            self.acts[1].play(books)
            json.dumps(books.ledger.report().to_plain(for_json=True), allow_nan=False)
        except PluginError as error:
            return f"{type(error).__name__}: {error}"
        return set()


def _round(round: int) -> Callable[[Bookkeeping], None]:
    return lambda books: books.protocol.round(round)


def _state(books: Bookkeeping) -> _State:
    books.metrics.forget()
    plain = {"protocol": books.protocol.state(), "books": books.state(), "rows": [r.to_plain() for r in books.rows]}
    return codec.encode(plain), [*books.ledger.log]


def _restore(books: Bookkeeping, state: _State) -> None:
    plain, log = codec.decode(state[0]), state[1]
    books.protocol.restore(plain["protocol"])
    books.restore(plain["books"], [Row.from_plain(row) for row in plain["rows"]], log)
    books.metrics.forget()
    books.charging.owed = None

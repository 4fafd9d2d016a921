"""The life of a run as a stream of typed events, synchronous and in order.

The protocol tells what happens and names nobody who listens. Ledger, metrics, checkpoints and console subscribe; so
does an extension, through its `observe`. An event is told once everything before it is done, and the run continues when
its listeners are done: a listener to `Asking` can still refuse.

Rounds count from 0, as in `Facts.round`; -1 is the set-up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, dataclass_transform

from fedplug.api.blocks import Block
from fedplug.api.cohort import KeyServerLine
from fedplug.api.operations import Cover
from fedplug.api.parties import Server
from fedplug.api.reports import Reports


@dataclass_transform(frozen_default=True, eq_default=False)
class Event:
    """Something that happened in a run; its kinds are frozen dataclasses, each equal to itself alone."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, eq=False)(cls)


class SetUpDone(Event):
    """The clients have joined, keys are made; the rounds begin."""


class RoundStarted(Event):
    """A round begins; nobody has been asked anything yet. Raise to stop the run before anything is released."""

    round: int


class Asking(Event):
    """Clients are about to be asked for what costs privacy. Raise to stop the run before it is released.

    Attributes:
        clients: who will be asked, and pays, also if the reply is then lost; of an `opening`, whose updates are in the
            sum for which shares are asked for.
        what: `ballots` where a negotiation's ballots carry noise, `upload`, or `opening` of a sum that nobody can open
            alone.
    """

    round: int
    clients: Sequence[int]
    what: Literal["ballots", "upload", "opening"]


class ReplyArrived(Event):
    """A client has answered, or failed to. Cheap; there are thousands in a large round.

    Attributes:
        phase: `setup`, `negotiate`, `upload`, `open` (shares of a sum), `finish`.
        reports: what came with the reply; empty where it failed.
        answered, asked: how many have answered this question, of how many.
    """

    round: int
    phase: str
    client_id: int
    reports: Reports
    answered: int
    asked: int


class Negotiated(Event):
    """Every client of the round has a plan.

    Attributes:
        groups: group -> all its clients.
    """

    round: int
    asked: Sequence[int]
    groups: Mapping[str, Sequence[int]]


class Uploaded(Event):
    """Every upload of the round that will come has come."""

    round: int
    groups: Mapping[str, Sequence[int]]


class ZoneOpened(Event):
    """A zone's sum is as far open as the server and the key server open it.

    Attributes:
        block: what clients adopt; still closed where they hold the key.
    """

    round: int
    group: str
    block: Block


class SumWithheld(Event):
    """A sum stays closed, since one of an earlier attempt at the round was opened already."""

    round: int
    zone: str


class MessageUncovered(Event):
    """A component had clients, or the key server, answer a question, and no statement says what the answer shows.

    Attributes:
        what: of the question, as a sentence without its subject.
    """

    component: str
    method: str
    what: str


class Published(Event):
    """A component has made values public facts: from here on, operations may follow from them.

    Attributes:
        groups: whose facts they are.
        covered_by: what pays for what they show of clients' data, as in `Reveals`; None: nothing does.
    """

    round: int
    groups: Sequence[str]
    component: str
    values: Mapping[str, Any]
    covered_by: Cover | None


class Released(Event):
    """The release of a round's uploads, as the server counts it.

    Attributes:
        charged: the clients that were asked for an upload.
        weights: of those whose upload is in the sums; empty in a round that is skipped after uploads came.
        zone_sizes: scalars of each zone, mean over the uploads.
        contributors: for each zone that was opened, the fewest clients behind any of its values.
        exposed: whether something other than the values shows who took part.
    """

    round: int
    charged: Sequence[int]
    weights: Mapping[int, float]
    zone_sizes: Mapping[str, float]
    contributors: Mapping[str, int]
    exposed: bool


class RoundClosed(Event):
    """A round has ended; its aggregate travels with the next message.

    Attributes:
        asked: who was asked to take part.
        answered: whose upload is in the sums.
        seconds: of the server's own work, by phase; `open` at the key server, `wall` by the clock on the wall.
        own: of the server's own work in all.
        groups: group -> all its clients.
        skipped: why it released nothing; empty where it did.
    """

    round: int
    asked: Sequence[int]
    answered: Sequence[int]
    seconds: Mapping[str, float]
    own: float
    groups: Mapping[str, Sequence[int]]
    skipped: str = ""


class ModelDelivered(Event):
    """The last aggregate has reached the clients, and the final model is evaluated.

    Attributes:
        seconds, own: as in `RoundClosed`.
    """

    groups: Mapping[str, Sequence[int]]
    seconds: Mapping[str, float]
    own: float


class Note(Event):
    """A warning that should stay visible, such as a client that dropped out."""

    text: str


E = TypeVar("E", bound=Event)


class Events:
    """Who hears what. Listeners of one event are called in the order in which they subscribed, `first` ones before."""

    def __init__(self) -> None:
        self._listeners: list[tuple[type[Event], Callable[[Any], None]]] = []
        self._first = 0

    def subscribe(self, kind: type[E], listener: Callable[[E], None], *, first: bool = False) -> None:
        """From here on, calls `listener` with every event of this kind; `Event` means all.

        If a listener raises, the run stops, and later listeners do not hear the event. A listener that must hear of
        everything that has happened subscribes as `first`.
        """
        self._listeners.insert(self._first if first else len(self._listeners), (kind, listener))
        self._first += first

    def tell(self, event: Event) -> None:
        """Calls the listeners to events of this kind."""
        for kind, listener in self._listeners:
            if isinstance(event, kind):
                listener(event)

    def note(self, text: str) -> None:
        """Tells a `Note`."""
        self.tell(Note(text))


class Watcher:
    """Who watches the wire: its listeners hear of each message, and nothing is kept.

    Attributes:
        keep: whether the bytes of messages are kept.
        listeners: each is called with sender, receiver, round and bytes of every message.
    """

    keep: bool = False

    def __init__(self) -> None:
        self.listeners: list[Callable[[str, str, int, int], None]] = []

    def record(self, sender: str, receiver: str, round: int, phase: str, data: Any, zones: Mapping[str, int]) -> None:
        """Takes note of one message."""
        for listener in self.listeners:
            listener(sender, receiver, round, len(data))


class Subject(Protocol):
    """A run as a section of its recipe gets to see it before the set-up: what it may subscribe to, and ask.

    Attributes:
        recipe, client_ids: of the run.
        office, key_server: what sends messages, and the line to the key server.
        server: the aggregation server's own state.
        wire: who watches the messages.
        events: what happens.
    """

    recipe: Any
    client_ids: list[int]
    office: Any
    wire: Watcher
    events: Events

    @property
    def server(self) -> Server:
        """See above."""

    @property
    def key_server(self) -> KeyServerLine:
        """See above."""

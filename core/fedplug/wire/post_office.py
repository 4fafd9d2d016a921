"""Where messages to clients are made up, sent and counted: what is held back, what was asked, who dropped out.

Lasting calls stay held until the client says that it was saved after them: a worker that dies is restored from the last
checkpoint and sent again whatever it had done since.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from fedplug.api.codec import Message
from fedplug.api.cohort import KeyServerLine
from fedplug.api.component import named
from fedplug.api.errors import ClientError, MessageError, OpenedBefore, PartyLost, Refusal, TooFewClients
from fedplug.api.events import Events, ReplyArrived, Watcher
from fedplug.api.parties import KEY_SERVER, SERVER, client_address
from fedplug.api.records import one_line
from fedplug.api.reports import Reports
from fedplug.wire import calls
from fedplug.wire.calls import Call, Reply


class ServerClock:
    """Seconds of the server's own work; waiting for clients and the key server does not count, their work does."""

    def __init__(self, office: PostOffice, key_server: KeyServerLine) -> None:
        self._office, self._key_server = office, key_server
        self._started, self._opened = time.perf_counter(), key_server.seconds
        self._process = time.process_time()
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Adds the time inside to a phase."""
        started, waited = time.perf_counter(), self._office.waited
        yield
        own = time.perf_counter() - started - (self._office.waited - waited)
        self._seconds[phase] = self._seconds.get(phase, 0.0) + own

    def own(self) -> float:
        """Seconds of the server's own work so far."""
        return sum(self._seconds.values())

    def seconds(self) -> dict[str, float]:
        """Seconds of each phase so far; from the beginning on, `wall` by the clock, `cpu` of this process."""
        opened = self._key_server.seconds - self._opened
        since = {"wall": time.perf_counter() - self._started, "cpu": time.process_time() - self._process}
        return {**self._seconds, **({"open": opened} if opened else {}), **since}


T = TypeVar("T")
_LONGEST_REASON = 1000
"""Characters of why a client dropped out; what it sent may be part of that."""


class Transport(Protocol):
    """What the cohort needs of an engine: a message out, a reply or a failure back, in any order.

    Attributes:
        in_process: whether all parties run in this process. Messages are bytes; such a process gets packed messages
            (`fedplug.api.codec.Packed`), unless they are recorded.
    """

    in_process: bool

    def exchange(self, messages: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """Delivers each message and yields (address, reply) as replies arrive."""


class PostOffice:
    """Holds back tells, sends asks, counts bytes, keeps what a client may still have to catch up with.

    Args:
        transport: the engine.
        wire: where messages are recorded.
        digest: of the recipe.
        client_ids: every client of the run.
        min_clients: the fewest answers with which a round continues.
        events: every reply of a client is announced there.

    Attributes:
        compares: whether clients are to look for their plain values in what they answer: where the run is recorded.
    """

    def __init__(
        self, transport: Transport, wire: Watcher, digest: str, client_ids: list[int], min_clients: int, events: Events
    ) -> None:
        self.transport, self.wire, self.digest, self.min_clients = transport, wire, digest, min_clients
        self.compares = wire.keep
        self.events = events
        self.client_ids = client_ids
        self.round, self.phase = -1, "setup"
        self.waited = 0.0  # seconds in the hands of other parties
        self.dropped: dict[int, str] = {}
        self.lost: set[int] = set()  # those whose process ended in this round
        self.refused: dict[int, str] = {}  # who opens no sum of this round, since another was opened before, and why
        self.heard: Callable[[Mapping[int, Reports]], None] = lambda reports: None  # what came with answers, a question
        self._asked: set[int] = set()  # in this round
        self.told: set[tuple[str, str]] = set()  # component and method of every question that was answered at all
        self.answers: Counter[tuple[str, str, int]] = Counter()  # in this round: component, method, client
        self._before: Counter[tuple[str, str, int]] = Counter()  # of them, those of the set-up
        self._bits: dict[tuple[str, str], Any] = {}  # of the others, whether they were answered by None or by True
        self._sequence = 0
        self._done = dict.fromkeys(client_ids, 0)
        self._held: dict[int, list[Call]] = {client_id: [] for client_id in client_ids}

    def begin_round(self, round: int) -> None:
        """Forgets what was meant for the round before only."""
        self.round, self.phase, self.dropped, self.lost, self._asked = round, "negotiate", {}, set(), set()
        self.refused = {}
        if round > 0:  # what the set-up asked for is paid for with round 1
            self.answers.clear()
        self._before = self.answers.copy()
        for client_id, held in self._held.items():
            self._held[client_id] = [call for call in held if call.sequence]

    def tell(
        self, client_ids: Iterable[int], method: Callable[..., Any], payload: tuple[Any, ...], lasting: bool
    ) -> None:
        """Holds a call back until the next question to each of these clients."""
        if lasting:
            self._sequence += 1
        call = Call.of(method, payload, "client", self.round, self._sequence if lasting else 0)
        for client_id in client_ids:
            self._held[client_id].append(call)

    def ask(
        self, client_ids: list[int], method: Callable[..., Any], payload: tuple[Any, ...] | Mapping[int, Any], *,
        take: Callable[[int, Any], Any] = lambda _, value: value, done: Callable[[int], None] = lambda _: None,
    ) -> dict[int, Any]:  # fmt: skip
        """Sends what was held back and one question to each of these clients.

        Args:
            client_ids: that have not dropped out of this round.
            method, payload: the question; a mapping has the only value of each client's own.
            take: is handed each client's answer as it arrives, and gives what is to be kept of it.
            done: is called for each client when its answer was taken and nothing here holds it, or when it gives none.

        Returns:
            What is kept of each answer, by client, ascending. A client that refuses to open another sum than before
            gives none, and stays in the round (`refused`).
        """
        if isinstance(payload, Mapping):
            questions = {c: Call.of(method, (payload[c],), "client", self.round) for c in client_ids}
        else:
            questions = dict.fromkeys(client_ids, Call.of(method, payload, "client", self.round))
        component, name = named(method)
        self._asked.update(client_ids)
        values: dict[int, Any] = {}
        told: dict[int, Reports] = {}
        answered, behind = 0, list(client_ids)
        for _ in range(2):  # the second time for clients that were restored from a checkpoint and missed calls since
            asked, behind = behind, []
            for client_id, answer in self._exchange({client_id: questions[client_id] for client_id in asked}):
                try:
                    reply = self._read(client_id, answer)
                except (ClientError, MessageError) as error:
                    self.dropped[client_id] = one_line(str(error), _LONGEST_REASON)
                    reports = Reports(compared=calls.compared_in(answer))
                else:
                    del answer  # an upload may be large, and the next one is being made
                    if reply.behind:
                        behind.append(client_id)
                        continue
                    reports = reply.reports
                    if reply.error is not None:
                        why = f"{reply.error.call}: {reply.error.message}"
                        self.refused[client_id] = one_line(why, _LONGEST_REASON)
                    else:
                        told[client_id] = reports
                        self.hear(component.name, name, reply.value)
                        values[client_id] = take(client_id, reply.value)
                        self.answers[component.name, name, client_id] += 1
                    del reply
                done(client_id)
                answered += 1
                self.events.tell(ReplyArrived(self.round, self.phase, client_id, reports, answered, len(client_ids)))
        lost = "its process was started again, and what it has missed is no longer known"
        self.dropped |= dict.fromkeys(behind, lost)
        for client_id in behind:
            done(client_id)
        self.heard(told)
        return dict(sorted(values.items()))

    @property
    def stays(self) -> bool:
        """Whether messages stay in this process, and nobody keeps their bytes."""
        return self.transport.in_process and not self.wire.keep

    def _exchange(self, questions: Mapping[int, Call]) -> Iterator[tuple[int, Message | Exception]]:
        messages: dict[str, Message] = {}
        # Most clients are as far as others and asked the same: one message for all of them.
        request = functools.cache(lambda far, *asked: calls.request(self.digest, asked, far, self.stays, self.compares))
        by_address = {client_address(client_id): client_id for client_id in questions}
        for address, client_id in by_address.items():
            done = self._done[client_id]
            pending = [call for call in self._held[client_id] if not call.sequence or call.sequence > done]
            data, zones = request(done, *pending, questions[client_id])
            self.wire.record(SERVER, address, self.round, self.phase, data, zones)
            messages[address] = data
        started = time.perf_counter()
        for address, answer in self.transport.exchange(messages):
            self.waited += time.perf_counter() - started
            yield by_address[address], answer
            del answer
            started = time.perf_counter()

    def _read(self, client_id: int, answer: Message | Exception) -> Reply:
        """A reply; its error, if it has one, is that it opens no sum but the one that it has opened.

        Raises:
            ClientError: the client failed, or its process ended.
            MessageError: it is no reply.
        """
        if isinstance(answer, PartyLost):
            self.lost.add(client_id)
        if isinstance(answer, Exception):
            raise ClientError(str(answer)) from answer
        reply = self.received(client_address(client_id), answer)
        if not reply.saved <= reply.done <= self._sequence:
            claims = f"done={reply.done} and saved={reply.saved}"
            raise MessageError(f"a reply with {claims}, of {self._sequence} calls: it claims what was never asked")
        self._done[client_id] = reply.done
        if not reply.behind:
            self._held[client_id] = [call for call in self._held[client_id] if call.sequence > reply.saved]
        if reply.error is not None and reply.error.kind != OpenedBefore.__name__:
            raise ClientError(f"{reply.error.call}: {reply.error.message}")
        return reply

    def received(self, sender: str, answer: Message) -> Reply:
        """A reply that arrived; recorded even where it is none.

        Raises:
            MessageError: it is none.
        """
        zones: Counter[str] = Counter()
        try:
            reply, zones = calls.read_reply(answer)
        finally:
            phase = "open" if sender == KEY_SERVER else self.phase
            self.wire.record(sender, SERVER, self.round, phase, answer, zones)
        return reply

    def hear(self, component: str, method: str, value: Any) -> None:
        """Notes that a question has an answer. Always None, or always True, says no more than that it was asked."""
        if (value is not None and value is not True) or self._bits.setdefault((component, method), value) is not value:
            self.told.add((component, method))

    def answered(self) -> set[str]:
        """The components whose questions clients have answered in this round, the set-up apart."""
        return {question[0] for question, count in self.answers.items() if count > self._before[question]}

    def most_answers(self) -> dict[tuple[str, str], int]:
        """Component and method of each question of this round -> how often the client that did so most answered it."""
        most: dict[tuple[str, str], int] = {}
        for (component, method, _), count in self.answers.items():
            most[component, method] = max(count, most.get((component, method), 0))
        return most

    def drop(self, client_id: int, reason: str) -> None:
        """Leaves a client out of the rest of this round; the first reason is kept."""
        self.dropped.setdefault(client_id, one_line(reason, _LONGEST_REASON))

    def require(self, answered: int) -> None:
        """Refuses to continue with fewer than `min_clients` answers.

        Raises:
            OpenedBefore: there would be enough, if clients did not refuse to open another sum than before.
            TooFewClients: there are not; with the reasons.
        """
        if answered >= self.min_clients:
            return
        if answered + len(self.refused) >= self.min_clients:
            raise self.refusal()
        when = "the end of the run" if self.phase == "finish" else calls.when(self.round)
        why = f"Dropped out: {self.reasons()}" if self.dropped else "Nobody else was in the cohort."
        raise TooFewClients(f"{when}: clients left: {answered}, min_clients is {self.min_clients}. {why}")

    def refusal(self) -> OpenedBefore:
        """What clients say that refuse to open another sum of this round than before."""
        said = "; ".join(f"{reason} (client {listed(ids)})" for reason, ids in alike(self.refused))
        return OpenedBefore(f"clients refuse to help: {said}")

    def reasons(self) -> str:
        """Why clients dropped out of this round, each reason with its clients."""
        return "; ".join(f"{reason} (client {listed(ids)})" for reason, ids in alike(self.dropped))

    def all_failed_alike(self) -> bool:
        """Whether every client that was asked in this round dropped out, and all for the same reason."""
        return bool(self._asked) and self._asked <= set(self.dropped) and len(alike(self.dropped)) == 1

    def usable(self, replies: Mapping[int, Any], read: Callable[[int, Any], T]) -> dict[int, T]:
        """The replies as records. Drops the clients whose reply cannot be read.

        Args:
            replies: by client.
            read: makes a record of a client's reply; raises MessageError if it cannot.
        """
        records: dict[int, T] = {}
        for client_id, reply in replies.items():
            try:
                records[client_id] = read(client_id, reply)
            except MessageError as error:
                self.drop(client_id, f"its reply cannot be used: {error}")
        return records

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        lasting = {call.sequence: call for held in self._held.values() for call in held if call.sequence}
        return {
            "sequence": self._sequence,
            "done": list(self._done.items()),
            "calls": [[number, call.body, dict(call.zones)] for number, call in sorted(lasting.items())],
            "held": [[client_id, [c.sequence for c in held if c.sequence]] for client_id, held in self._held.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Inverse of `state`."""
        self._sequence = state["sequence"]
        self._done = dict(state["done"])
        lasting = {number: Call(body, Counter(zones), number) for number, body, zones in state["calls"]}
        self._held = {client_id: [lasting[number] for number in numbers] for client_id, numbers in state["held"]}


def alike(reasons: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Each reason with its clients, ascending. Reasons that differ in numbers only count as one; the first is given."""
    kinds: dict[str, tuple[str, list[int]]] = {}
    for client_id, reason in sorted(reasons.items()):
        kind = re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "0", reason)
        kinds.setdefault(kind, (reason, []))[1].append(client_id)
    return list(kinds.values())


def listed(client_ids: list[int]) -> str:
    """The ids, of many only the first ones: `0, 1, 2, 3, 4 and 95 more`."""
    first = ", ".join(map(str, client_ids[:5]))
    return f"{first} and {len(client_ids) - 5} more" if len(client_ids) > 5 else first


class KeyServerCalls(KeyServerLine):
    """The server's line to the key server, through its post office."""

    def __init__(self, office: PostOffice) -> None:
        super().__init__()
        self._office = office

    def ask(self, method: Callable[..., Any], *payload: Any) -> Any:
        """See `KeyServerLine.ask`."""
        office = self._office
        call = Call.of(method, payload, "key_server", office.round)
        data, zones = calls.request(office.digest, [call], stays=office.stays)
        started = time.perf_counter()
        for _ in range(2):
            office.wire.record(SERVER, KEY_SERVER, office.round, "open", data, zones)
            ((_, answer),) = office.transport.exchange({KEY_SERVER: data})
            if not isinstance(answer, PartyLost):
                break
        office.waited += time.perf_counter() - started
        if isinstance(answer, Exception):
            raise ClientError(f"the key server is gone: {answer}") from answer
        try:
            reply = office.received(KEY_SERVER, answer)
        except MessageError as error:
            raise Refusal(f"the key server's answer cannot be used: {one_line(str(error))}") from error
        self.seconds += reply.reports.seconds_total
        for name, (count, took) in reply.reports.operations.items():
            total = self.operations.setdefault(name, [0.0, 0.0])
            total[0], total[1] = total[0] + count, total[1] + took
        if reply.error is not None:
            said = f"the key server refused {reply.error.call}: {reply.error.message}"
            raise OpenedBefore(said) if reply.error.kind == OpenedBefore.__name__ else Refusal(said, reply.error.kind)
        component, name = named(method)
        office.hear(component.name, name, reply.value)
        return reply.value

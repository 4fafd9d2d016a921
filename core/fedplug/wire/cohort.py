"""`cohort.ask` and `cohort.tell`: the only ways from the server to the clients.

A `tell` needs no reply, so it is held back and travels with the next `ask`, in order. A lasting tell (the default) also
reaches, later, the clients that are not in this round's cohort or did not answer: whoever missed the winners of a vote
or an aggregate catches up before it is asked anything.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from fedplug.api.codec import Message
from fedplug.api.context import Server
from fedplug.api.errors import ClientError, MessageError, PartyLost, Refusal, TooFewClients
from fedplug.api.events import Events, ReplyArrived
from fedplug.api.roles import named
from fedplug.api.views import KEY_SERVER, SERVER, Wire, client_address
from fedplug.wire import calls
from fedplug.wire.calls import Call, Reply


class Transport(Protocol):
    """What the cohort needs of an engine: a message out, a reply or a failure back, in any order.

    Messages are bytes. One that says `in_process = True` runs all parties in this process, and is handed packed
    messages (`fedplug.api.codec.Packed`), unless they are recorded.
    """

    def exchange(self, messages: dict[str, Any]) -> Iterable[tuple[str, Any]]:
        """Delivers each message and yields (address, reply) as replies arrive."""


class PostOffice:
    """Holds back tells, sends asks, counts bytes, keeps what a client may still have to catch up with.

    Args:
        transport: the engine.
        wire: where messages are recorded.
        digest: of the recipe.
        client_ids: every client of the run.
        min_clients: the fewest answers with which a round goes on.
        events: told of every reply of a client.
    """

    def __init__(
        self, transport: Transport, wire: Wire, digest: str, client_ids: list[int], min_clients: int, events: Events
    ) -> None:
        self.transport, self.wire, self.digest, self.min_clients = transport, wire, digest, min_clients
        self.events = events
        self.client_ids = client_ids
        self.round, self.phase = -1, "setup"
        self.waited = 0.0  # seconds in the hands of other parties
        self.dropped: dict[int, str] = {}
        self._asked: set[int] = set()  # in this round
        self.told: set[tuple[str, str]] = set()  # component and method of every question that clients answered at all
        self._sequence = 0
        self._done = dict.fromkeys(client_ids, 0)
        self._held: dict[int, list[Call]] = {client_id: [] for client_id in client_ids}

    def begin_round(self, round: int) -> None:
        """Forgets what was meant for the round before only."""
        self.round, self.phase, self.dropped, self._asked = round, "negotiate", {}, set()
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

    def ask(self, client_ids: list[int], method: Callable[..., Any], payload: tuple[Any, ...]) -> dict[int, Any]:
        """Sends what was held back and one question to each client that has not dropped out of this round.

        Raises:
            TooFewClients: fewer than `min_clients` clients are left in the round.
        """
        question = Call.of(method, payload, "client", self.round)
        component, name = named(method)
        self._asked.update(client_ids)
        values: dict[int, Any] = {}
        answered, behind = 0, list(client_ids)
        for _ in range(2):  # the second time for clients that were restored from a checkpoint and missed calls since
            asked, behind = behind, []
            for client_id, answer in self._exchange(asked, question):
                try:
                    reply = self._read(client_id, answer)
                except (ClientError, MessageError) as error:
                    self.dropped[client_id], reports = str(error), {}
                else:
                    if reply.behind:
                        behind.append(client_id)
                        continue
                    value, reports = reply.value, reply.reports
                    values[client_id] = value
                    if value is not None and value is not True:
                        self.told.add((component.name, name))
                answered += 1
                self.events.tell(
                    ReplyArrived(self.round, self.phase, client_id, reports, answered, len(client_ids))
                )
        lost = "its process was started again, and what it has missed is no longer known"
        self.dropped |= dict.fromkeys(behind, lost)
        return dict(sorted(values.items()))

    @property
    def stays(self) -> bool:
        """Whether messages stay in this process, and nobody keeps their bytes."""
        return getattr(self.transport, "in_process", False) and not self.wire.keep

    def _exchange(self, client_ids: list[int], question: Call) -> Iterator[tuple[int, Message | Exception]]:
        messages: dict[str, Message] = {}
        by_address = {client_address(client_id): client_id for client_id in client_ids}
        for address, client_id in by_address.items():
            done = self._done[client_id]
            pending = [call for call in self._held[client_id] if not call.sequence or call.sequence > done]
            data, zones = calls.request(self.digest, [*pending, question], done, self.stays)
            self.wire.record(SERVER, address, self.round, self.phase, data, zones)
            messages[address] = data
        started = time.perf_counter()
        for address, answer in self.transport.exchange(messages):
            self.waited += time.perf_counter() - started
            yield by_address[address], answer
            started = time.perf_counter()

    def _read(self, client_id: int, answer: Message | Exception) -> Reply:
        if isinstance(answer, Exception):
            raise ClientError(str(answer)) from answer
        reply, zones = calls.read_reply(answer)
        self.wire.record(client_address(client_id), SERVER, self.round, self.phase, answer, zones)
        if not reply.saved <= reply.done <= self._sequence:
            told = f"done={reply.done} and saved={reply.saved}"
            raise MessageError(f"a reply with {told}, of {self._sequence} calls: it claims what was never asked")
        self._done[client_id] = reply.done
        if not reply.behind:
            self._held[client_id] = [call for call in self._held[client_id] if call.sequence > reply.saved]
        if reply.error is not None:
            raise ClientError(f"{reply.error.call}: {reply.error.message}")
        return reply

    def drop(self, client_id: int, reason: str) -> None:
        """Leaves a client out of the rest of this round; the first reason is kept."""
        self.dropped.setdefault(client_id, reason)

    def require(self, answered: int) -> None:
        """Raises TooFewClients if fewer than `min_clients` clients are left, with the reasons."""
        if answered >= self.min_clients:
            return
        raise TooFewClients(
            f"round {self.round + 1}: {answered} clients are left, min_clients is {self.min_clients}. "
            + (f"Dropped out: {self.reasons()}" if self.dropped else "Nobody else was in the cohort.")
        )

    def reasons(self) -> str:
        """Why clients dropped out of this round, each reason with its clients."""
        return "; ".join(f"{reason} (client {listed(ids)})" for reason, ids in alike(self.dropped))

    def all_failed_alike(self) -> bool:
        """Whether every client that was asked in this round dropped out, and all for the same reason."""
        return bool(self._asked) and self._asked <= set(self.dropped) and len(alike(self.dropped)) == 1

    # What a checkpoint needs. Lasting calls stay held until the client says that it was saved after them: a worker that
    # dies is restored from the last checkpoint and told again whatever it had done since.

    def state(self) -> dict[str, Any]:
        lasting = {call.sequence: call for held in self._held.values() for call in held if call.sequence}
        return {
            "sequence": self._sequence,
            "done": list(self._done.items()),
            "calls": [[number, call.body, dict(call.zones)] for number, call in sorted(lasting.items())],
            "held": [[client_id, [c.sequence for c in held if c.sequence]] for client_id, held in self._held.items()],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._sequence = state["sequence"]
        self._done = dict(state["done"])
        lasting = {number: Call(body, Counter(zones), number) for number, body, zones in state["calls"]}
        self._held = {client_id: [lasting[number] for number in numbers] for client_id, numbers in state["held"]}


def alike(reasons: Mapping[int, str]) -> list[tuple[str, list[int]]]:
    """Each reason with its clients, ascending. Reasons that differ in numbers only count as one; the first is given."""
    found: dict[str, tuple[str, list[int]]] = {}
    for client_id, reason in sorted(reasons.items()):
        kind = re.sub(r"\d+(\.\d+)?(e[-+]?\d+)?", "0", reason)
        found.setdefault(kind, (reason, []))[1].append(client_id)
    return list(found.values())


def listed(client_ids: list[int]) -> str:
    """The ids, of many only the first ones: `0, 1, 2, 3, 4 and 95 more`."""
    first = ", ".join(map(str, client_ids[:5]))
    return f"{first} and {len(client_ids) - 5} more" if len(client_ids) > 5 else first


class Cohort:
    """The clients taking part in this round, as the server drives them.

    Attributes:
        server: the aggregation server's own state.
        key_server: the line to the key server, for a negotiation that has something opened.
        groups: group name -> all client ids of the group, taking part or not. One group unless `regroup` was called.
    """

    def __init__(self, office: PostOffice, server: Server, client_ids: Iterable[int], reach: Iterable[int],
                 key_server: KeyServerLine | None = None) -> None:
        self._office, self.server = office, server
        self.key_server = KeyServerLine(office) if key_server is None else key_server
        self._ids, self._reach = sorted(client_ids), sorted(reach)

    @property
    def client_ids(self) -> list[int]:
        """Clients still in this round, ascending."""
        return [client_id for client_id in self._ids if client_id not in self._office.dropped]

    @property
    def groups(self) -> dict[str, list[int]]:
        return self.server.remembered.groups or {"all": self._office.client_ids}

    def __len__(self) -> int:
        return len(self.client_ids)

    def ask(self, method: Callable[..., Any], *payload: Any) -> dict[int, Any]:
        """Runs `method(client, *payload)` at every client of the cohort and gives their replies by client id.

        Clients that fail are left out, now and for the rest of the round.

        Raises:
            TooFewClients: fewer than `min_clients` are left in the round.
        """
        asked = self.client_ids
        replies = self._office.ask(asked, method, payload)
        if len(asked) >= self._office.min_clients:  # a question to a few only says nothing about the round
            self._office.require(len(replies))
        return replies

    def tell(self, method: Callable[..., Any], *payload: Any) -> None:
        """Runs `method(client, *payload)` before the next question to each client.

        Clients of the cohort's group that are not in this round get it too, when they are next asked: what it does must
        not depend on an earlier question of this round.
        """
        self._office.tell(self._reach, method, payload, lasting=True)

    def tell_now(self, method: Callable[..., Any], *payload: Any) -> None:
        """Like `tell`, but only for clients in this round, and forgotten when the round ends."""
        self._office.tell(self.client_ids, method, payload, lasting=False)

    def drop(self, client_id: int, reason: str) -> None:
        """Leaves a client out of the rest of this round, as if it had failed: for one whose reply cannot be right.

        It stays in later rounds, and gets what is told to all. The round ends with `TooFewClients` if fewer than
        `min_clients` are left when uploads are asked for.

        Args:
            client_id: of a client in this cohort.
            reason: what was wrong with what it sent, for the metrics: the value, the rule.
        """
        self._office.drop(client_id, reason)

    def only(self, client_ids: Iterable[int]) -> Cohort:
        """The same cohort, restricted to some clients; it reaches nobody else."""
        wanted = set(client_ids)
        return Cohort(self._office, self.server, wanted & set(self._ids), wanted & set(self._reach), self.key_server)

    def group(self, name: str) -> Cohort:
        """The part of the cohort that belongs to one group; its tells reach the whole group."""
        return self.only(self.groups[name])

    def regroup(self, groups: dict[str, list[int]]) -> None:
        """Divides all clients into groups with a model each, in round 1 or before it, while all models are equal.

        Raises:
            ValueError: a client is in no group, or in two; or models differ already.
        """
        if self._office.round > 0 and groups != self.groups:
            raise ValueError(
                f"groups cannot change in round {self._office.round + 1}: a client that moves would keep the model of "
                "its old group; form them in round 1"
            )
        members = sorted(client_id for ids in groups.values() for client_id in ids)
        if members != sorted(self._office.client_ids):
            raise ValueError(f"groups must hold each of the {len(self._office.client_ids)} clients once, got {members}")
        self.server.remembered.groups = {name: sorted(ids) for name, ids in groups.items()}


class KeyServerLine:
    """The server's line to the key server."""

    def __init__(self, office: PostOffice) -> None:
        self._office = office
        self.seconds = 0.0
        self.operations: dict[str, list[float]] = {}  # name -> [count, seconds], as the key server reports them

    def ask(self, method: Callable[..., Any], *payload: Any) -> Any:
        """Runs `method(key_server, *payload)` at the key server and gives its reply.

        If its process ends meanwhile, it is restored with its keys from the last checkpoint and asked once more.

        Raises:
            Refusal: the key server refused this call, or failed at it.
            ClientError: it is gone.
        """
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
        reply, zones = calls.read_reply(answer)
        office.wire.record(KEY_SERVER, SERVER, office.round, "open", answer, zones)
        self.seconds += reply.reports.get("seconds_total", 0.0)
        for name, (count, took) in reply.reports.get("operations", {}).items():
            total = self.operations.setdefault(name, [0.0, 0.0])
            total[0], total[1] = total[0] + count, total[1] + took
        if reply.error is not None:
            raise Refusal(f"the key server refused {reply.error.call}: {reply.error.message}", reply.error.kind)
        return reply.value

"""The server's requests: `cohort.ask` and `cohort.tell` of the clients, `key_server.ask` of the key server.

A `tell` needs no reply, so it is held back and travels with the next `ask`, in order. A lasting tell (the default) also
reaches, later, the clients that are not in this round's cohort or did not answer: a client that missed the winners of a
vote or an aggregate catches up before it is asked anything.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol

from fedplug.api.operations import Cover
from fedplug.api.parties import Server


class Office(Protocol):
    """What makes messages up and sends them, as a cohort uses it."""

    @property
    def client_ids(self) -> list[int]:
        """All clients of the run."""

    @property
    def dropped(self) -> Collection[int]:
        """Clients that are out of this round."""

    @property
    def min_clients(self) -> int:
        """The fewest clients with which a round continues."""

    @property
    def round(self) -> int:
        """0-based."""

    def ask(
        self, client_ids: list[int], method: Callable[..., Any], payload: tuple[Any, ...] | Mapping[int, Any], *,
        take: Callable[[int, Any], Any] = ..., done: Callable[[int], None] = ...,
    ) -> dict[int, Any]:  # fmt: skip
        """Runs a method at clients, with one payload or with one for each, and gives their replies by client."""

    def tell(
        self, client_ids: Iterable[int], method: Callable[..., Any], payload: tuple[Any, ...], *, lasting: bool
    ) -> None:
        """Runs a method at clients before their next question."""

    def require(self, count: int) -> None:
        """Ends the round where so many are too few."""

    def drop(self, client_id: int, reason: str) -> None:
        """Leaves a client out of the rest of the round."""


Publishing = Callable[["Cohort", Any, Mapping[str, Any], Any], None]
"""Makes values of a component public to a cohort."""


class KeyServerLine(abc.ABC):
    """The server's line to the key server.

    Attributes:
        seconds: that the key server has worked.
        operations: name -> [count, seconds], as the key server reports them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.operations: dict[str, list[float]] = {}

    @abc.abstractmethod
    def ask(self, method: Callable[..., Any], *payload: Any) -> Any:
        """Runs `method(key_server, *payload)` at the key server and gives its reply.

        If its process ends meanwhile, it is restored with its keys from the last checkpoint and asked once more.

        Raises:
            OpenedBefore: it refuses to open another sum of the round than before.
            Refusal: the key server refused this call, or failed at it, or gave an answer that cannot be read.
            ClientError: it is gone.
        """


class Cohort:
    """The clients taking part in this round, as the server drives them.

    Attributes:
        server: the aggregation server's own state.
        key_server: the line to the key server, for a negotiation that has something opened.
        owner: the name of the component that was handed it, and publishes by it; empty: nobody does.
    """

    def __init__(self, office: Office, server: Server, client_ids: Iterable[int], reach: Iterable[int],
                 key_server: KeyServerLine, publish: Publishing, owner: str = "") -> None:
        self._office, self.server, self.key_server, self._publish = office, server, key_server, publish
        self.owner = owner
        self._ids, self._reach = sorted(client_ids), sorted(reach)

    def publish(
        self, component: Any, values: Mapping[str, Any], *,
        covered_by: Cover | None = None,
    ) -> None:  # fmt: skip
        """Makes values public facts: from the next step on all parties of this cohort's group have them in
        `facts.of(component)`, and hooks of facts may go by them. They stay until the component publishes again: in the
        set-up, or in a round before uploads are asked for.

        Args:
            component: that publishes, and was handed this cohort; what it published before is replaced.
            values: plain data by name.
            covered_by: what pays for what they show of clients' data, as in `Reveals`. None: nothing does, and those
                who learn them have no guarantee.
        """
        self._publish(self, component, values, covered_by)

    @property
    def client_ids(self) -> list[int]:
        """Clients still in this round, ascending."""
        return [client_id for client_id in self._ids if client_id not in self._office.dropped]

    @property
    def groups(self) -> dict[str, list[int]]:
        """Group -> all client ids of the group, taking part or not. One group unless `regroup` was called."""
        return self.server.remembered.groups or {"all": self._office.client_ids}

    @property
    def reach(self) -> frozenset[int]:
        """All clients that its tells reach, taking part or not."""
        return frozenset(self._reach)

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

    def ask_each(self, method: Callable[..., Any], payloads: Mapping[int, Any]) -> dict[int, Any]:
        """Runs `method(client, payload)` at each client that has a payload, which goes to nobody else.

        All of them are asked at once. Clients that fail are left out of the rest of the round; how many answers are
        enough is for the caller to say, since a few clients may be asked that are enough for what they are asked.

        Args:
            method: runs at a client, with its payload.
            payloads: by client; those of clients that are not in the cohort any more are left aside.

        Returns:
            The replies, by client id, ascending.
        """
        present = set(self.client_ids)
        asked = {client_id: payloads[client_id] for client_id in sorted(payloads) if client_id in present}
        return self._office.ask(list(asked), method, asked)

    def gather(self, method: Callable[..., Any], take: Callable[[int, Any], None], done: Callable[[int], None]) -> None:
        """Like `ask`, but keeps no reply: each is handed to `take` as it arrives, in whatever order.

        Args:
            method: runs at every client.
            take: is handed each client and its reply.
            done: is called for each client when its reply was taken and nothing else holds it, or when it gives none.
        """
        self._office.ask(self.client_ids, method, (), take=take, done=done)

    def tell(self, method: Callable[..., Any], *payload: Any) -> None:
        """Runs `method(client, *payload)` before the next question to each client.

        Clients of the cohort's group that are not in this round get it too, when they are next asked: what it does must
        not depend on an earlier question of this round.
        """
        self._office.tell(self._reach, method, payload, lasting=True)

    def tell_each(self, method: Callable[..., Any], payloads: Mapping[int, Any]) -> None:
        """Like `tell`, with a payload for each client that goes to nobody else: sealed secrets, for instance."""
        for client_id, payload in payloads.items():
            self._office.tell([client_id], method, (payload,), lasting=True)

    def tell_each_now(self, method: Callable[..., Any], payloads: Mapping[int, Any]) -> None:
        """Like `tell_each`, but only for clients in this round, and forgotten when the round ends."""
        for client_id in self.client_ids:
            if client_id in payloads:
                self._office.tell([client_id], method, (payloads[client_id],), lasting=False)

    def tell_now(self, method: Callable[..., Any], *payload: Any) -> None:
        """Like `tell`, but only for clients in this round, and forgotten when the round ends."""
        self._office.tell(self.client_ids, method, payload, lasting=False)

    def drop(self, client_id: int, reason: str) -> None:
        """Leaves a client out of the rest of this round, as if it had failed: for one whose reply cannot be right.

        It stays in later rounds, and gets what is told to all. The round is skipped if fewer than `min_clients` are
        left when uploads are asked for.

        Args:
            client_id: of a client in this cohort.
            reason: what was wrong with what it sent, for the metrics: the value, the rule.
        """
        self._office.drop(client_id, reason)

    def only(self, client_ids: Iterable[int]) -> Cohort:
        """The same cohort, restricted to some clients; it reaches nobody else."""
        wanted = set(client_ids)
        ids, reach = wanted & set(self._ids), wanted & set(self._reach)
        return Cohort(self._office, self.server, ids, reach, self.key_server, self._publish, self.owner)

    def of(self, component: Any) -> Cohort:
        """The same cohort, as one component is handed it. For the protocol.

        Raises:
            ValueError: another component was handed this one.
        """
        if self.owner not in ("", component.name):
            raise ValueError(f"{self.owner} was handed this cohort, and hands it to nobody: {component.name}")
        return Cohort(
            self._office, self.server, self._ids, self._reach, self.key_server, self._publish, component.name
        )

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

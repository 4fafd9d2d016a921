"""The parties of an encryption component, for tests that close, add and open without a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import Block, Layout
from fedplug.api.facts import Facts
from fedplug.api.links import Link
from fedplug.api.parties import Client, KeyServer, Party, Server
from fedplug.mechanisms.closing import Closing
from fedplug_std.bfv import Bfv
from fedplug_std.ckks import Ckks
from numpy.typing import NDArray

SCHEMES = [
    pytest.param((kind, key_holder), id=f"{kind.__name__.lower()}-{key_holder}")
    for kind in (Bfv, Ckks)
    for key_holder in ("key_server", "clients")
]


def make(kind: Any, **options: Any) -> Any:
    return kind(kind.Options.model_validate(options))


def facts_of(component: Any, num_clients: int, min_clients: int, size: int = 10, terms: Any = None) -> Facts:
    """Of a round in which the component closes the one zone; `terms`: of its keys."""
    link = Link("encrypted", "protect", component.name, component, "client")
    return Facts(
        round=0, rounds=1, layout=Layout.of([("w", (size,))]), zones=("encrypted",), num_clients=num_clients,
        min_clients=min_clients, seed=1, digest="d", components={component.name: component},
        chains={"encrypted": (link,)}, published={} if terms is None else {component.name: {"terms": terms}},
    )  # fmt: skip


def closed(block: Block, client: Client, facts: Facts) -> Block:
    """A client's block, closed."""
    client.facts, client.remembered.weight = facts, float(block.divisor)
    return Closing.of(block.zone, facts).close(block, client)


def added(blocks: dict[int, Block], server: Server, facts: Facts) -> Block:
    """The sum of closed blocks, of clients with the weights that they say."""
    return Closing.of("encrypted", facts).add(blocks, {c: float(b.divisor) for c, b in blocks.items()}, server)


def opened(block: Block, party: Party, facts: Facts) -> Block:
    """The values of a sum, at a party."""
    return Closing.of(block.zone, facts).open(block, range(block.contributors), party)


def relayed(value: Any) -> Any:
    """As it arrives."""
    return codec.decode(codec.encode(value))


class Parties:
    """All parties of a run in this process; whatever passes the server goes through the codec and is kept."""

    def __init__(self, component: Any, num_clients: int, min_clients: int = 2, size: int = 10) -> None:
        self.component, self.facts = component, facts_of(component, num_clients, min_clients, size)
        self.server, self.key_server = Server(), KeyServer()
        self.clients = {index: Client(client_id=index) for index in range(num_clients)}
        self.seen_by_server: list[bytes] = []
        self.broken: set[int] = set()
        for client in self.clients.values():
            client.remembered.cohort_secret = bytes(range(32))

    @property
    def holder(self) -> Party:
        """Who opens sums."""
        return self.clients[0] if self.component.site == "client" else self.key_server

    def setup(self) -> Parties:
        self.component.setup(Cohort(self, list(self.clients)), self, self.facts)
        return self

    def publish(self, values: Mapping[str, Any]) -> None:
        self.facts = dataclasses.replace(self.facts, published={self.component.name: self.relay(dict(values))})
        for party in (self.server, self.key_server, *self.clients.values()):
            party.facts = self.facts

    def relay(self, value: Any) -> Any:
        data = codec.encode(value)
        self.seen_by_server.append(data)
        return codec.decode(data)

    def ask(self, method: Callable[..., Any], *payload: Any) -> Any:
        """The line to the key server."""
        assert method.__fedplug_site__ == "key_server"  # type: ignore[attr-defined]
        return self.relay(method(self.key_server, *self.relay(payload)))

    def seal(self, index: int, values: Any, weight: float = 1.0, where: Any = None) -> Block:
        plain, positions = np.asarray(values, np.float32), None if where is None else np.asarray(where, np.uint32)
        block = Block("encrypted", len(plain), plain, positions, divisor=weight)
        return self.relay(closed(block, self.clients[index], self.facts))  # type: ignore[no-any-return]

    def add(self, blocks: dict[int, Block]) -> Block:
        return self.relay(added(blocks, self.server, self.facts))  # type: ignore[no-any-return]

    def open(self, block: Block, party: Party | None = None) -> Block:
        return opened(block, party or self.holder, self.facts)


class Cohort:
    def __init__(self, parties: Parties, client_ids: list[int]) -> None:
        self.parties, self.client_ids, self.server = parties, client_ids, parties.server

    def only(self, client_ids: list[int]) -> Cohort:
        return Cohort(self.parties, client_ids)

    def publish(self, component: Any, values: Mapping[str, Any], *, covered_by: str | None = None) -> None:
        self.parties.publish(values)

    def ask(self, method: Callable[..., Any], *payload: Any) -> dict[int, Any]:
        assert method.__fedplug_site__ == "client"  # type: ignore[attr-defined]
        payload = self.parties.relay(payload)
        asked = [index for index in self.client_ids if index not in self.parties.broken]
        return {index: self.parties.relay(method(self.parties.clients[index], *payload)) for index in asked}

    def tell(self, method: Callable[..., Any], *payload: Any) -> None:
        self.ask(method, *payload)


class OneClient:
    """A component's parties with their keys; all clients are one object. What travels goes through the codec."""

    def __init__(self, component: Any, size: int, num_clients: int, min_clients: int) -> None:
        self.component, self.fewest = component, min_clients
        self.server, self.key_server, self.client = Server(), KeyServer(), Client(client_id=0)
        self.client.remembered.cohort_secret = bytes(32)
        if component.site == "client":
            made = component.make_shared_key(self.client, num_clients)
        else:
            made = component.make_keys(self.key_server, num_clients)
        self.facts = facts_of(component, num_clients, min_clients, size, made["terms"])
        for party in (self.server, self.key_server, self.client):
            party.facts = self.facts
        self.server.memory(component)["context"] = made["adding"]
        component.adopt_keys(self.client, made["keys"])
        self.made_keys: bytes = self.client.memory(component)["context"]
        self.holder: Party = self.client if component.site == "client" else self.key_server
        self.packing = component.packing(made["terms"], self.facts)
        self.numbers = self.packing.numbers

    def of_at_least(self, min_clients: int) -> Facts:
        """The facts of a run whose sums hold at least as many updates."""
        return dataclasses.replace(self.facts, min_clients=min_clients)

    def seal(self, values: Any, weight: float = 1.0, positions: NDArray[Any] | None = None) -> Block:
        """What a client sends."""
        plain = np.asarray(values, np.float32)
        block = Block("encrypted", len(plain), plain, positions, divisor=weight)
        return relayed(closed(block, self.client, self.facts))  # type: ignore[no-any-return]

    def seal_masked(self, mask: NDArray[Any], update: NDArray[Any], weight: float = 1.0) -> Block:
        """What a client sends that encrypts its update where its mask says."""
        where = np.flatnonzero(mask).astype(np.uint32)
        return self.seal(update[where], weight, where)

    def add(self, blocks: dict[int, Block], min_clients: int | None = None) -> Block:
        """The server's sum, of at least as many clients as is said here or was said for all."""
        return relayed(added(blocks, self.server, self.of_at_least(min_clients or self.fewest)))  # type: ignore[no-any-return]

    def open(self, block: Block, party: Party | None = None, min_clients: int | None = None) -> Block:
        """Likewise, at the party that holds the key, or at another."""
        found = opened(block, party or self.holder, self.of_at_least(min_clients or self.fewest))
        return relayed(found)  # type: ignore[no-any-return]


def codes(updates: Sequence[NDArray[Any]], numbers: Any, weights: Sequence[float] | None = None) -> NDArray[Any]:
    """The sum of the words of weighted updates."""
    by = weights or [1.0] * len(updates)
    words = (numbers.encode(u.astype(np.float64) * w)[0] for u, w in zip(updates, by, strict=True))
    total: NDArray[Any] = np.sum([*words], axis=0)
    return total

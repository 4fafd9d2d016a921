"""The parties of an encryption component, for tests that seal, add and open without a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fedplug.api import codec
from fedplug.api.blocks import Block, Layout
from fedplug.api.facts import Facts
from fedplug.api.parties import Client, KeyServer, Party, Server
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


class Parties:
    """All parties of a run in this process; whatever passes the server goes through the codec and is kept."""

    def __init__(self, component: Any, num_clients: int, min_clients: int = 2) -> None:
        self.component, self.num_clients, self.min_clients = component, num_clients, min_clients
        self.server, self.key_server = Server(), KeyServer()
        self.clients = {index: Client(client_id=index) for index in range(num_clients)}
        self.seen_by_server: list[bytes] = []
        self.broken: set[int] = set()
        for client in self.clients.values():
            client.remembered.cohort_secret = bytes(range(32))
            client.facts = self.context(client)

    def context(self, party: Party) -> Facts:
        return Facts(
            round=0, rounds=1, layout=Layout.of([("w", (10,))]), zones=("encrypted",), num_clients=self.num_clients,
            min_clients=self.min_clients, seed=1, digest="d", party=party,
            components={self.component.name: self.component},
        )  # fmt: skip

    def setup(self) -> Parties:
        self.component.setup(Cohort(self, list(self.clients)), self, self.context(self.server))
        return self

    def relay(self, value: Any) -> Any:
        data = codec.encode(value)
        self.seen_by_server.append(data)
        return codec.decode(data)

    def ask(self, method: Callable[..., Any], *payload: Any) -> Any:
        """The line to the key server."""
        assert method.__fedplug_site__ == "key_server"  # type: ignore[attr-defined]
        return self.relay(method(self.key_server, *self.relay(payload)))

    def seal(self, index: int, values: Any, weight: float = 1.0) -> Block:
        client = self.clients[index]
        client.weight = weight
        plain = np.asarray(values, np.float32)
        block = self.component.seal(Block("encrypted", len(plain), plain), client, client.facts)
        return self.relay(block)  # type: ignore[no-any-return]

    def add(self, blocks: dict[int, Block]) -> Block:
        return self.relay(self.component.add_blocks(blocks, self.context(self.server)))  # type: ignore[no-any-return]

    def open(self, block: Block) -> Block:
        holder = self.clients[0] if self.component.site == "client" else self.key_server
        return self.component.open(block, self.context(holder))  # type: ignore[no-any-return]


class Cohort:
    def __init__(self, parties: Parties, client_ids: list[int]) -> None:
        self.parties, self.client_ids = parties, client_ids

    def only(self, client_ids: list[int]) -> Cohort:
        return Cohort(self.parties, client_ids)

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
        self.component, self.num_clients = component, num_clients
        self.fewest = self.min_clients = min_clients
        self.layout = Layout.of([("w", (size,))])
        self.server, self.key_server, self.client = Server(), KeyServer(), Client(client_id=0)
        self.client.remembered.cohort_secret = bytes(32)
        if component.site == "client":
            made = component.make_shared_key(self.client, num_clients)
        else:
            made = component.make_keys(self.key_server, num_clients)
        self.server.memory(component).update(context=made["adding"], terms=made["terms"])
        component.adopt_keys(self.client, made["keys"], made["terms"])
        self.made_keys: bytes = self.client.memory(component)["context"]
        self.holder: Party = self.client if component.site == "client" else self.key_server
        self.codec = component.codec(made["terms"])

    def context(self, party: Party) -> Facts:
        return Facts(
            round=0, rounds=1, layout=self.layout, zones=("encrypted",), num_clients=self.num_clients,
            min_clients=self.min_clients, seed=1, digest="d", party=party,
        )  # fmt: skip

    def seal(self, values: Any, weight: float = 1.0, positions: NDArray[Any] | None = None) -> Block:
        """What a client sends."""
        self.client.weight, plain = weight, np.asarray(values, np.float32)
        block = Block("encrypted", len(plain), plain, positions)
        return self.relay(self.component.seal(block, self.client, self.context(self.client)))

    def seal_masked(self, mask: NDArray[Any], update: NDArray[Any], weight: float = 1.0) -> Block:
        """What a client sends that encrypts its update where its mask says."""
        where = np.flatnonzero(mask).astype(np.uint32)
        return self.seal(update[where], weight, where)

    def add(self, blocks: dict[int, Block], min_clients: int | None = None) -> Block:
        """The server's sum, of at least as many clients as is said here or was said for all."""
        self.min_clients = min_clients or self.fewest
        return self.relay(self.component.add_blocks(blocks, self.context(self.server)))

    def open(self, block: Block) -> Block:
        return self.relay(self.component.open(block, self.context(self.holder)))

    @staticmethod
    def relay(block: Block) -> Block:
        return codec.decode(codec.encode(block))  # type: ignore[no-any-return]

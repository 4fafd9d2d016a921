"""Clients and a key server without a protocol: the calls they got, failures, and lost processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedplug import at_client, at_key_server
from fedplug.api.cohort import Cohort
from fedplug.api.errors import PartyLost
from fedplug.api.events import Events
from fedplug.api.parties import KEY_SERVER, KeyServer, Server, client_address
from fedplug.api.reports import Reports
from fedplug.wire.calls import Receiver
from fedplug.wire.post_office import KeyServerCalls, PostOffice
from fedplug_runs.wire_record import Wire


class Component:
    """Writes down what each client hears; clients in `broken` raise instead."""

    name = "toy"

    def __init__(self) -> None:
        self.heard: dict[int, list[Any]] = {}
        self.broken: dict[int, str] = {}

    @at_client
    def hear(self, client: Any, word: Any) -> Any:
        if client.client_id in self.broken:
            raise RuntimeError(self.broken[client.client_id])
        self.heard.setdefault(client.client_id, []).append(word)
        return [word, client.client_id]

    @at_key_server
    def open(self, key_server: Any, word: str) -> str:
        if word == "no":
            raise ValueError("not that")
        return word.upper()


class Fake(KeyServer):
    """A client or key server."""

    def __init__(self, client_id: int = -1) -> None:
        super().__init__()
        self.client_id = client_id

    def collect_reports(self) -> Reports:
        return Reports()


class World:
    """A post office whose engine is a loop; replies come in descending order of id, as if the last were the fastest."""

    in_process = False

    def __init__(self, clients: int = 4, min_clients: int = 2) -> None:
        self.component, self.wire = Component(), Wire()
        self.parties = {client_address(c): Fake(c) for c in range(clients)}
        self.lost: set[str] = set()
        self.office = PostOffice(self, self.wire, "digest", list(range(clients)), min_clients, Events())
        self.server = Server()
        self.ids = list(range(clients))
        self.key_server = Fake()

    def exchange(self, messages: dict[str, bytes]) -> Iterator[tuple[str, bytes | Exception]]:
        for address, data in sorted(messages.items(), reverse=True):
            if address in self.lost:
                yield address, PartyLost(f"worker of {address} ended with code -9")
            elif address == KEY_SERVER:
                receiver = Receiver("key_server", {"toy": self.component}, "digest")
                yield address, receiver.handle(data, self.key_server, lambda round: None)
            else:
                receiver = Receiver("client", {"toy": self.component}, "digest")
                yield address, receiver.handle(data, self.parties[address], lambda round: None)

    def cohort(self, ids: list[int] | None = None) -> Cohort:
        here, line = self.ids if ids is None else ids, KeyServerCalls(self.office)
        return Cohort(self.office, self.server, here, self.ids, line, self.publish)

    def publish(self, cohort: Cohort, component: Any, values: Mapping[str, Any], covered_by: Any) -> None:
        raise AssertionError("nobody publishes here")

    def heard(self, client_id: int) -> list[Any]:
        return self.component.heard.get(client_id, [])
